"""Covers: which segments of a log go, who keeps them, and what is stored before one goes.

Not covered: whole logs (test_log.py), journals of one partition (test_journal.py), crashes
(tests/crash).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.errors import InternalError
from dejaqueue.journal.interface import Int64s
from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments.part import Part
from dejaqueue.journal.segments.proof import FLOOR_NAME, read_mark
from dejaqueue.journal.segments.room import LogRoom
from dejaqueue.journal.segments.segment import READABLE, Segment
from dejaqueue.testing.faulty_journal import FaultyFileSystem

DIRECTORY = Path("disk:/log")
KIND = next(iter(READABLE))
ROWS = 10
ENTRY_BYTES = 4096


class Log:
    """Segments of five entries with ten rows each; entry by entry of the two partitions in turn."""

    def __init__(self, segments: int, adopted: bool = True) -> None:
        self.files = FaultyFileSystem(MemoryFileSystem())
        self.files.make_directory(DIRECTORY)
        self.chores: list[Callable[[], None]] = []
        self.parts = {1: Part(1), 2: Part(2)}
        self.room = LogRoom(self.files, DIRECTORY, 9, 3, self.parts, self.chores.append)
        self.room.make_mark()
        self.tail = 0
        for _ in range(segments):
            self.add_segment()
        if adopted:
            for part in self.parts.values():
                self.room.adopt(part, iter([self.rows_of(part)]))
        self.run()

    def add_segment(self) -> None:
        path = DIRECTORY / f"{self.tail + 1}.segment"
        self.files.open(path, create=True).close()
        segment = Segment(path, self.tail + 1, 0, 1 << 20)
        self.room.list_segments((*self.room.listed.segments, segment), np.append(self.room.live, 0))
        for place in range(5):
            part = self.parts[1 + self.tail % 2]
            owner = (part.number, part.tail + 1)
            segment.add(64 + place * ENTRY_BYTES, KIND, ROWS, ENTRY_BYTES, 0, owner)
            self.tail += 1
            part.add(segment.first, self.tail, 1, ROWS, ENTRY_BYTES)
            part.append_end = self.tail
            part.tail += 1
            self.room.live[-1] += ROWS
        self.room.listed.counts[-1] = segment.count

    def rows_of(self, part: Part, first: int = 1, last: int | None = None) -> Int64s:
        """Locators of the rows of some entries of a partition."""
        entries = np.arange(first, (part.tail if last is None else last) + 1, dtype=np.int64)
        return (entries[:, None] << 20 | np.arange(ROWS)).ravel()

    def run(self) -> None:
        chores, self.chores[:] = self.chores[:], []
        for chore in chores:
            chore()

    @property
    def firsts(self) -> list[int]:
        return [segment.first for segment in self.room.listed.segments]

    @property
    def on_disk(self) -> list[int]:
        names = self.files.names(DIRECTORY)
        return sorted(int(name.partition(".")[0]) for name in names if name.endswith(".segment"))

    @property
    def stored_floor(self) -> int:
        mark = read_mark(self.files, DIRECTORY, 9, 3, FLOOR_NAME).mark
        return 0 if mark is None else mark.position


@pytest.fixture
def log() -> Log:
    return Log(4)


def test_a_segment_goes_when_it_has_no_live_row_and_no_replay_needs_it(log: Log) -> None:
    room, (one, other) = log.room, log.parts.values()
    room.free(one, log.rows_of(one, 1, 3))
    room.free(other, log.rows_of(other, 1, 2))
    assert room.live.tolist() == [0, 50, 50, 50]
    assert log.firsts == [1, 6, 11, 16], "replays need it"
    room.replayed(one, one.tail)
    assert log.firsts == [1, 6, 11, 16], "the other one's need it, too"
    room.replayed(other, other.tail - 1)
    assert log.firsts == [6, 11, 16]
    assert (log.on_disk, log.stored_floor) == ([1, 6, 11, 16], 0)
    log.run()
    assert (log.on_disk, log.stored_floor) == ([6, 11, 16], log.tail - 1)


def test_no_segment_is_deleted_before_the_floor_is_stored(log: Log) -> None:
    room, (one, other) = log.room, log.parts.values()
    for part in (one, other):
        room.free(part, log.rows_of(part))
        room.replayed(part, part.tail)
    assert log.firsts == [16]
    log.files.fail("sync")
    with pytest.raises(OSError, match=r".+"):
        log.run()
    assert log.on_disk == [1, 6, 11, 16]


def test_what_a_partition_has_that_was_not_read_is_kept() -> None:
    log = Log(3, adopted=False)
    room, (one, other) = log.room, log.parts.values()
    room.adopt(one, iter(()))
    room.replayed(one, one.tail)
    room.replayed(other, other.tail)
    assert log.firsts == [1, 6, 11]
    assert room.live.tolist() == [20, 30, 20]
    room.forget([log.parts.pop(other.number)])
    assert log.firsts == [11]


def test_the_stored_floor_counts_when_a_log_is_opened(log: Log) -> None:
    log.room.store_floor(12)
    log.room.store_floor(5)  # it never goes down
    again = LogRoom(log.files, DIRECTORY, 9, 3, {}, log.chores.append)
    assert (again.floor, again.notes) == (12, [])
    of_another = LogRoom(log.files, DIRECTORY, 8, 3, {}, log.chores.append)
    assert of_another.floor == 0
    assert "is not what was written" in of_another.notes[0]


def test_those_are_asked_because_of_whom_an_empty_or_sparse_segment_stays(log: Log) -> None:
    room, (one, other) = log.room, log.parts.values()
    assert room.settle() == []
    for part in (one, other):
        room.free(part, log.rows_of(part, 1, 2))
    room.free(one, log.rows_of(one, 3, 3))
    room.replayed(one, one.tail)
    assert room.is_held_by(other)
    assert not room.is_held_by(one)
    assert room.settle() == [other]
    assert (one.is_asked, other.is_asked) == (False, True)
    # Now the second one is mostly dead: entries 6 to 10 are the other one's 3 to 5, one's 4 and 5.
    room.replayed(other, other.tail)
    room.free(other, log.rows_of(other, 3, 5))
    room.free(one, log.rows_of(one, 4, 4))
    assert room.sparse() == [(6, ROWS)]
    other.is_asked = False
    assert one in room.settle()
    assert one.is_asked


def test_a_segment_is_sparse_when_its_large_rows_went__few_as_they_were(log: Log) -> None:
    room, (one, other) = log.room, log.parts.values()
    for part in (one, other):
        room.replayed(part, part.tail)
        part.is_asked = False
    room.free(one, log.rows_of(one, 4, 4))
    assert room.sparse() == []
    room.shed(np.array([6, 7, 1 << 40]), np.array([2 * ENTRY_BYTES, 2 * ENTRY_BYTES, 0]))
    assert room.sparse() == [(6, 4 * ROWS)]
    room.replayed(one, one.tail)
    assert one.is_asked


def test_rows_that_are_freed_twice_are_our_bug(log: Log) -> None:
    one = log.parts[1]
    log.room.free(one, log.rows_of(one, 1, 3))  # all that it has in the first segment
    with pytest.raises(InternalError, match="not live"):
        log.room.free(one, log.rows_of(one, 1, 1))


# --- what is to go whatever is live in it --------------------------------------------------------


def test_a_pressed_segment_goes_when_its_rows_and_replays_are_elsewhere() -> None:
    log = Log(3)
    one, two = log.parts.values()
    assert [s.first for s in log.room.segments_with(np.array([0, 2, 6, 99]))] == [1, 6]
    is_gone, asked = log.room.press([1])
    assert (is_gone, asked) == (False, [one, two])
    assert (1, 5 * ROWS) in log.room.sparse()
    log.room.free(one, log.rows_of(one, 1, 3))
    log.room.free(two, log.rows_of(two, 1, 2))
    assert not log.room.has_rows_pressed(one)
    assert log.room.replays_pressed(one)
    assert not log.room.replays_pressed(one, kept=3), "it stays for a backup"
    log.room.replayed(one, 3)
    assert log.room.press([1]) == (False, [two])
    log.room.replayed(two, 2)
    assert log.room.press([1])[0] is False  # its file is there until the chore has run
    log.run()
    assert log.room.press([1]) == (True, [])
    assert log.firsts == [6, 11]
    assert log.on_disk == [6, 11]
    assert not log.room.pressed


def test_who_appended_last_closes_a_pressed_active_segment() -> None:
    log = Log(1)
    one, two = log.parts.values()
    log.room.free(one, log.rows_of(one))
    log.room.free(two, log.rows_of(two))
    log.room.replayed(one, one.tail)
    log.room.replayed(two, two.tail)
    assert log.room.press([1], urgent=False) == (False, [one])
    assert not log.room.replays_pressed(one, urgent=True)
    log.add_segment()
    log.room.replayed(one, one.tail)
    log.room.replayed(two, two.tail)
    log.room.press([1])
    log.run()
    assert log.firsts == [6]


def test_what_was_cut_off_as_torn_goes_with_it() -> None:
    log = Log(2)
    log.files.open(DIRECTORY / "00001.00000000000000000009.cut", create=True).close()
    assert log.room.press([99])[0]
    assert [name for name in log.files.names(DIRECTORY) if name.endswith(".cut")] == []


def test_rows_are_stale_when_they_have_been_dead_for_so_long__or_were_found_dead() -> None:
    log = Log(3)
    one = log.parts[1]
    assert log.room.stale(1_000, 100) == ([], [])
    log.room.free(one, log.rows_of(one, 1, 1))
    assert log.room.stale(1_000, 100) == ([], [])
    assert log.room.stale(1_099, 100) == ([], [])
    assert log.room.stale(1_100, 100) == ([1], [])
    log.room.found(log.room.listed.segments, log.room.live)
    log.room.free(one, log.rows_of(one, 4, 4))
    assert log.room.stale(1_100, 100) == ([1, 6], [])


def test_partitions_that_were_not_read_are_to_be_asked() -> None:
    log = Log(2, adopted=False)
    log.room.found(log.room.listed.segments, log.room.live)
    assert log.room.stale(1_000, 100) == ([], list(log.parts.values()))


def test_what_an_archive_wants_stays__until_it_has_it_or_an_erasure_waits(log: Log) -> None:
    room, reached = log.room, [3]
    room.kept_behind = lambda: reached[0]
    gone = [log.parts.pop(1), log.parts.pop(2)]
    room.forget(gone)
    assert log.firsts == [1, 6, 11, 16]
    reached[0] = 9
    room.let_archived_go()
    assert log.firsts == [6, 11, 16]
    room.press([6])
    assert log.firsts == [16], "an erasure waits for nobody"
    room.let_archived_go()
    assert log.firsts == [16]


def test_whoever_archives_nothing_keeps_nothing(log: Log) -> None:
    log.room.forget([log.parts.pop(1), log.parts.pop(2)])
    assert log.firsts == [16]
