"""Covers: slices of a log, and that the ends of all logs at the begin of a turn are of one moment.

Not covered: who follows (tests/unit/broker/backup/test_archiver.py).
"""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.backup.log_pieces import check_slice, owned_entries
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.log_turn import read_slice
from dejaqueue.testing.journal_conformance import fill
from tests.crash.disk_copies import copied


def store_on(files: MemoryFileSystem) -> MemoryStore:
    return MemoryStore(file_system=files, segment_bytes=1 << 13, shards=1)


def test_slices_have_all_entries_of_a_log__over_segments_also_after_a_restart() -> None:
    random, disk = np.random.default_rng(1), MemoryFileSystem()
    store = store_on(disk)
    journals = [store.open("t", number) for number in range(3)]
    for _ in range(100):
        which = int(random.integers(3))
        fill(journals[which], random, 1 + which, rows=5)
    again = store_on(copied(disk))
    for one in (store, again):
        one.open("t", 0) if one is again else None
        (log,) = one.open_logs().values()
        assert len(log.listed.segments) > 3
        for byte_count_max in (1, 1_000, 1 << 20):
            at, found = 0, []
            while at < log.tail:
                piece = read_slice("0", log, at, log.tail, byte_count_max)
                assert piece.after == at
                check_slice(piece, "test")
                found += [(number, local) for number, local, _ in owned_entries(piece, "test")]
                count = piece.last - piece.after
                assert count == 1 or len(piece.content) <= byte_count_max
                at = piece.last
            for number in {number for number, _ in found}:
                locals_of = [local for of, local in found if of == number]
                assert locals_of == list(range(1, len(locals_of) + 1))
            assert len(found) == log.tail == sum(journal.tail for journal in journals)
    assert read_slice("0", log, 3, 5, 1 << 20).last == 5


def test_what_was_given_back__is_refused() -> None:
    store = store_on(MemoryFileSystem())
    journal = store.open("t", 0)
    journal.adopt(iter(()))
    fill(journal, np.random.default_rng(1), 1, rows=5)
    (log,) = store.open_logs().values()
    first = log.listed.segments[0]
    while log.listed.segments[0] is first:
        fill(journal, np.random.default_rng(1), 1, rows=5)
        for position in (journal.tail - 1, journal.tail):
            journal.put_snapshot(position, "{}", [])
            journal.truncate(position)
    with pytest.raises(JournalDamaged, match="entry 1 was given back"):
        read_slice("0", log, 0, log.tail, 1 << 20)


def test_a_turn_has_what_was_published_before_it__and_nothing_behind() -> None:
    store = store_on(MemoryFileSystem())
    random, rung = np.random.default_rng(1), []
    journal = store.open("t", 0)
    fill(journal, random, 1, rows=5)
    store.follow(lambda: rung.append(1))
    (log,) = store.turn.logs.values()
    assert (log.end_of_turn(), rung) == (log.tail, [])
    fill(journal, random, 1, rows=5)
    before, tail = rung.copy(), log.tail
    store.turn.number += 1
    assert (log.end_of_turn(), before) == (tail, [1])
    for _ in range(3):
        fill(journal, random, 1, rows=5)
        assert log.end_of_turn() == tail < log.tail
    assert rung == [1, 1], "once in a turn"


def test_logs_that_are_opened_later_are_known__closed_ones_too() -> None:
    store = store_on(MemoryFileSystem())
    store.follow(lambda: None)
    journal = store.open("t", 0)
    fill(journal, np.random.default_rng(1), 1, rows=5)
    journal.close()
    assert store.open_logs() == {}
    (log,) = store.turn.logs.values()
    assert log.has_failed
    assert log.end_of_turn() == 0
    reopened = store.open("t", 0)
    again = store.turn.logs["0"]
    assert again is not log
    fill(reopened, np.random.default_rng(1), 1, rows=5)
    assert again.end_of_turn() == 0, "it was opened again in the same turn"
    store.turn.number += 1
    assert again.end_of_turn() == again.tail > log.tail
    assert read_slice("0", log, 0, log.end_of_turn(), 1 << 20).last == log.tail
