"""Covers: partitions that share a log: what is one's own, what is appended together, who keeps
room, and who is asked for it.

Not covered: one partition alone (test_journal.py), crashes (tests/crash).
"""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.errors import Fenced, ResourceExhausted, Unavailable
from dejaqueue.journal.appending import append_together
from dejaqueue.journal.interface import Append
from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.journal_conformance import (
    Rows,
    fill,
    make_ack,
    make_enqueue,
    read_rows,
    rows_of,
)
from tests.crash.disk_copies import copied


def open_all(store: MemoryStore, count: int = 3) -> list[SegmentJournal]:
    return [store.open("t", number) for number in range(count)]


def store_on(
    files: FaultyFileSystem | MemoryFileSystem, segment_bytes: int = 1 << 13
) -> MemoryStore:
    return MemoryStore(file_system=files, segment_bytes=segment_bytes, shards=1)


def cover(journal: SegmentJournal) -> None:
    for position in (journal.tail - 1, journal.tail):
        journal.put_snapshot(position, "{}", [])
        journal.truncate(position)


def test_each_partition_has_its_own_positions_rows_and_tail__also_after_a_restart() -> None:
    random, disk = np.random.default_rng(1), MemoryFileSystem()
    store = store_on(disk)
    journals = open_all(store)
    written: list[Rows] = [{} for _ in journals]
    for _ in range(200):
        which = int(random.integers(3))
        written[which] |= fill(journals[which], random, 1 + which, rows=5)
    tails = [journal.tail for journal in journals]
    assert sum(tails) == journals[0].log.tail
    for one in (journals, open_all(store_on(copied(disk)))):
        for journal, tail, rows in zip(one, tails, written, strict=True):
            assert journal.tail == tail
            assert [at for at, _, _ in journal.scan(0)] == list(range(1, tail + 1))
            assert [at for at, _, _ in journal.scan(tail - 2)] == [tail - 1, tail]
            assert read_rows(journal, list(rows)) == list(rows.values())


def test_appends_together_take_one_sync__and_each_has_its_own_outcome() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    journals = open_all(store_on(files, 1 << 16), 20)
    journals[0].append([make_ack(1)], 0, 1)
    writes, syncs = files.calls["write"], files.calls["sync"]
    appends = [
        Append(one, [make_ack(2)] * 3, one.tail + (one is journals[5]), 1) for one in journals
    ]
    append_together(appends)
    assert (files.calls["write"], files.calls["sync"]) == (writes + 1, syncs + 1)
    assert isinstance(appends[5].error, Fenced)
    assert [one.tail for one in journals] == [4, 3, 3, 3, 3, 0, *[3] * 14]
    assert [one.error for place, one in enumerate(appends) if place != 5] == [None] * 19


def test_what_is_small_fits_where_all_together_do_not() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    small, large = open_all(store_on(files), 2)
    small.append([make_ack(1)], 0, 1)
    files.fail_always("allocate", errno.ENOSPC)
    bulk = make_enqueue(np.random.default_rng(2), 100, 1_000)
    appends = [Append(large, [bulk], 0, 1), Append(small, [make_ack(1)], 1, 1)]
    append_together(appends)
    assert isinstance(appends[0].error, ResourceExhausted)
    assert (appends[1].error, small.tail, large.tail) == (None, 2, 0)


def test_a_sync_that_fails_is_final_for_all_of_the_shard_and_for_no_other() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    store = MemoryStore(file_system=files, shards=2)
    one, other, neighbour = open_all(store)
    for journal in (one, other, neighbour):
        journal.append([make_ack(1)], 0, 1)
    files.fail("sync")
    with pytest.raises(Unavailable, match="failed"):
        one.append([make_ack(1)], 1, 1)
    with pytest.raises(Unavailable, match="failed"):
        neighbour.append([make_ack(1)], 1, 1)
    assert other.append([make_ack(1)], 1, 1) == 2
    one.close()
    with pytest.raises(Unavailable, match="failed") as raised:
        store.open("t", 0)
    assert raised.value.is_final


def test_rows_of_a_partition_that_nobody_has_read_are_live() -> None:
    disk = MemoryFileSystem()
    store = store_on(disk)
    busy, quiet = open_all(store, 2)
    kept = fill(quiet, np.random.default_rng(3), 20)
    fill(busy, np.random.default_rng(4), 100)
    store = store_on(disk := copied(disk))
    busy = store.open("t", 0)
    busy.adopt(iter(()))
    cover(busy)
    first = busy.log.listed.segments[0].first
    assert first == 1
    quiet = store.open("t", 1)
    assert read_rows(quiet, list(kept)) == list(kept.values())
    quiet.adopt(iter(()))
    cover(quiet)
    assert busy.log.listed.segments[0].first > first


def test_a_quiet_partition_is_asked_when_others_could_have_its_room() -> None:
    asked: list[tuple[str, int]] = []
    store = store_on(MemoryFileSystem())
    store.ask = asked.extend
    busy, quiet, done = open_all(store)
    for journal in (busy, quiet, done):
        journal.adopt(iter(()))
        journal.append([make_ack(1)], 0, 1)
    live = fill(quiet, np.random.default_rng(5), 3, rows=1)
    while len(busy.log.listed.segments) < 3:
        rows = fill(busy, np.random.default_rng(6), 5)
        busy.free(np.array(list(rows), dtype=np.int64))
        cover(busy)
    asked.clear()
    while len(busy.log.listed.segments) < 5:
        rows = fill(busy, np.random.default_rng(6), 5)
        busy.free(np.array(list(rows), dtype=np.int64))
        cover(busy)
    assert {("t", 1), ("t", 2)} <= set(asked)
    assert done.holds_room
    assert quiet.is_asked
    for journal in (quiet, done):
        journal.append([make_ack(1)] * 2, journal.tail, 1)
        cover(journal)
    assert not done.holds_room
    ranges = quiet.sparse()
    assert ranges is not None
    assert not quiet.is_asked
    assert all(ranges[0, 0] <= one >> 20 <= ranges[-1, 1] for one in live)


def test_a_tail_is_proved_by_whoever_appends_next__or_by_a_mark() -> None:
    first, second = open_all(store_on(MemoryFileSystem()), 2)
    first.append([make_ack(1)], 0, 1)
    assert not first.is_proved
    second.append([make_ack(1)], 0, 1)
    assert (first.is_proved, second.is_proved) == (True, False)
    second.prove()
    assert second.is_proved


def test_rows_freed_twice_take_nothing_from_a_neighbour() -> None:
    one, other = open_all(store_on(MemoryFileSystem()), 2)
    for journal in (one, other):
        journal.adopt(iter(()))
    entry = make_enqueue(np.random.default_rng(8), 5)
    for journal in (one, other):
        journal.append([entry], 0, 1)
    rows = np.array(list(rows_of(entry, 1)), dtype=np.int64)
    one.free(rows)
    with pytest.raises(Exception, match="not live"):
        one.free(rows)
    assert one.log.room.live.tolist() == [5]


def test_the_system_is_asked_for_room_once_between_two_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore(shards=1)
    first, second, _ = open_all(store)
    asked: list[Path] = []

    def free_bytes(directory: Path) -> int:
        asked.append(directory)
        return store._reserve_bytes + 100

    monkeypatch.setattr(first.log.files, "free_bytes", free_bytes)
    assert first.has_room(40)
    assert second.has_room(40)
    assert len(asked) == 1
    assert not second.has_room(200)  # asked again before it is refused
    assert second.has_room(100)
    assert len(asked) == 3
    first.append([make_ack(1)], 0, 1)
    assert first.has_room(40)
    assert len(asked) == 4
