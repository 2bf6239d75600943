"""Bugs that are planted in what several brokers do together; see tests/simulation/mutants.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.partition import partition
from dejaqueue.broker.shard import opening
from dejaqueue.broker.shard.commit import Commits
from dejaqueue.broker.shard.opening import JournalDoor
from dejaqueue.broker.shard.reading import StateReader
from dejaqueue.broker.topic.catalogue import Catalogue
from dejaqueue.broker.topic.given_ids import PartitionReport
from dejaqueue.broker.topic.peers import TELL
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.transactions.coordinator import Coordinator
from dejaqueue.catalogue.changes import ClosedTopic, DeletedTopic
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.clock import Discipline
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.claims import Claims
from dejaqueue.cluster.clocks import ClockComparison
from dejaqueue.cluster.node import Node
from dejaqueue.cluster.ownership import View
from dejaqueue.engine.engine import Engine
from dejaqueue.errors import Fenced
from dejaqueue.journal.records.interface import Bytes
from dejaqueue.journal.records.journal import RecordJournal
from dejaqueue.journal.records.memory import MemoryRecords
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.journal.records.writer import RecordWriter

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


@mutant
def the_server_compares_nothing(patch: pytest.MonkeyPatch) -> None:
    inner = MemoryRecords.append

    def append(self: MemoryRecords, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        inner(self, self.last(), records)

    patch.setattr(MemoryRecords, "append", append)


@mutant
def an_append_that_was_fenced_counts(patch: pytest.MonkeyPatch) -> None:
    inner = MemoryRecords.append

    def append(self: MemoryRecords, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        with contextlib.suppress(Fenced):
            inner(self, after, records)

    patch.setattr(MemoryRecords, "append", append)


@mutant
def a_lost_answer_is_taken_for_yes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordWriter, "_happened", lambda self, *asked: True)


@mutant
def a_lost_answer_is_taken_for_no(patch: pytest.MonkeyPatch) -> None:
    """It is sent again without a barrier, until the place is taken: by itself."""

    def happened(self: RecordWriter, append_id: int, sealed: Any, *rest: Any) -> bool:
        last = self._log.last()
        if last >= self._number:
            self._number = last + 1
        return False

    patch.setattr(RecordWriter, "_happened", happened)


@mutant
def a_beginning_is_taken_for_the_whole(patch: pytest.MonkeyPatch) -> None:
    inner = RecordWriter._happened

    def happened(
        self: RecordWriter, append_id: int, sealed: Any, position: int, until_us: int
    ) -> bool:
        del sealed[1:]
        return inner(self, append_id, sealed, position, until_us)

    patch.setattr(RecordWriter, "_happened", happened)


@mutant
def a_conflict_is_taken_for_a_claim(patch: pytest.MonkeyPatch) -> None:
    """Everybody serves: the one owner of each moment is whoever opened last."""
    patch.setattr(Node, "refusal", lambda self, topic, *, begins=False: None)
    patch.setattr(Claims, "claim", lambda self, slot, session, owners: slot in owners)


@mutant
def who_comes_back_is_taken_for_who_was(patch: pytest.MonkeyPatch) -> None:
    def living_owner(self: View, slot: int) -> Any:
        owner = self.owners.get(slot)
        return None if owner is None else self.members.get(owner.node)

    patch.setattr(View, "living_owner", living_owner)


def _after_recovery(patch: pytest.MonkeyPatch, change: Callable[[Engine], None]) -> None:
    inner = opening.read_again

    def read_again(core: Any, door: Any) -> opening.Opened:
        opened = inner(core, door)
        change(opened.views.unnamed)
        return opened

    patch.setattr(opening, "read_again", read_again)
    patch.setattr(partition, "read_again", read_again)


@mutant
def the_next_owner_forgets_producers(patch: pytest.MonkeyPatch) -> None:
    _after_recovery(patch, lambda engine: engine.state.producers.by_name.clear())


@mutant
def the_next_owner_overlooks_an_entry(patch: pytest.MonkeyPatch) -> None:
    inner = RecordJournal.scan

    def scan(self: RecordJournal, after: int) -> Iterator[Any]:
        for found in inner(self, after):
            if found[0] != self.tail - 1:
                yield found

    patch.setattr(RecordJournal, "scan", scan)


@mutant
def a_sleeper_sends_what_it_leased(patch: pytest.MonkeyPatch) -> None:
    """A broker that slept in an append does not ask who owns the partition now."""
    patch.setattr(Commits, "_keep_back", lambda self, group: None)


# --- clocks ---------------------------------------------------------------------------------------


@mutant
def who_comes_with_another_clock_serves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClockComparison, "apart_us", lambda self, joined, limit_us: 0)


@mutant
def a_clock_that_jumps_is_believed(patch: pytest.MonkeyPatch) -> None:
    inner = Discipline.__init__

    def init(self: Discipline, jump_us: int, grace_us: int, *rest: Any) -> None:
        inner(self, jump_us, 0, *rest)

    patch.setattr(Discipline, "__init__", init)
    patch.setattr(ClockComparison, "apart_us", lambda self, joined, limit_us: 0)


# --- topics that are made and deleted, and transactions over several ------------------------------


@mutant
def a_topic_is_deleted_in_one_step(patch: pytest.MonkeyPatch) -> None:
    """Whoever is asked drops the journals; whoever serves it goes on, and makes them again."""

    def delete_topic(self: Broker, name: str) -> None:
        catalogue = self._catalogue
        assert isinstance(catalogue, ClusterCatalogue)
        catalogue.newest(name)
        catalogue.delete(name)
        row = catalogue.row_of(name)
        if row is not None:
            self.store.drop(catalogue.journals_of(row))
            catalogue._change(lambda: ClosedTopic(name, row.ids_from))
            catalogue._change(lambda: DeletedTopic(name))

    def catalogue_changed(self: Broker, names: object = None) -> None:
        """It compares names, and not what the journals are called."""
        with self._lock:
            topics = {name: self._catalogue.find(name) for name in self._topics}
            gone = [self._topics.pop(name) for name, topic in topics.items() if topic is None]
        self._endings.close(gone)

    patch.setattr(Broker, "delete_topic", delete_topic)
    patch.setattr(Broker, "catalogue_changed", catalogue_changed)
    patch.setattr(RecordJournalStore, "_check_made", lambda self, topic: None)


@mutant
def a_change_of_the_catalogue_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Whoever is late appends behind what others did, whether or not it fits that."""
    inner = CatalogueLog._append

    def append(self: CatalogueLog, changes: Any) -> bool:
        while not inner(self, changes):
            self._read_to_end()
        return True

    patch.setattr(CatalogueLog, "_append", append)


@mutant
def an_unknown_topic_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterCatalogue, "get", Catalogue.get)


@mutant
def the_ids_of_a_name_begin_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CatalogueState, "next_ids", lambda self, name: 0)


@mutant
def a_decision_is_for_those_who_are_here(patch: pytest.MonkeyPatch) -> None:
    """Whoever has something staged at another broker is neither told nor answered."""
    patch.setattr(Coordinator, "_ask_far", lambda self, other, action, body, then: then({}, other))


@mutant
def who_is_elsewhere_knows_it_already(patch: pytest.MonkeyPatch) -> None:
    """It is taken for told, and its questions for answered."""

    def ask_far(self: Coordinator, other: Any, action: str, body: Any, then: Any) -> None:
        if action == TELL:
            then({}, None)
        else:
            then({"commit": False}, None)

    patch.setattr(Coordinator, "_ask_far", ask_far)


@mutant
def a_decision_goes_with_its_topic(patch: pytest.MonkeyPatch) -> None:
    """Whoever was not told when the topic of the home went is told that nothing was committed."""
    patch.setattr(PartitionReport, "untold", property(lambda self: ()))


@mutant
def a_topic_that_is_going_has_decided_nothing(patch: pytest.MonkeyPatch) -> None:
    """Its owner may not have let go of it yet, and what it has decided is not read."""
    patch.setattr(Coordinator, "_of_gone", lambda self, name: False)


# --- journals that hang ---------------------------------------------------------------------------


@mutant
def appends_hold_their_worker(patch: pytest.MonkeyPatch) -> None:
    """Also where the journal is on a server."""
    patch.setattr(Commits, "is_apart", property(lambda self: False))


@mutant
def journals_are_opened_by_their_worker(patch: pytest.MonkeyPatch) -> None:
    inner = JournalDoor.__init__

    def init(self: JournalDoor, *given: Any, executor: Any = None, **named: Any) -> None:
        inner(self, *given, executor=None, **named)

    patch.setattr(JournalDoor, "__init__", init)


@mutant
def partitions_are_closed_by_their_worker(patch: pytest.MonkeyPatch) -> None:
    def close_one(
        self: ServedTopic, worker: Any, partition: Any, close: Any, done: Future[None]
    ) -> None:
        try:
            close(partition)
        finally:
            worker.forget(partition)
            done.set_result(None)

    patch.setattr(ServedTopic, "_close_one", close_one)


# --- what is read ahead ---------------------------------------------------------------------------


@mutant
def what_came_after_reading_ahead_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """The next owner serves the state that it read while the owner before went on."""
    inner = StateReader.take_over

    def take_over(self: StateReader) -> bool:
        is_known = inner(self)
        self.tail = self.journal.tail
        return is_known

    patch.setattr(StateReader, "take_over", take_over)
