"""Covers: archivers of brokers whose journals are on one server, each with a store of its own: cuts
of all partitions and the catalogue, partitions that go from one to another, what one left
when it died, backups that begin and go on with a chain, older copies, steps of a turn.

Not covered: real brokers (tests/cluster/test_archive.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dejaqueue.backup.fence import Fence
from dejaqueue.backup.manifest import Manifest
from dejaqueue.backup.strands import strands_of
from dejaqueue.broker.backup import record_archiver
from dejaqueue.broker.backup.record_archiver import RecordArchiver
from dejaqueue.broker.shard.turn_hold import Publication, TurnHold
from dejaqueue.broker.site import Site
from dejaqueue.broker.topic.cluster_port import Owners
from dejaqueue.catalogue.changes import MadeTopic, UsedTopic
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import BadRequest, DejaQError, Refused
from dejaqueue.journal.interface import Journal
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.journal_conformance import fill
from tests.patience import until
from tests.unit.broker.backup.strand_place import CHAIN, StrandPlace

PARTITIONS = 3
INTERVAL_MS = 5


class Member:
    """A broker, as its archiver sees it; and what it agrees on with others.

    Attributes:
        node: its name in the cluster.
    """

    def __init__(self, place: Place, name: str, interval_ms: int = INTERVAL_MS) -> None:
        self.place, self.node = place, name
        self.settings = BrokerSettings.model_validate(
            {
                "journal": {"url": "nats://nowhere"},
                "backup": {
                    "url": str(place.root / "backups"),
                    "archive_interval_ms": interval_ms,
                },
            }
        )
        self.clock, self.site = SteadyClock(), Site()
        self.store = RecordJournalStore(place.records)
        self.turn_hold = TurnHold(self.clock)
        self.peers: Any = self
        self.log = CatalogueLog(self.store)
        self.journals: dict[int, tuple[Journal, Publication]] = {}
        executor = ThreadPoolExecutor(1)
        self.archiver = RecordArchiver(self, executor, lambda: self)  # type: ignore[arg-type, return-value]
        self._random = np.random.default_rng(sum(name.encode()))

    # --- as a broker --------------------------------------------------------------------------

    def catalogue_state(self) -> CatalogueState:
        self.log.read()
        return self.log.copied()

    def served_names(self, topic: Topic) -> tuple[str, ...]:
        return ()

    def replaced(self, fence: Fence) -> None:
        raise AssertionError(fence)

    # --- as what is agreed on, and as the way to others ---------------------------------------

    def owners(self) -> Owners:
        members = self.place.members
        urls = {name: name for name in members}
        return Owners(urls, {n: (name, name, 1) for n, name in enumerate(members)}, is_whole=True)

    def leads_cuts(self) -> bool:
        return next(iter(self.place.members), "") == self.node

    def leave_cuts(self) -> None:
        """Another one may."""

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future()
        try:
            answer.set_result(self.place.members[url].archiver.hear(body))
        except DejaQError as error:
            answer.set_exception(error)
        return answer

    # --- what it does -------------------------------------------------------------------------

    def open(self, number: int) -> None:
        if number not in self.journals:
            journal = self.store.open("t", number, only_made=True)
            one = self.turn_hold.open(self.place.number, number, journal, journal.tail)
            self.journals[number] = journal, one

    def give_up(self, number: int) -> None:
        journal, one = self.journals.pop(number)
        one.end()
        journal.close()

    def append(self, number: int, count: int = 1) -> None:
        self.open(number)
        journal, one = self.journals[number]
        fill(journal, self._random, count, rows=2)
        one.published(journal.tail)

    def end(self) -> None:
        """As at a graceful stop."""
        self.archiver.finish()
        self.place.members.pop(self.node, None)
        self._close()
        self.archiver.close()

    def _close(self) -> None:
        for number in list(self.journals):
            self.give_up(number)
        self.log.close()
        self.store.close()


class Place(StrandPlace):
    """A server of records, an archive, and what is done to both from outside."""

    partitions = PARTITIONS

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.records = MemoryRecordStore()
        self.members: dict[str, Member] = {}
        first = self.member("a")
        first.log.change(lambda: MadeTopic(Topic("t", partitions=PARTITIONS), 0))
        first.log.change(lambda: UsedTopic("t"))
        self.number = first.log.state.rows["t"].number
        first.store.make("t", self.number)

    def member(self, name: str, **more: int) -> Member:
        self.members[name] = Member(self, name, **more)
        return self.members[name]

    def backed_up(self, by: Member, chain: str = CHAIN, /, **ends: int) -> Manifest:
        """A backup of nothing, behind which is what is behind these positions."""
        logs = {f"{self.number}/{name.removeprefix('p')}": end for name, end in ends.items()}
        return self.backed_up_behind(by, chain, logs)

    def reaches(self, manifest: Manifest, *counts: int) -> None:
        """Return when so much of each partition would be restored, and each once."""
        wanted = {-1: [1, 2]} | {n: [*range(1, count + 1)] for n, count in enumerate(counts)}
        self.restores(manifest, wanted)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for member in list(place.members.values()):
        member.end()


def test_cuts_have_what_is_in_the_partitions_of_all__and_the_catalogue(place: Place) -> None:
    one, other = place.members["a"], place.member("b")
    for member in (one, other):
        member.archiver.check()
        member.archiver.start()
    one.append(0, 3)
    other.append(1, 2)
    other.append(2)
    manifest = place.backed_up(one)
    place.reaches(manifest, 3, 2, 1)
    one.append(0)
    other.append(1)
    place.reaches(manifest, 4, 3, 1)
    assert [strand.name for strand in strands_of(place.archive.bucket, CHAIN)] == [
        f"{CHAIN}/a",
        f"{CHAIN}/b",
    ]
    assert place.archive.chain_damage(manifest)[0] == []
    assert (one.archiver.trouble(), other.archiver.trouble()) == ("", "")
    until(lambda: one.archiver.lag_us() == other.archiver.lag_us() == 0, "all is archived")


def test_no_cut_while_nobody_has_read_a_partition(place: Place) -> None:
    one = place.members["a"]
    one.archiver.start()
    one.append(0, 3)
    one.append(1)
    manifest = place.backed_up(one)
    until(lambda: one.archiver.pieces > 0, "it archives")
    assert place.found(manifest)[0] == []
    one.append(2)
    place.reaches(manifest, 3, 1, 1)


def test_a_partition_that_goes_to_another_broker_goes_on_there(place: Place) -> None:
    one, other = place.members["a"], place.member("b")
    for member in (one, other):
        member.archiver.start()
    one.append(1)
    one.append(2)
    manifest = place.backed_up(one)
    sent = 0
    for _ in range(3):
        for owner in (one, other):
            owner.append(0, 4)
            owner.append(0)
            owner.give_up(0)
            sent += 5
    one.open(0)
    place.reaches(manifest, sent, 1, 1)
    assert place.archive.chain_damage(manifest)[0] == []


def test_what_a_broker_left_is_archived_by_who_serves_it_next(place: Place) -> None:
    one, dead = place.members["a"], place.member("b", interval_ms=60_000)
    one.archiver.start()
    dead.archiver.start()
    for number in (0, 2):
        one.append(number)
    dead.append(1, 3)
    manifest = place.backed_up(one)
    place.reaches(manifest, 1, 3, 1)
    place.members.pop("b")  # nobody asks it any more
    dead.append(1, 5)
    one.append(0)
    dead._close()
    one.append(1)
    place.reaches(manifest, 2, 9, 1)
    dead.archiver.close()
    assert place.archive.chain_damage(manifest)[0] == []


def test_a_backup_has_the_pieces_before_it_given_up__or_begins_another_chain(place: Place) -> None:
    one = place.members["a"]
    one.archiver.start()
    for number in range(PARTITIONS):
        one.append(number)
    assert one.archiver.note().chain == ""
    first = place.backed_up(one)
    for turn in range(2, 7):
        one.append(0)
        place.reaches(first, turn, 1, 1)
    (strand,) = strands_of(place.archive.bucket, CHAIN)
    assert len(strand.numbers()) >= 5
    for _ in range(3):
        note = one.archiver.note()
        assert note.chain == CHAIN
        ends = {f"p{log.rpartition('/')[2]}": end for log, end in note.logs.items()}
        manifest = place.backed_up(one, **ends)
        one.archiver.backed_up(note, manifest.logs)
        one.append(0)
        until(lambda: one.archiver.lag_us() == 0)
    until(lambda: strand.numbers().start > 1, "pieces go")
    other = "00000000000000bb"
    manifest = place.backed_up(one, other)
    place.reaches(manifest, 9, 1, 1)
    until(lambda: not strand.numbers(), "the chain of before is gone")


def test_a_later_life_goes_on_with_its_strand(place: Place) -> None:
    one = place.members["a"]
    one.archiver.start()
    for number in range(PARTITIONS):
        one.append(number)
    manifest = place.backed_up(one)
    place.reaches(manifest, 1, 1, 1)
    one.append(0, 2)
    one.end()
    assert place.found(manifest)[0] == [1, 2, 3], "who stops archives what was done last"
    again = place.member("a")
    for number in range(PARTITIONS):
        again.append(number)
    again.archiver.start()
    place.reaches(manifest, 4, 2, 2)
    assert place.archive.chain_damage(manifest)[0] == []


def test_journals_that_are_older_than_the_archive_end_the_chain(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_archiver, "OLDER_US", 100_000)
    one = place.members["a"]
    one.archiver.start()
    for number in range(PARTITIONS):
        one.append(number, 5)
    manifest = place.backed_up(one)
    place.reaches(manifest, 5, 5, 5)
    one.turn_hold.open(place.number, 0, one.journals[0][0], 3)
    until(lambda: "nothing is archived" in one.archiver.trouble(), "the chain ends")
    with pytest.raises(Refused, match="an old copy was put in place"):
        one.archiver.check_line(place.archive, manifest)


def test_steps_of_a_turn(place: Place) -> None:
    one = place.members["a"]
    one.append(0, 2)
    hear = one.archiver.hear
    assert hear({"step": "look"}) == {}
    begun = hear({"step": "begin", "turn": "x", "chain": ""})
    assert begun == {"ends": {f"{place.number}/0": 2}, "chain": ""}
    assert hear({"step": "end", "turn": "x"}) == {"kept": True}
    assert hear({"step": "end", "turn": "x"}) == {"kept": False}
    for wrong in ({"step": "begin", "turn": ""}, {"step": "dance", "turn": "x"}):
        with pytest.raises(BadRequest):
            hear(wrong)
    other = place.member("b", interval_ms=0)
    with pytest.raises(Refused, match="archive_interval_ms is 0 here"):
        other.archiver.hear({"step": "look"})
