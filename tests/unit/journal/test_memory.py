"""Covers: the file system in memory behaves as the one on disk where segments rely on it.

Not covered: the journal on it (tests/conformance/test_memory.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.files import FileSystem, read_file, replace_file, write_file


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    files = MemoryFileSystem() if request.param == "memory" else FileSystem()
    files.make_directory(tmp_path / "a" / "b")
    return files, tmp_path / "a" / "b"


def test_files_are_named_renamed_and_deleted(place: tuple[FileSystem, Path]) -> None:
    files, directory = place
    write_file(files, directory / "one", b"1")
    write_file(files, directory / "two", b"22")
    assert files.names(directory) == ["one", "two"]
    assert files.names(directory.parent) == ["b"]
    assert files.names(directory / "missing") == []
    replace_file(files, directory / "one", b"new")
    kept = read_file(files, directory / "one")
    files.rename(directory / "one", directory / "two")
    assert files.names(directory) == ["two"]
    files.unlink(directory / "two")
    assert bytes(kept) == b"new"
    with pytest.raises(FileNotFoundError):
        files.open(directory / "two")
    with pytest.raises(FileNotFoundError):
        files.open(directory / "missing" / "three", create=True)


def test_whole_directories_move_and_go(place: tuple[FileSystem, Path]) -> None:
    files, directory = place
    write_file(files, directory / "one", b"1")
    files.rename(directory.parent, directory.parent.with_name("z"))
    moved = directory.parent.with_name("z") / "b"
    assert bytes(read_file(files, moved / "one")) == b"1"
    files.remove_tree(moved.parent)
    assert files.names(moved) == []
    assert "z" not in files.names(moved.parent.parent)


def test_maps_show_what_is_written_later(place: tuple[FileSystem, Path]) -> None:
    files, directory = place
    file = files.open(directory / "one", create=True)
    file.allocate(4096)
    seen = memoryview(file.map(4096))
    file.write([b"abc", b"", memoryview(b"def")], 100)
    assert bytes(seen[98:108]) == b"\0\0abcdef\0\0"
    file.truncate(200)
    assert file.byte_count() == 200
    file.close()
    assert bytes(seen[100:106]) == b"abcdef"


def test_a_disk_in_memory_runs_full() -> None:
    files = MemoryFileSystem(1 << 20)
    store = MemoryStore(file_system=files, segment_bytes=1 << 16, reserve_bytes=1 << 18)
    journal = store.open("topic", 0)
    taken = files.taken_bytes(store.root)
    assert taken < 1_000
    assert journal.has_room((1 << 20) - (1 << 18) - taken)
    assert not journal.has_room((1 << 20) - (1 << 18) - taken + 1)
