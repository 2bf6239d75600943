"""The catalogue of a cluster: a journal beside its topics' journals, the same for all brokers.

    made → used → deleting → closed, shard by shard → deleted

Room: cluster. Any thread may call it. Any broker appends: changes are compared with all before
them.
Holds: a topic is gone when the journal says so, and that there is none is said only after the
journal was read to its end; its journals are called by its name and its number, so those of a
topic that was deleted are never taken for those of one made later. The coordinator has one fact of
it, a bell: losing that loses nothing.
See: broker/topic/journal_catalogue.py, whose checks hold here too; docs/adr/0034, 0024.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView

from dejaqueue.broker.topic.catalogue import Changes
from dejaqueue.broker.topic.given_ids import TopicReport, left_by
from dejaqueue.broker.topic.journal_catalogue import JournalCatalogue
from dejaqueue.catalogue.changes import Change, ClosedTopic, DeletedTopic, DeletingTopic
from dejaqueue.catalogue.log import JOURNAL, CatalogueLog, Plan
from dejaqueue.catalogue.state import CatalogueState, TopicRow
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.errors import BadRequest, DejaQError, TopicUnknown, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic

KEY = "catalogue"
"""The fact that has the last revision: whoever watches it hears of changes."""

log = logging.getLogger("dejaqueue.cluster")


class PlacedRows(Mapping[str, TopicRow]):
    """Topics that are there or are being deleted, while other threads make and delete some.

    A `ChainMap` looks for a name twice, and takes its values one by one: what was deleted between
    the two was a KeyError, which ended a broker's rounds.

    Args:
        rows, leaving: of the state; a topic that begins to be deleted is in both for a moment.
    """

    def __init__(self, rows: dict[str, TopicRow], leaving: dict[str, TopicRow]) -> None:
        self._rows, self._leaving = rows, leaving

    def _all(self) -> dict[str, TopicRow]:
        rows = self._rows.copy()  # first, or what moves between the two is in neither
        return self._leaving | rows

    def __getitem__(self, name: str) -> TopicRow:
        row = self._rows.get(name)
        return self._leaving[name] if row is None else row

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def values(self) -> ValuesView[TopicRow]:
        """As they were at one moment."""
        return self._all().values()


class ClusterCatalogue(JournalCatalogue):
    """All topics of the cluster, as this broker knows them.

    Args:
        coordinator: has the bell.

    Attributes:
        start_of: where the first shard of a new topic is to lie.
        stays_where_it_lies: what is stored of a topic cannot follow it to another slot.
    """

    stays_where_it_lies = False

    def __init__(
        self, store: JournalStore, catalogue_log: CatalogueLog, coordinator: Coordinator
    ) -> None:
        super().__init__(store, catalogue_log)
        self._coordinator = coordinator
        self.start_of: Callable[[Topic], int] = lambda topic: 0
        self._seen = self._rung = self.version

    # --- what there is ------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Grows with each change that is known."""
        return self._log.revision

    def read(self) -> None:
        """Know all changes that were made before this. Raises JournalDamaged, Unavailable."""
        self._log.read()

    def refresh(self) -> bool:
        """Read; True if anything changed since this was last asked. For one thread."""
        return self.news() != set()

    def news(self) -> set[str] | None:
        """Read; the names of what changed since this was last asked. For one thread.

        Returns:
            None = anything may have changed.
        """
        self.read()
        before, self._seen = self._seen, self.version
        return set() if before == self._seen else self.changed_since(before)

    def changed_since(self, version: int) -> set[str] | None:
        """Names of topics that were changed after a version; None = that is too long ago."""
        return self._log.state.changed_since(version)

    def get(self, name: str) -> Topic:
        """The topic of this name, or TopicUnknown: that it is unknown is said after a read."""
        if self.find(name) is None:
            self.read()
        return super().get(name)

    def newest(self, name: str) -> Topic:
        """As `get`, as of now. Raises TopicUnknown, Unavailable."""
        self.read()
        return super().get(name)

    def check_there(self, name: str, number: int) -> None:
        """Return if a topic is there, as of now, and raise TopicUnknown otherwise.

        Asked by whoever has begun an epoch in one of its journals, and so keeps everybody else out:
        what the catalogue says from then on is heard of before it is told to anybody.

        Raises:
            Unavailable.
        """
        self.read()
        if self.number(name) != number:
            raise TopicUnknown(name)

    def journals(self, name: str) -> str:
        """What the topic is called in the store of its journals."""
        return self.journals_of(self._row(name))

    def journals_of(self, row: TopicRow) -> str:
        """What the topic of a row is called in the store of its journals."""
        return f"{row.topic.name}.{row.number}"

    def words(self) -> set[str]:
        """What topics that are there, or are being deleted, are called in the store of journals."""
        return {JOURNAL, *map(self.journals_of, self.placed().values())}

    def placed(self) -> Mapping[str, TopicRow]:
        """Topics whose slot matters: those that are being deleted are let go by owners."""
        state = self._log.state
        return PlacedRows(state.rows, state.leaving)

    def spread_of(self, name: str) -> int:
        """How many shards a topic has, also while it is being deleted. Raises TopicUnknown."""
        row = self.placed().get(name)
        if row is None:
            raise TopicUnknown(name)
        return row.topic.spread

    def state(self) -> CatalogueState:
        """A copy of all of it, as of now. Raises JournalDamaged, Unavailable."""
        self.read()
        return super().state()

    def row(self, name: str) -> TopicRow | None:
        """A topic that is there; None = it is not."""
        return self._log.state.rows.get(name)

    def rows(self) -> list[TopicRow]:
        """Every topic that is there."""
        return list(self._log.state.rows.copy().values())

    # --- changes --------------------------------------------------------------------------------

    def _change(self, plan: Plan) -> None:
        """Make a change, and have the others hear of it."""
        before = self.version
        self._log.change(plan)
        revision = self.version
        if revision > max(before, self._rung):
            self._rung = revision
            try:
                self._coordinator.put(KEY, str(revision).encode())
            except DejaQError as error:  # they read it now and then anyhow
                log.warning("the others do not hear of change %d yet: %s", revision, error)

    def _start_of(self, topic: Topic) -> int:
        return self.start_of(topic)

    def check_settled(self, name: str) -> None:
        """Raise Unavailable while a topic is being deleted, as far as is known here."""
        row = self.row_of(name)
        if row is not None:
            text = f"topic {name} is being deleted"
            if row.waits:
                text += f": {', '.join(row.waits)} is not let go of yet"
            elif row.decided:
                text += ": not everybody who takes part in its transactions could be told yet"
            raise Unavailable(text, 100)

    # --- the end of a topic ---------------------------------------------------------------------

    def _check_new(self, topic: Topic) -> None:
        """See Catalogue._check_new."""
        super()._check_new(topic)
        if topic.dead_letter:
            self._check_moves_none(topic.name)

    def _altered(self, name: str, changes: Changes) -> Topic:
        """See Catalogue._altered. Raises BadRequest, too, where a topic would have to move."""
        changed = super()._altered(name, changes)
        if self.stays_where_it_lies and changed.dead_letter != self.get(name).dead_letter:
            limit = "as it is: a topic lies where its dead letters go, and processes of one machine"
            raise BadRequest(
                "topic.dead_letter", f"{limit} cannot move what is stored", changed.dead_letter
            )
        return changed

    def _check_moves_none(self, name: str) -> None:
        """Raise BadRequest if others lie where this one's dead letters go, or would."""
        if not self.stays_where_it_lies:
            return
        for row in self.placed().values():
            if row.topic.dead_letter == name:
                limit = f"none while dead letters of {row.topic.name} go to {name}"
                raise BadRequest(
                    "topic.dead_letter", f"{limit}: both lie in one shard, and stay there", name
                )

    def delete(self, name: str) -> None:
        """Begin to delete a topic; fine if that was begun. Raises TopicUnknown, Unavailable.

        BadRequest: topics whose dead letters come here lie where its own go, and cannot move.
        """

        def deleting() -> Change | None:
            if self.row_of(name) is not None:
                return None
            if self._row(name).topic.dead_letter:
                self._check_moves_none(name)
            return DeletingTopic(name)

        self._change(deleting)

    def let_go(self, row: TopicRow, shards: Sequence[str]) -> None:
        """Their owner does not serve these shards of a topic that is being deleted any more.

        What they have given and decided is read behind an epoch, so they do neither any more.

        Raises:
            Fenced: another owner serves it, and hears of the deletion. Unavailable.
        """
        self.read()
        name, journals = row.topic.name, self.journals_of(row)
        for shard in [one for one in shards if one in self._waits(row)]:
            left = left_by(self._store, row, journals, {}, shard=shard, fences=True)
            self._change(lambda shard=shard, left=left: self._closed(row, left, shard))  # type: ignore[misc]
        log.debug("topic %s is let go of: %s", name, ", ".join(shards))

    def _closed(self, row: TopicRow, left: TopicReport, shard: str) -> Change | None:
        if shard not in self._waits(row):
            return None
        return ClosedTopic(row.topic.name, left.ids_from, shard, left.decided)

    def _waits(self, row: TopicRow) -> tuple[str, ...]:
        """What is not let go of yet of the topic of a row, if that is being deleted still."""
        found = self.row_of(row.topic.name)
        return () if found is None or found.number != row.number else found.waits

    def bury(self, row: TopicRow) -> None:
        """Drop the journals of a deleted topic that everybody has let go of, and of whose
        transactions everybody was told. Raises Unavailable."""
        self.read()
        if self._waits(row):
            return
        self._store.drop(self.journals_of(row))

        def deleted() -> Change | None:
            found = self.row_of(row.topic.name)
            is_left = found is not None and found.number == row.number
            return DeletedTopic(row.topic.name) if is_left else None

        self._change(deleted)
