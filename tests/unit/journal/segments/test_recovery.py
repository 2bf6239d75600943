"""Covers: what opening reads and writes; unfinished seals.

Not covered: crashes and damage (tests/crash/test_segment_journal.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.proof import END_BYTES
from dejaqueue.journal.segments.recovery import recover, segment_name
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.journal_conformance import fill, read_rows


def store_on(files: FaultyFileSystem) -> MemoryStore:
    return MemoryStore(file_system=files, segment_bytes=1 << 13)


def test_a_new_log_has_no_segments() -> None:
    files = MemoryFileSystem()
    assert recover(files, Path("/nowhere"), 1, 0, 0).segments == []


def test_names_sort_by_position() -> None:
    names = [segment_name(first) for first in (1, 9, 10, 12_345, 1 << 43)]
    assert names == sorted(names)


def test_old_segments_are_not_read_when_two_snapshots_cover_them() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    store = store_on(files)
    journal = store.open("topic", 0)
    fill(journal, np.random.default_rng(1), 200)
    for position in (journal.tail - 1, journal.tail):
        journal.put_snapshot(position, "{}", [])
        journal.truncate(position)
    journal.close()
    journal = store.open("topic", 0)
    mapped = [place for place, loaded in enumerate(journal.log.listed.loaded) if loaded]
    assert mapped == [len(journal.log.listed.segments) - 1]


def test_a_segment_whose_seal_was_lost_is_walked_and_sealed_again() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    files.fail_always("truncate", 5)  # no seal succeeds
    store = store_on(files)
    journal = store.open("topic", 0)
    written = fill(journal, np.random.default_rng(2), 100)
    assert journal.log.chore_failure is not None
    full_bytes = journal.byte_count()
    journal.close()
    files.fail_always("truncate", None)
    journal = store.open("topic", 0)
    assert journal.byte_count() <= full_bytes
    truncated = files.calls["truncate"]
    assert read_rows(journal, list(written)) == list(written.values())
    journal.close()
    assert store.open("topic", 0).tail == 100
    assert files.calls["truncate"] == truncated, "sealed again, though it was sealed"


def test_only_the_last_append_is_written_again() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    store = store_on(files)
    journal = store.open("topic", 0)
    fill(journal, np.random.default_rng(3), 10)
    segment = journal.log.listed.segments[-1]
    last_at = int(segment.offsets()[segment.count - 1]) << 3
    journal.close()
    seen = []
    files.unsynced.clear()
    files.fail("sync", after=0)  # the rewriting stays in the list
    try:
        store.open("topic", 0)
    except Exception as failure:  # noqa: BLE001  only to stop in the middle
        seen = [one.write for one in files.unsynced if one.write is not None]
        assert "cannot be opened" in str(failure)
    assert len(seen) == 1
    assert seen[0][0] <= last_at
    assert seen[0][0] + len(seen[0][1]) == segment.used + END_BYTES
