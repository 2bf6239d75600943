"""The catalogue of a broker that is alone: a journal in the store of its journals.

Room: broker. Any thread may read it; two changes of one topic are never made at once (the broker's
name_locks.py sees to it).
Holds: what journal_catalogue.py holds; where there are journals of topics, and there never was a
change, the catalogue was lost.
See: journal_catalogue.py; deleting.py for the end of a topic.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager

from dejaqueue.broker.topic.journal_catalogue import JournalCatalogue
from dejaqueue.catalogue.changes import Change, ClosedTopic, Decided, DeletedTopic
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog
from dejaqueue.errors import JournalDamaged, Refused
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic

SHOWN_MAX = 5
"""Topics that are named where there are too many."""


class LoneCatalogue(JournalCatalogue):
    """All topics of a broker that is alone, by name.

    Args:
        writing, snapshot_writer, now_ms, new_future: as in CatalogueLog.

    Raises:
        JournalDamaged, Unavailable. Refused: the journals are a cluster's.
    """

    def __init__(
        self,
        store: JournalStore,
        writing: AbstractContextManager[object] | None = None,
        snapshot_writer: Executor | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        new_future: Callable[[], Future[None]] = Future,
    ) -> None:
        super().__init__(store, CatalogueLog(store, writing, snapshot_writer, now_ms, new_future))
        cluster = self._log.state.cluster
        if cluster is not None:
            self._log.close()
            raise Refused(f"these journals belong to cluster {cluster.id}: start it as one of that")
        if not self._log.revision:
            self._check_empty()

    @property
    def repairs(self) -> list[str]:
        """What of the catalogue was damaged or torn when it was read, in words; it was logged."""
        return self._log.repairs

    def _check_empty(self) -> None:
        """Raise JournalDamaged if there never was a topic, and there are journals of some."""
        found = [name for name in self._store.made() if name != JOURNAL]
        if found:
            self._log.close()
            shown = ", ".join(found[:SHOWN_MAX])
            raise JournalDamaged(
                f"the catalogue is empty, though there are journals of {len(found)} topics: {shown}"
            )

    def create(self, topic: Topic, *, exist_ok: bool) -> Topic:
        """See JournalCatalogue. One that is there is known without a look at the journal."""
        known = self._exists(topic, exist_ok=exist_ok)
        return super().create(topic, exist_ok=exist_ok) if known is None else known

    def closed(self, name: str, ids_from: int, decided: tuple[Decided, ...] = ()) -> None:
        """The second step: nobody writes to the journals of a deleted topic any more.

        Args:
            ids_from: every sequence that it gave is below this.
            decided: what not everybody was told of its transactions.
        """
        closed = ClosedTopic(name, ids_from, decided=decided)
        self._change(lambda: closed if self.row_of(name) is not None else None)

    @property
    def revision(self) -> int:
        """Number of the last change."""
        return self._log.revision

    def follow(self, change: Change) -> None:
        """Make a change that the broker which is followed has made. Raises as CatalogueLog."""
        self._change(lambda: change)

    def buried(self, name: str) -> None:
        """The third step: the journals of a deleted topic are dropped."""
        self._change(lambda: DeletedTopic(name) if self.row_of(name) is not None else None)
