"""Covers: ends of appends, sectors that a crash left out, marks. What recovery makes of them:
tests/crash/test_tail_damage.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments.proof import (
    END_BYTES,
    MARK_NAME,
    SECTOR_BYTES,
    AppendEnd,
    TailMark,
    find_end,
    lacks_sectors,
    read_mark,
    write_mark,
)

DIRECTORY = Path("memory:/topics/t/00000")


def test_an_end_is_found_by_what_it_says_of_its_append_only() -> None:
    end = AppendEnd(after=7, byte_count=64, chain_before=99)
    view = memoryview(bytes(8) + b"x" * 64 + end.encode() + bytes(40))
    assert AppendEnd.decode(view, 72) == end
    assert find_end(view, 8, 7, 99) == 72
    assert find_end(view, 8, 7, 98) is None
    assert find_end(view, 16, 7, 99) is None
    for at in range(72, 72 + END_BYTES):
        rotten = bytearray(view)
        rotten[at] ^= 1
        assert find_end(memoryview(rotten), 8, 7, 99) is None


@pytest.mark.parametrize("start", [64, 504, 1_000])
def test_a_sector_that_was_left_out_is_noticed__whatever_lay_there_before(start: int) -> None:
    random = np.random.default_rng(start)
    end = start + 3_000
    before = bytearray(SECTOR_BYTES * 10)
    before[start : start + END_BYTES] = AppendEnd(1, 8, 5).encode()
    whole = bytearray(before)
    written = bytearray(random.integers(1, 256, end - start, dtype=np.uint8))
    written[:4] = b"DQE1"
    whole[start:end] = written
    assert not lacks_sectors(memoryview(whole), start, end)
    for sector in range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
        part = slice(max(start, sector * SECTOR_BYTES), min(end, (sector + 1) * SECTOR_BYTES))
        torn = bytearray(whole)
        torn[part] = before[part]
        assert lacks_sectors(memoryview(torn), start, end), sector


def test_a_mark_is_for_its_own_partition_and_the_newest_copy_counts() -> None:
    files = MemoryFileSystem()
    files.make_directory(DIRECTORY)
    assert read_mark(files, DIRECTORY, 5, 1) == (None, "")
    for position in (3, 8):
        write_mark(files, DIRECTORY, TailMark(1, 5, position, 77))
    assert read_mark(files, DIRECTORY, 5, 1) == (TailMark(1, 5, 8, 77), "")
    mark, damaged = read_mark(files, DIRECTORY, 6, 1)
    assert mark is None
    assert damaged == f"{DIRECTORY / MARK_NAME}: a mark is not what was written"
    memory = files._contents[DIRECTORY / MARK_NAME].memory
    assert memory is not None
    memory[:64] = TailMark(1, 5, 3, 70).encode()  # the crash came between the two
    assert read_mark(files, DIRECTORY, 5, 1) == (TailMark(1, 5, 8, 77), "")
    memory[:] = bytes(len(memory))  # or before the first
    assert read_mark(files, DIRECTORY, 5, 1) == (None, "")
