"""Covers: archivers of several processes on one directory, each with a store of its own as a
process has it: cuts of all logs, logs that go from one to another, what a process left when it
died, backups that begin and go on with a chain, older copies.

Not covered: processes that are killed under load (tests/crash/test_processes_archive.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.backup.fence import Fence, put_fence
from dejaqueue.backup.manifest import Manifest
from dejaqueue.backup.strands import strands_of
from dejaqueue.broker.backup import strand_archiver
from dejaqueue.broker.backup.catalogue_slices import CatalogueSlices
from dejaqueue.broker.backup.strand_archiver import StrandArchiver
from dejaqueue.broker.site import Site
from dejaqueue.broker.standby.strand_reader import StrandReader
from dejaqueue.catalogue.changes import MadeTopic
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import BadRequest, Refused, Unavailable
from dejaqueue.journal.interface import Journal
from dejaqueue.journal.processes import ProcessStore, prepare
from dejaqueue.journal.segments.shared_store import TopicSlots
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.journal_conformance import fill
from tests.patience import until
from tests.unit.broker.backup.strand_place import CHAIN, StrandPlace

SHARDS = 4
INTERVAL_MS = 5


class Process:
    """A process, as its archiver sees it: partition p of topic 7 is in log p."""

    def __init__(self, root: Path, number: int, interval_ms: int = INTERVAL_MS) -> None:
        self.settings = BrokerSettings.model_validate(
            {
                "journal": {"url": f"shared://{root / 'data'}"},
                "cluster": {"node": f"process-{number}"},
                "backup": {
                    "url": str(root / "backups"),
                    "archive_interval_ms": interval_ms,
                },
            }
        )
        self.clock, self.site, self.node = SteadyClock(), Site(), None
        self.store = ProcessStore(root / "data", segment_bytes=1 << 13, patience_seconds=5.0)
        self.store.lies(lambda _: TopicSlots(0, SHARDS))
        self.served: list[int] = []
        """Partitions that it opens when it is asked to open what it serves."""
        self.journals: dict[int, Journal] = {}
        self.fences: list[Fence] = []
        """Of who took its place."""
        self.archiver = StrandArchiver(self, ThreadPoolExecutor(1))  # type: ignore[arg-type]
        self._random = np.random.default_rng(number)

    def catalogue_state(self) -> CatalogueState:
        """Asked by who opens all that is served here."""
        for number in self.served:
            self.open(number)
        return CatalogueState()

    def open(self, number: int) -> None:
        if number not in self.journals:
            self.journals[number] = self.store.open("t.7", number, only_made=True)

    def give_up(self, number: int) -> None:
        self.journals.pop(number).close()

    def append(self, number: int, count: int = 1) -> None:
        self.open(number)
        fill(self.journals[number], self._random, count, rows=2)

    def replaced(self, fence: Fence) -> None:
        self.fences.append(fence)

    def end(self) -> None:
        """As at a graceful stop."""
        for number in list(self.journals):
            self.give_up(number)
        self.archiver.close()
        self.store.close()


class Place(StrandPlace):
    """A directory, its archive, and what is done to both from outside."""

    number, partitions = 7, SHARDS

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.processes = list[Process]()
        prepare(root / "data", SHARDS)[0].release()
        first = self.process(1)
        log = CatalogueLog(first.store)
        log.change(lambda: MadeTopic(Topic("t", partitions=SHARDS), 0))
        log.close()
        first.store.make("t.7", 7)

    def process(self, number: int, **more: int) -> Process:
        process = Process(self.root, number, **more)
        self.processes.append(process)
        return process

    def backed_up(self, by: Process, chain: str, **logs: int) -> Manifest:
        """A backup of nothing, behind which is what is behind these positions."""
        names = {name.removeprefix("log"): at for name, at in logs.items()}
        return self.backed_up_behind(by, chain, names)

    def reaches(self, manifest: Manifest, **counts: int) -> None:
        """Return when so much of each partition would be restored, and each once."""
        wanted = {
            number: list(range(1, counts.get(f"p{number}", 0) + 1)) for number in range(SHARDS)
        }
        self.restores(manifest, {-1: [1], **wanted})


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for process in place.processes:
        process.end()


def test_who_begins_a_strand_behind_the_fence_is_replaced__as_is_who_meets_the_end_of_one(
    place: Place,
) -> None:
    one, other, bucket = place.processes[0], place.process(2), place.archive.bucket
    one.archiver.start()
    manifest = place.backed_up(one, CHAIN)
    one.append(0)
    place.reaches(manifest, p0=1)
    other.archiver.start()
    until(lambda: other.archiver.note().chain == CHAIN, "it is to begin a strand")
    fence = put_fence(bucket, Fence(manifest.store, "a1", 1, "here"))
    [strand] = strands_of(bucket, CHAIN)

    def is_ended() -> bool:
        return StrandReader(strand, strand.numbers()[-1], "").seal("a1", manifest.store)

    until(is_ended, "the strand that there is has an end")
    other.append(1)
    until(lambda: other.fences == [fence], "it has read the fence behind its first piece")
    one.append(0)
    until(lambda: one.fences, "it has met the end")
    assert one.fences == other.fences == [fence]


def test_cuts_have_what_is_in_the_logs_of_all__and_the_catalogue(place: Place) -> None:
    one, other = place.processes[0], place.process(2)
    one.append(0, 3)
    for process in (one, other):
        process.archiver.check()
        process.archiver.start()
    manifest = place.backed_up(one, CHAIN, log0=0)
    other.append(1, 2)
    place.reaches(manifest, p0=3, p1=2)
    one.append(2)
    other.append(3)
    other.append(1)
    place.reaches(manifest, p0=3, p1=3, p2=1, p3=1)
    assert [strand.name for strand in strands_of(place.archive.bucket, CHAIN)] == [
        f"{CHAIN}/process-1",
        f"{CHAIN}/process-2",
    ]
    assert place.archive.chain_damage(manifest)[0] == []
    assert (one.archiver.trouble(), other.archiver.trouble()) == ("", "")
    until(lambda: one.archiver.lag_us() == other.archiver.lag_us() == 0, "all is archived")


def test_a_log_that_goes_to_another_process_goes_on_there(place: Place) -> None:
    one, other = place.processes[0], place.process(2)
    for process in (one, other):
        process.archiver.start()
    manifest = place.backed_up(one, CHAIN)
    sent = 0
    for _ in range(3):
        for owner in (one, other):
            owner.append(0, 4)
            owner.append(0)
            owner.give_up(0)
            sent += 5
    place.reaches(manifest, p0=sent)
    assert place.archive.chain_damage(manifest)[0] == []


def test_what_a_process_left_is_archived_by_who_serves_it_next(place: Place) -> None:
    one, dead = place.processes[0], place.process(2)
    one.archiver.start()  # the other one archives nothing, as it dies before
    dead.append(1, 7)
    manifest = place.backed_up(one, CHAIN)
    one.append(0)
    until(lambda: one.archiver.pieces > 0, "one archives")
    assert place.found(manifest)[1] == []  # no cut counts that has them, and they are not there
    dead.give_up(1)
    one.served = [1]
    place.reaches(manifest, p0=1, p1=7)


def test_no_cut_before_all_logs_were_opened_once(place: Place) -> None:
    one = place.processes[0]
    one.archiver.start()
    manifest = place.backed_up(one, CHAIN)
    one.append(0, 2)
    one.append(1, 2)
    place.reaches(manifest, p0=2, p1=2)
    one.end()
    place.processes.clear()
    prepare(place.root / "data", SHARDS)[0].release()  # as the next parent does
    again = place.process(1)
    again.append(0)
    again.archiver.start()
    until(lambda: again.archiver.pieces > 0, "it goes on")
    assert place.found(manifest)[0] == [1, 2]
    again.served = [1]
    place.reaches(manifest, p0=3, p1=2)


def test_who_stops_last_takes_a_cut_of_all(place: Place) -> None:
    one, other = place.processes[0], place.process(2, interval_ms=50_000)
    one.archiver.start()
    manifest = place.backed_up(one, CHAIN)
    one.append(0)
    place.reaches(manifest, p0=1)
    other.archiver.start()
    one.append(0, 5)
    one.end()
    other.append(1, 5)
    other.end()
    assert place.found(manifest) == {-1: [1], 0: [*range(1, 7)], 1: [*range(1, 6)], 2: [], 3: []}
    place.processes.clear()


def test_a_backup_has_the_pieces_before_it_given_up__or_begins_another_chain(place: Place) -> None:
    one = place.processes[0]
    one.archiver.start()
    assert one.archiver.note().chain == ""
    first = place.backed_up(one, CHAIN)
    for turn in range(1, 6):
        one.append(0)
        place.reaches(first, p0=turn)
    (strand,) = strands_of(place.archive.bucket, CHAIN)
    assert len(strand.numbers()) >= 5
    for _ in range(2):  # who restores from the first may be reading the pieces behind it
        numbers = strand.numbers()
        note = one.archiver.note()
        assert (note.chain, note.logs) == (CHAIN, {"0": 5})
        manifest = place.backed_up(one, note.chain, own=1, log0=5)
        one.archiver.backed_up(note, {"own": 1, "0": 5})
    until(lambda: len(strand.numbers()) == 1, "pieces are deleted")
    assert strand.numbers()[-1] == numbers[-1]
    one.append(0)
    # The last piece stays, which says where the strand is.
    until(lambda: place.found(manifest)[0][-1] == 6, "it goes on")
    assert place.found(manifest)[0] in ([5, 6], [6])
    other_chain = one.archiver.new_chain()
    manifest = place.backed_up(one, other_chain, own=1, log0=6)
    one.append(0)
    until(lambda: place.found(manifest)[0] == [7], "the other chain goes on behind the backup")
    until(lambda: strands_of(place.archive.bucket, CHAIN) == [], "the one before is deleted")


def test_a_chain_of_which_nobody_lived_to_tell_is_found(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strand_archiver, "CHAIN_US", 20_000)
    one, two = place.processes[0], place.process(2)
    for number, process in enumerate((one, two)):
        process.archiver.start()
        process.open(number)
    first = place.backed_up(one, CHAIN)
    one.append(0)
    two.append(1)
    place.reaches(first, p0=1, p1=1)
    with monkeypatch.context() as patch:  # it was killed when the backup was stored
        patch.setattr(one.archiver, "begins", lambda _: None)
        manifest = place.backed_up(one, one.archiver.new_chain(), own=1, log0=1, log1=1)
    one.append(0)
    two.append(1)
    until(lambda: place.found(manifest)[0] == place.found(manifest)[1] == [2], "both go on in it")
    assert one.archiver.note().chain == two.archiver.note().chain == manifest.chain
    until(lambda: strands_of(place.archive.bucket, CHAIN) == [], "the one before is deleted")


def test_a_catalogue_that_cannot_be_read_for_a_while__ends_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, failures = place.processes[0], ["locked"] * 5
    tail = CatalogueSlices.tail

    def fails(slices: CatalogueSlices) -> int:
        if failures:
            raise Unavailable(failures.pop(), 1)
        return tail(slices)

    monkeypatch.setattr(CatalogueSlices, "tail", fails)
    one.archiver.start()
    manifest = place.backed_up(one, CHAIN)
    one.append(0, 3)
    place.reaches(manifest, p0=3)
    assert (failures, one.archiver.failures) == ([], 5)
    assert one.archiver.note().chain == CHAIN


def test_an_older_copy_of_the_journals_does_not_go_on(place: Place) -> None:
    one = place.processes[0]
    one.archiver.start()
    manifest = place.backed_up(one, CHAIN)
    one.append(0, 9)
    place.reaches(manifest, p0=9)
    one.end()
    place.processes.clear()
    for path in (place.root / "data" / "shards").glob("0000*"):
        _remove(path)
    prepare(place.root / "data", SHARDS)[0].release()
    again = place.process(1)
    again.archiver.start()
    again.append(0, 2)
    until(lambda: "nothing is archived" in again.archiver.trouble(), "the chain ends")
    with pytest.raises(Refused, match="an old copy was put in place"):
        again.archiver.check_line(place.archive, manifest)
    assert again.archiver.note().chain == ""
    assert place.found(manifest)[0] == [*range(1, 10)]


def test_what_cannot_be_archived_is_refused(place: Place) -> None:
    one = place.processes[0]
    one.settings = one.settings.model_copy(
        update={"backup": one.settings.backup.model_copy(update={"url": ""})}
    )
    with pytest.raises(BadRequest, match=r"backup\.url"):
        one.archiver.check()


def _remove(path: Path) -> None:

    shutil.rmtree(path) if path.is_dir() else path.unlink()
