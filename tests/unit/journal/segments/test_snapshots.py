"""Covers: the files of snapshots: what is kept, what is deleted, sealed texts.

Not covered: crashes and rot (tests/crash/test_segment_journal.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.journal.interface import SnapshotFile
from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments.snapshots import SnapshotFiles
from dejaqueue.testing.faulty_journal import FaultyFileSystem

ROOT = Path("/topics/shelf")


def test_the_newest_two_are_kept_with_their_parts() -> None:
    files = MemoryFileSystem()
    shelf = SnapshotFiles(files, ROOT)
    assert (shelf.position, shelf.kept_position) == (0, 0)
    for position in (3, 7, 9):
        parts = [SnapshotFile(f"own-{position}", b"x"), SnapshotFile("shared", b"y")]
        shelf.put(position, "{}", parts, 10 * position)
    assert (shelf.position, shelf.kept_position) == (9, 7)
    assert files.names(ROOT / "parts") == ["own-7", "own-9", "shared"]
    assert len([name for name in files.names(ROOT) if name.endswith(".manifest")]) == 2
    again = SnapshotFiles(files, ROOT)
    assert (again.position, again.kept_position, again.log_position) == (9, 7, 90)
    assert bytes(again.read("shared")) == b"y"


def test_a_known_part_is_stored_once() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    shelf = SnapshotFiles(files, ROOT)
    shelf.put(1, "{}", [SnapshotFile("large", bytes(1000))], 1)
    writes = files.calls["write"]
    shelf.put(2, "{}", [SnapshotFile("large", bytes(1000))], 1)
    assert files.calls["write"] == writes + 1, "more than the manifest was written"


def test_that_there_were_snapshots_is_noted_beside_the_directory() -> None:
    files = MemoryFileSystem()
    assert not SnapshotFiles(files, ROOT).is_lost
    SnapshotFiles(files, ROOT).put(1, "{}", [], 1)
    assert not SnapshotFiles(files, ROOT).is_lost
    files.remove_tree(ROOT)
    files.make_directory(ROOT.parent)
    assert SnapshotFiles(files, ROOT).is_lost


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x" * 201])
def test_names_that_leave_the_directory_are_refused(name: str) -> None:
    with pytest.raises(BadRequest, match=r"snapshot\.file"):
        SnapshotFiles(MemoryFileSystem(), ROOT).put(1, "{}", [SnapshotFile(name, b"1")], 1)


def test_a_part_that_is_not_deleted_is_told() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    shelf = SnapshotFiles(files, ROOT)
    for position in (1, 2):
        shelf.put(position, "{}", [SnapshotFile(f"p{position}", b"1")], 1)
    files.fail_always("unlink", 5)
    shelf.put(3, "{}", [], 1)
    assert shelf.position == 3
    assert any("p1 was not deleted" in text for text in shelf.damaged)
