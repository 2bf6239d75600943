"""Covers: writing, replacing and mapping files of the operating system.

Not covered: what memory and disk have in common (tests/unit/journal/test_memory.py).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dejaqueue.journal.segments.files import FileSystem, read_file, replace_file


def test_many_pieces_and_short_writes_arrive_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [bytes([place % 256]) * (place % 7) for place in range(3_000)]
    whole = os.pwritev

    def short(fd: int, chunk: list[bytes], offset: int) -> int:
        content = b"".join(chunk)
        return whole(fd, [content[: max(1, len(content) // 2)]], offset)

    for write in (whole, short):
        monkeypatch.setattr(os, "pwritev", write)
        file = FileSystem().open(tmp_path / "file", create=True)
        file.allocate(20_000)
        file.write(pieces, 5)
        file.close()
        assert (tmp_path / "file").read_bytes().rstrip(b"\0")[5:] == b"".join(pieces).rstrip(b"\0")


def test_a_failed_replacement_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = FileSystem(), tmp_path / "file"
    replace_file(files, path, b"old")

    def full(fd: int, chunk: list[bytes], offset: int) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="full"):
        replace_file(files, path, b"new")
    assert bytes(read_file(files, path)) == b"old"


def test_an_empty_file_is_read(tmp_path: Path) -> None:
    replace_file(FileSystem(), tmp_path / "empty", b"")
    assert bytes(read_file(FileSystem(), tmp_path / "empty")) == b""


def test_closing_twice_is_fine(tmp_path: Path) -> None:
    file = FileSystem().open(tmp_path / "file", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match="descriptor"):
        file.byte_count()


def test_several_directories_are_made_before_the_first_is_synced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = FileSystem()
    wanted = [tmp_path / name / "below" for name in ("a", "b")]
    synced: list[tuple[Path, bool]] = []

    def sync_directory(directory: Path) -> None:
        synced.append((directory, all(one.is_dir() for one in wanted)))

    monkeypatch.setattr(files, "sync_directory", sync_directory)
    files.make_directories(wanted)
    assert synced == [(tmp_path, True), (tmp_path / "a", True), (tmp_path / "b", True)]
    files.make_directories(wanted)
    assert len(synced) == 3
