"""The catalogue of a broker that is alone: a journal in the store of its journals.

Room: broker. Any thread may read it; two changes of one topic are never made at once (the broker's
name_locks.py sees to it).
Holds: a topic that is deleted is named until its journals are dropped, so that a crash in between
leaves nothing; a topic that nobody has used is a row here and nothing else: its journals may come
into being when somebody does, and from then on that they are missing is damage.
See: catalogue/log.py for how a change becomes durable; deleting.py for the end of a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any

from dejaqueue.broker.topic.catalogue import Catalogue
from dejaqueue.catalogue.changes import (
    AlteredTopic,
    Change,
    ClosedTopic,
    DeletedTopic,
    DeletingTopic,
    MadeTopic,
    UsedTopic,
)
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog
from dejaqueue.catalogue.state import TopicRow
from dejaqueue.errors import JournalDamaged, TopicUnknown, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic

SHOWN_MAX = 5
"""Topics that are named where there are too many."""


class LoneCatalogue(Catalogue):
    """All topics of a broker that is alone, by name.

    Args:
        writing, snapshot_writer, now_ms, new_future: as in CatalogueLog.

    Raises:
        JournalDamaged, Refused, Unavailable.
    """

    def __init__(
        self,
        store: JournalStore,
        writing: AbstractContextManager[object] | None = None,
        snapshot_writer: Executor | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        new_future: Callable[[], Future[None]] = Future,
    ) -> None:
        self._store = store
        self._log = CatalogueLog(store, writing, snapshot_writer, now_ms, new_future)
        if not self._log.revision:
            self._check_empty()
        self._in_shards = {
            name: row.topic for name, row in self._log.state.rows.items() if row.topic.spread > 1
        }

    @property
    def repairs(self) -> list[str]:
        """What of the catalogue was damaged or torn when it was read, in words; it was logged."""
        return self._log.repairs

    def _check_empty(self) -> None:
        """Raise JournalDamaged if there never was a topic, and there are journals of some."""
        found = sorted(name for name in self._store.made() if name != JOURNAL)
        if found:
            self._log.close()
            shown = ", ".join(found[:SHOWN_MAX])
            raise JournalDamaged(
                f"the catalogue is empty, though there are journals of {len(found)} topics: {shown}"
            )

    # --- what there is ------------------------------------------------------------------------

    def all(self) -> list[Topic]:
        """Every topic, by name."""
        rows = self._log.state.rows.copy()  # it may change meanwhile
        return [rows[name].topic for name in sorted(rows)]

    def find(self, name: str) -> Topic | None:
        """The topic, None if there is none."""
        row = self._log.state.rows.get(name)
        return None if row is None else row.topic

    @property
    def count(self) -> int:
        """How many topics there are, and are being made."""
        return len(self._log.state.rows) + len(self._log.coming)

    def _row(self, name: str) -> TopicRow:
        row = self._log.state.rows.get(name)
        if row is None:
            raise TopicUnknown(name)
        return row

    def number(self, name: str) -> int:
        """What tells a topic from those that had its name before."""
        return self._row(name).number

    def counts(self, name: str) -> tuple[int, ...]:
        """How many partitions the topic had, one after the other; the last is its number now."""
        row = self._row(name)
        return row.counts or (row.topic.partitions,)

    def ids_from(self, name: str) -> int:
        """The sequence of the first message of each partition of a topic."""
        return self._row(name).ids_from

    def names(self) -> list[str]:
        """The name of every topic, the oldest first."""
        return list(self._log.state.rows.copy())

    def used(self) -> list[Topic]:
        """Topics that may have journals."""
        return [row.topic for row in self._log.state.rows.copy().values() if row.is_used]

    def leaving(self) -> tuple[str, ...]:
        """Topics that were deleted, and whose journals have not been dropped yet."""
        return tuple(self._log.state.leaving)

    def changing(self) -> tuple[str, ...]:
        """Topics that are being made or deleted."""
        return self.leaving()

    def row_of(self, name: str) -> TopicRow | None:
        """A topic that is being deleted; None = nothing is left of it."""
        return self._log.state.leaving.get(name)

    # --- changes ------------------------------------------------------------------------------

    def create(self, topic: Topic, *, exist_ok: bool) -> Topic:
        """Add a topic. With `exist_ok` an equal one is fine; a different one raises TopicExists.

        Raises:
            Unavailable: one of this name is being deleted.
        """
        known = self._exists(topic, exist_ok=exist_ok)
        if known is not None:
            return known
        found = topic

        def made() -> Change | None:
            nonlocal found
            known = self._exists(topic, exist_ok=exist_ok)
            if known is not None:
                found = known
                return None
            if topic.name in self._log.state.leaving:
                raise Unavailable(f"topic {topic.name} is being deleted", 100)
            self._check_new(topic)
            return MadeTopic(topic)

        self._log.change(made)
        if topic.spread > 1:
            self._in_shards[topic.name] = topic
        return found

    def _of_another_spread(self, topic: Topic) -> Iterable[Topic]:
        """See Catalogue. Almost always none has another: then nothing is looked at."""
        coming = self._log.coming.values()
        if topic.spread == 1:
            others = [*self._in_shards.values(), *coming]
        else:
            others = [*(row.topic for row in self._log.state.rows.copy().values()), *coming]
        return [one for one in others if one.spread != topic.spread]

    def alter(self, name: str, changes: dict[str, Any]) -> Topic:
        """Change settings that may change; the others are refused."""
        found: list[Topic] = []

        def altered() -> Change:
            found.append(self._altered(name, changes))
            return AlteredTopic(found[-1])

        self._log.change(altered)
        return found[-1]

    def use(self, name: str, number: int) -> None:
        """Let the journals of a topic be opened, which are made when they are.

        Raises:
            TopicUnknown: it was deleted. ResourceExhausted, Unavailable.
        """

        def used() -> Change | None:
            row = self._row(name)
            if row.number != number:
                raise TopicUnknown(name)
            return None if row.is_used else UsedTopic(name)

        if used() is not None:
            # Before it is noted: that they are missing then is damage.
            self._store.make(name, number=number)
            self._log.change(used)

    def is_used(self, name: str) -> bool:
        """Whether a topic may have journals."""
        return self._row(name).is_used

    def delete(self, name: str) -> None:
        """Take the first step: the topic is gone, its journals are not. Raises TopicUnknown."""

        def deleting() -> Change:
            self.get(name)
            return DeletingTopic(name)

        self._log.change(deleting)
        self._in_shards.pop(name, None)

    def closed(self, name: str, ids_from: int) -> None:
        """The second step: nobody writes to the journals of a deleted topic any more.

        Args:
            ids_from: every sequence that it gave is below this.
        """
        self._log.change(
            lambda: ClosedTopic(name, ids_from) if self.row_of(name) is not None else None
        )

    def buried(self, name: str) -> None:
        """The third step: the journals of a deleted topic are dropped."""
        self._log.change(lambda: DeletedTopic(name) if self.row_of(name) is not None else None)

    def close(self) -> None:
        """Let go of the journal."""
        self._log.close()
