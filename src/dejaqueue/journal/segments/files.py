"""The few things that segments ask of an operating system, behind one small object.

Room: journal. Everything that can fail by itself (a write, a sync, a rename) goes through here, so
that tests make it fail (testing/faulty_journal.py) and the memory journal does without a disk.
Holds: a file is allocated once, before it is written; a failed sync is never repeated here.
See: docs/internals/facts.md on fsync; duties 1, 8 and 9 of journal/interface.py.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from dejaqueue.directories import PRIVATE_DIRECTORY, PRIVATE_FILE
from dejaqueue.errors import DejaQError
from dejaqueue.journal.format import Piece

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors that pass once room is made; every other one is final (duty 8)."""

_IOV_MAX: Final = 1024


class OpenFile:
    """An open file: written at offsets, mapped for reading."""

    def __init__(self, path: Path, *, create: bool, mode: int = 0o640) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        self.path = path
        self._fd = os.open(path, flags, mode)

    def write(self, pieces: Sequence[Piece], offset: int) -> None:
        """Write pieces one after the other; a short write goes on where it stopped."""
        for start in range(0, len(pieces), _IOV_MAX):
            chunk = list(pieces[start : start + _IOV_MAX])
            while chunk:
                written = os.pwritev(self._fd, chunk, offset)
                offset += written
                chunk = _rest(chunk, written)

    def sync(self) -> None:
        """Make what was written durable."""
        os.fdatasync(self._fd)

    def allocate(self, byte_count: int) -> None:
        """Give the empty file its size and its blocks, so that later writes cannot lack room."""
        if byte_count:
            os.posix_fallocate(self._fd, 0, byte_count)

    def truncate(self, byte_count: int) -> None:
        """Give back what lies behind."""
        os.ftruncate(self._fd, byte_count)

    def byte_count(self) -> int:
        """Size of the file."""
        return os.fstat(self._fd).st_size

    def map(self, byte_count: int) -> mmap.mmap:
        """The first bytes of the file as memory, to read; what is written later shows in it."""
        return mmap.mmap(self._fd, byte_count, mmap.MAP_SHARED, mmap.PROT_READ)

    def close(self) -> None:
        """Close; maps stay valid. Twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _rest(chunk: list[Piece], written: int) -> list[Piece]:
    """The rest of a list of pieces after its first bytes."""
    for place, piece in enumerate(chunk):
        if written < len(piece):
            return [memoryview(piece)[written:], *chunk[place + 1 :]]
        written -= len(piece)
    return []


class FileSystem:
    """Files and directories of the operating system."""

    spares = True
    """Whether a file that was allocated and zeroed ahead makes later syncs faster."""
    background = True
    """Whether preparing and deleting files is worth a thread."""

    def open(self, path: Path, *, create: bool = False) -> OpenFile:
        """Open a file to read and write; `create` makes it empty."""
        return OpenFile(path, create=create)

    def make_private(self, path: Path) -> None:
        """Make an empty file, in place of one that is there, that no other user can read."""
        path.unlink(missing_ok=True)
        OpenFile(path, create=True, mode=PRIVATE_FILE).close()

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, sorted; none if it does not exist."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def make_directory(self, directory: Path) -> None:
        """Create a directory and those above it, durably, for the broker's own user alone."""
        self.make_directories([directory])

    def make_directories(self, directories: Iterable[Path]) -> None:
        """Create several, as `make_directory`: all before the first is synced, since one sync of a
        file system with a journal makes durable what was done before in all its directories, and
        those that follow find nothing to do."""
        changed: dict[Path, None] = {}
        for directory in directories:
            missing = []
            while not directory.exists():
                missing.append(directory)
                directory = directory.parent
            for path in reversed(missing):
                path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
                changed[path.parent] = None
        for directory in changed:
            self.sync_directory(directory)

    def sync_directory(self, directory: Path) -> None:
        """Make creations, renames and deletions in a directory durable."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_deletions(self, directory: Path) -> None:
        """Make deletions in a directory durable, also where files may be lost."""
        self.sync_directory(directory)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory a name, replacing a file that has it."""
        os.replace(old, new)

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        os.unlink(path)

    def remove_tree(self, directory: Path) -> None:
        """Delete a directory and everything in it."""
        shutil.rmtree(directory)

    def taken_bytes(self, directory: Path) -> int:
        """Bytes of the files in a directory, those below it left out; 0 if it does not exist."""
        try:
            with os.scandir(directory) as found:
                return sum(one.stat().st_size for one in found if one.is_file())
        except OSError:
            return 0

    def free_bytes(self, directory: Path) -> int:
        """Room left on the disk for us."""
        facts = os.statvfs(directory)
        return facts.f_bavail * facts.f_frsize


def read_file(files: FileSystem, path: Path) -> memoryview:
    """The content of a whole file, as a map."""
    file = files.open(path)
    try:
        byte_count = file.byte_count()
        return memoryview(file.map(byte_count))[:byte_count] if byte_count else memoryview(b"")
    finally:
        file.close()


def replace_file(files: FileSystem, path: Path, content: Piece, *, private: bool = False) -> None:
    """Store a file durably, whole or not at all; `private` = no other user can read it."""
    draft = path.with_name(path.name + ".draft")
    if private:
        files.make_private(draft)  # opened again, it keeps its mode
    write_file(files, draft, content)
    files.rename(draft, path)
    files.sync_directory(path.parent)


def write_file(files: FileSystem, path: Path, content: Piece) -> None:
    """Write a file and sync it; its name is durable once the directory is synced."""
    file = files.open(path, create=True)
    try:
        file.allocate(len(content))
        file.write([content], 0)
        file.sync()
    finally:
        file.close()


def is_there(files: FileSystem, path: Path) -> bool:
    """True if there is such a file."""
    try:
        files.open(path).close()
    except FileNotFoundError:
        return False
    return True


def bare(error: DejaQError) -> DejaQError:
    """An error without the frames that it came through. The append keeps it, and they keep the
    append and the segments of that moment: until the collector came by, deleted segments would
    take their room on a disk that is full."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    return error
