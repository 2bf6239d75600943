"""A catalogue that is a journal: what brokers ask of its state, and the changes that they append.

Room: broker. Any thread may read it.
Holds: a change is durable before it is seen; a topic that is deleted is named until its journals
are dropped, so that a crash in between leaves nothing; a topic that nobody has used is a row here
and nothing else: its journals may come into being when somebody does, and from then on that they
are missing is damage.
See: lone_catalogue.py, of a broker that is alone, and cluster/catalogue.py; catalogue/log.py for
how a change becomes durable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from dejaqueue.broker.topic.catalogue import Catalogue, Changes
from dejaqueue.catalogue.changes import (
    AlteredTopic,
    Change,
    DeletingTopic,
    MadeTopic,
    UsedTopic,
)
from dejaqueue.catalogue.log import CatalogueLog, Plan
from dejaqueue.catalogue.state import CatalogueState, TopicRow
from dejaqueue.errors import DejaQError, TopicUnknown, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic

log = logging.getLogger("dejaqueue.broker")


class JournalCatalogue(Catalogue):
    """All topics, by name, as the journal of the catalogue has them."""

    def __init__(self, store: JournalStore, log: CatalogueLog) -> None:
        self._store = store
        self._log = log

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

    def is_used(self, name: str) -> bool:
        """Whether a topic may have journals."""
        return self._row(name).is_used

    def state(self) -> CatalogueState:
        """A copy of all of it."""
        return self._log.copied()

    def leaving(self) -> tuple[str, ...]:
        """Topics that were deleted, and whose journals have not been dropped yet."""
        return tuple(self._log.state.leaving)

    def changing(self) -> tuple[str, ...]:
        """Topics that are being deleted."""
        return self.leaving()

    def row_of(self, name: str) -> TopicRow | None:
        """A topic that is being deleted; None = nothing is left of it."""
        return self._log.state.leaving.get(name)

    # --- changes ------------------------------------------------------------------------------

    def _change(self, plan: Plan) -> None:
        """Make a change; see CatalogueLog.change."""
        self._log.change(plan)

    def _start_of(self, topic: Topic) -> int:
        """The slot of the first shard of a topic that is made now."""
        return 0

    def create(self, topic: Topic, *, exist_ok: bool) -> Topic:
        """Add a topic. With `exist_ok` an equal one is fine; a different one raises TopicExists.

        Raises:
            Unavailable: one of this name is being deleted.
        """
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
            return MadeTopic(topic, self._start_of(topic))

        self._change(made)
        return found

    def _of_another_spread(self, topic: Topic) -> Iterable[Topic]:
        """See Catalogue. Almost always none has another: then nothing is looked at."""
        state = self._log.state
        if topic.spread == 1:
            rows = [state.rows.get(name) for name in state.in_shards.copy()]
            others = [row.topic for row in rows if row is not None]
        else:
            others = [row.topic for row in state.rows.copy().values()]
        others += self._log.coming.values()
        return [one for one in others if one.spread != topic.spread]

    def alter(self, name: str, changes: Changes) -> Topic:
        """Change settings that may change; the others are refused."""
        found: list[Topic] = []

        def altered() -> Change:
            self._row(name)  # all is read here: nobody is asked, who would wait for this
            found.append(self._altered(name, changes))
            return AlteredTopic(found[-1])

        self._change(altered)
        return found[-1]

    def use(self, name: str, number: int) -> None:
        """Let the journals of a topic be opened, which are made when they are.

        Raises:
            TopicUnknown: it was deleted. ResourceExhausted, Unavailable.
        """
        if self._used(name, number) is not None:
            # Before it is noted: that they are missing then is damage.
            self._store.make(self.journals_of(self._row_with(name, number)), number)
            self._change(partial(self._used, name, number))

    def use_all(self, topics: Iterable[tuple[str, int]]) -> None:
        """Do as `use` for several topics, each its name and number, with one change: who uses one
        of them next finds it done. Does not raise what `use` raises: that is for it to tell."""
        plans: list[Plan] = []
        made: list[tuple[str, int]] = []
        for name, number in topics:
            row = self._log.state.rows.get(name)
            if row is not None and row.number == number and not row.is_used:
                made.append((self.journals_of(row), number))
                plans.append(partial(self._used, name, number))
        if not plans:
            return
        try:
            self._store.make_all(made)
            self._log.change_all(plans)
        except DejaQError as failed:
            log.info("%d topics are used one by one: %s", len(plans), failed)

    def _used(self, name: str, number: int) -> Change | None:
        return None if self._row_with(name, number).is_used else UsedTopic(name)

    def _row_with(self, name: str, number: int) -> TopicRow:
        row = self._row(name)
        if row.number != number:
            raise TopicUnknown(name)
        return row

    def journals_of(self, row: TopicRow) -> str:
        """What the topic of a row is called in the store of its journals."""
        return row.topic.name

    def delete(self, name: str) -> None:
        """Take the first step: the topic is gone, its journals are not. Raises TopicUnknown."""

        def deleting() -> Change:
            self._row(name)
            return DeletingTopic(name)

        self._change(deleting)

    def close(self) -> None:
        """Let go of the journal."""
        self._log.close()
