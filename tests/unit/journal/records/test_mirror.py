"""Covers: the copy may lack anything, and what it has is what the server has."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.format import Piece
from dejaqueue.journal.interface import Entry
from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.records.mirror import CacheFiles, Mirror, covers
from dejaqueue.journal.records.reading import EntryFacts
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.journal_conformance import make_enqueue, read_rows, rows_of

ROOT = Path("/copy")
Written = dict[int, tuple[Entry, list[Piece], EntryFacts, int]]


def made(files: FileSystem, root: Path = ROOT, byte_count_max: int | None = None) -> Mirror:
    return Mirror(
        files, root, topic=1, partition=0, segment_bytes=1 << 16, byte_count_max=byte_count_max
    )


def entries(count: int, rows: int = 20) -> Written:
    """Entries as they are appended, by position; the last is the checksum before."""
    random = np.random.default_rng(5)
    chain, found = 0, {}
    for position in range(1, count + 1):
        entry = make_enqueue(random, rows)
        one = entry_format.encode(entry, position, 1, chain, position - 1)
        facts = EntryFacts(entry.kind, entry.rows, one.byte_count, one.checksum)
        found[position] = (entry, one.pieces, facts, chain)
        chain = one.checksum
    return found


def add(mirror: Mirror, written: Written, positions: range) -> None:
    for position in positions:
        _, pieces, facts, chain = written[position]
        mirror.add(position, chain, pieces, [facts])


def here(mirror: Mirror, count: int) -> list[int]:
    positions = np.arange(1, count + 1, dtype=np.int64)
    found: list[int] = positions[covers(mirror.listed, positions)].tolist()
    return found


def check(mirror: Mirror, written: Written, positions: list[int]) -> None:
    class Reader:
        def read(self, locators: np.ndarray) -> object:
            return mirror.gather(
                mirror.listed, locators, ("key", "group", "tags", "headers", "payload")
            )

    for position in positions:
        rows = rows_of(written[position][0], position)
        assert read_rows(Reader(), list(rows)) == list(rows.values())  # type: ignore[arg-type]


def test_gaps_are_fine_and_it_stays_within_its_bound() -> None:
    written = entries(400)
    mirror = made(MemoryFileSystem(), byte_count_max=256 << 10)
    add(mirror, written, range(1, 11))
    add(mirror, written, range(50, 61))
    assert here(mirror, 60) == [*range(1, 11), *range(50, 61)]
    check(mirror, written, here(mirror, 60))
    add(mirror, written, range(40, 55))  # known, or in a gap: nothing happens
    assert here(mirror, 60) == [*range(1, 11), *range(50, 61)]
    for start in range(61, 400, 30):
        add(mirror, written, range(start, min(start + 29, 401)))
    assert mirror.byte_count() <= 256 << 10
    kept = here(mirror, 400)
    assert kept[0] > 61
    assert kept[-1] == 400
    check(mirror, written, kept[-30:])


def test_a_disk_without_room_is_no_failure() -> None:
    written = entries(60)
    files = FaultyFileSystem(MemoryFileSystem())
    mirror = made(files)
    add(mirror, written, range(1, 6))
    files.fail("write", number=errno.ENOSPC)
    add(mirror, written, range(6, 7))
    add(mirror, written, range(7, 10))
    assert here(mirror, 60) == [1, 2, 3, 4, 5, 7, 8, 9]
    check(mirror, written, here(mirror, 60))


@pytest.mark.parametrize("is_closed", [True, False])
def test_it_is_found_again_and_damage_in_it_is_seen(tmp_path: Path, is_closed: bool) -> None:
    written = entries(40)
    mirror = made(CacheFiles(), tmp_path)
    add(mirror, written, range(1, 41))
    if is_closed:
        mirror.close()
    again = made(CacheFiles(), tmp_path)
    assert here(again, 40) == list(range(1, 41))
    check(again, written, list(range(1, 41)))
    again.close()
    files = sorted(tmp_path.glob("*.segment"))
    path = files[0]
    first_of_second = int(files[1].stem)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = made(CacheFiles(), tmp_path)
    positions = np.arange(1, 41, dtype=np.int64)
    if len(here(again, 40)) == 40:  # sealed: verified when it is read
        listed = again.listed
        with pytest.raises(JournalDamaged):
            again.gather(listed, positions << 20, ("payload",))
        again.discard_damaged(listed, positions)
        assert here(again, 40) == list(range(first_of_second, 41))
    check(again, written, here(again, 40))


def test_what_is_of_another_log_goes_when_the_server_has_something_else() -> None:
    written, others = entries(30), entries(30, rows=7)
    files = MemoryFileSystem()
    mirror = made(files)
    add(mirror, others, range(1, 31))
    mirror = made(files)
    add(mirror, written, range(1, 5))
    assert here(mirror, 30) == [1, 2, 3, 4]
    check(mirror, written, [1, 2, 3, 4])


def test_no_file_has_an_entry_that_is_erased__and_what_comes_is_kept(tmp_path: Path) -> None:
    written = entries(30)
    mirror = made(CacheFiles(), tmp_path)
    add(mirror, written, range(1, 21))
    [file] = tmp_path.iterdir()  # being written to
    mirror.erase_before(1)
    assert [file] == list(tmp_path.iterdir())
    mirror.erase_before(11)
    assert list(tmp_path.iterdir()) == []
    assert here(mirror, 30) == []
    add(mirror, written, range(21, 31))
    check(mirror, written, list(range(21, 31)))
    mirror.close()


def test_a_copy_that_cannot_be_deleted_is_told() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    mirror = made(files)
    add(mirror, entries(5), range(1, 6))
    files.fail_always("unlink", errno.EIO)
    with pytest.raises(Unavailable):
        mirror.erase_before(6)
    files.fail_always("unlink", None)
    mirror.erase_before(6)
    assert files.names(ROOT) == []
