"""A file system that fails on purpose, and a power cut for it: what journals are tested against.

`FaultyFileSystem` stands between a SegmentStore and its files. It counts what is asked of it and
fails the calls that a test names; it remembers everything that was not synced, and `power_cut`
takes a random part of that away, sector by sector, as a disk does.

Room: testing; shipped, so that whoever writes a backend can use it.
Holds: what was synced survives a power cut; what was not survives in part, in any order within a
file; creations, renames and deletions that were not synced are lost from the last one backwards.
See: journal/segments/files.py; tests/crash/test_segment_journal.py.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dejaqueue.journal.format import Piece
from dejaqueue.journal.segments.files import FileSystem, OpenFile, read_file

SECTOR_BYTES = 512


@dataclass
class _Unsynced:
    """Something done that is not durable yet.

    Attributes:
        scope: the file whose sync, or directory whose sync, makes it durable.
        undo: takes it back; a write is taken back sector by sector.
        write: offset and bytes of before, for a write.
        renamed: old and new path, for a rename.
    """

    scope: Path
    undo: Callable[[], None] | None = None
    write: tuple[int, bytes] | None = None
    renamed: tuple[Path, Path] | None = None


class FaultyFile(OpenFile):
    """A file whose calls may fail.

    Attributes:
        path: that it was opened by.
        path_now: that it has now; its name may change while it is open.
    """

    def __init__(self, files: FaultyFileSystem, inner: OpenFile) -> None:
        self._files, self._inner = files, inner
        self.path = self.path_now = inner.path

    def write(self, pieces: Sequence[Piece], offset: int) -> None:
        """Write; a planned failure writes the first half of the bytes, as a full disk may."""
        content = b"".join(pieces)
        try:
            self._files.count("write", self.path)
        except OSError:
            self._write(content[: len(content) // 2], offset)
            raise
        self._write(content, offset)

    def _write(self, content: bytes, offset: int) -> None:
        end = min(offset + len(content), self._inner.byte_count())
        before = bytes(memoryview(self._inner.map(end))[offset:end]) if end > offset else b""
        self._files.unsynced.append(_Unsynced(self.path_now, write=(offset, before)))
        self._inner.write([content], offset)

    def sync(self) -> None:
        """Make what was written durable, or fail and leave it in doubt."""
        self._files.count("sync", self.path)
        self._inner.sync()
        self._files.made_durable(self.path_now)

    def allocate(self, byte_count: int) -> None:
        """Give the file its size."""
        self._files.count("allocate", self.path)
        self._inner.allocate(byte_count)

    def truncate(self, byte_count: int) -> None:
        """Make the file shorter."""
        self._files.count("truncate", self.path)
        self._inner.truncate(byte_count)

    def byte_count(self) -> int:
        """Size of the file."""
        return self._inner.byte_count()

    def map(self, byte_count: int) -> mmap.mmap:
        """The file as memory."""
        self._files.count("map", self.path)
        return self._inner.map(byte_count)

    def close(self) -> None:
        """Close the file."""
        self._inner.close()


class FaultyFileSystem(FileSystem):
    """Files of another file system, with failures.

    Attributes:
        calls: how often each operation was asked for: write, sync, allocate, truncate, map, open,
            rename, unlink, sync_directory.
        free: what `free_bytes` says, None = the truth.
    """

    background = False

    def __init__(self, inner: FileSystem, *, spares: bool = False) -> None:
        self.inner = inner
        self.spares = spares
        self.calls: Counter[str] = Counter()
        self.free: int | None = None
        self.unsynced: list[_Unsynced] = []
        self._planned: dict[tuple[str, int], int] = {}
        self._always: dict[str, int] = {}
        self._files: weakref.WeakSet[FaultyFile] = weakref.WeakSet()

    def fail(self, operation: str, *, after: int = 0, number: int = errno.EIO) -> None:
        """Fail one call: the next one of the operation, or the one after so many."""
        self._planned[operation, self.calls[operation] + after + 1] = number

    def fail_always(self, operation: str, number: int | None) -> None:
        """Fail every call of an operation from now on; None ends it."""
        self._always.pop(operation, None)
        if number is not None:
            self._always[operation] = number

    def count(self, operation: str, path: Path) -> None:
        """Note a call; raise OSError if it is to fail."""
        self.calls[operation] += 1
        planned = self._planned.pop((operation, self.calls[operation]), None)
        number = self._always.get(operation, planned)
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))

    def made_durable(self, scope: Path) -> None:
        """Forget what need not be taken back any more."""
        text = str(scope)  # compared as text: a simulation does it very often
        self.unsynced = [one for one in self.unsynced if str(one.scope) != text]

    def open(self, path: Path, *, create: bool = False) -> OpenFile:
        """Open a file."""
        self.count("open", path)
        new = create and not self._exists(path)
        file = FaultyFile(self, self.inner.open(path, create=create))
        self._files.add(file)
        if new:
            undo = _Unsynced(path.parent, undo=lambda: self.inner.unlink(path))
            self.unsynced.append(undo)
        return file

    def make_private(self, path: Path) -> None:
        """Make an empty file that no other user can read."""
        self.count("open", path)
        self.inner.make_private(path)

    def names(self, directory: Path) -> list[str]:
        """Names in a directory."""
        return self.inner.names(directory)

    def make_directories(self, directories: Iterable[Path]) -> None:
        """Create directories."""
        for directory in directories:
            self.make_directory(directory)

    def make_directory(self, directory: Path) -> None:
        """Create a directory."""
        self.inner.make_directory(directory)

    def sync_directory(self, directory: Path) -> None:
        """Make names durable."""
        self.count("sync_directory", directory)
        self.inner.sync_directory(directory)
        self.made_durable(directory)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file."""
        self.count("rename", old)
        replaced = self._content(new)

        def undo() -> None:
            self.inner.rename(new, old)
            if replaced is not None:
                self._store(new, replaced)

        self.inner.rename(old, new)
        for file in self._files:
            if file.path_now == new:  # it has no name any more
                file.path_now = new.with_name(f"{new.name}.{id(file)}.gone")
            elif file.path_now == old:
                file.path_now = new
        for one in self.unsynced:
            if one.scope == old:
                one.scope = new
        self.unsynced.append(_Unsynced(new.parent, undo=undo, renamed=(old, new)))

    def unlink(self, path: Path) -> None:
        """Delete a file."""
        self.count("unlink", path)
        content = self._content(path) or b""
        self.inner.unlink(path)
        self.unsynced = [one for one in self.unsynced if one.scope != path]
        self.unsynced.append(_Unsynced(path.parent, undo=lambda: self._store(path, content)))

    def remove_tree(self, directory: Path) -> None:
        """Delete a directory."""
        self.inner.remove_tree(directory)

    def taken_bytes(self, directory: Path) -> int:
        """Bytes of the files in a directory."""
        return self.inner.taken_bytes(directory)

    def free_bytes(self, directory: Path) -> int:
        """Room left."""
        return self.inner.free_bytes(directory) if self.free is None else self.free

    def _content(self, path: Path) -> bytes | None:
        return bytes(read_file(self.inner, path)) if self._exists(path) else None

    def _exists(self, path: Path) -> bool:
        try:
            self.inner.open(path).close()
        except FileNotFoundError:
            return False
        return True

    def _store(self, path: Path, content: bytes) -> None:
        file = self.inner.open(path, create=True)
        file.allocate(len(content))
        file.write([content], 0)
        file.close()

    def power_cut(self, random: np.random.Generator, survival: float = 0.5) -> None:
        """Lose what was not synced: each sector with its own luck, names from the last backwards.

        Args:
            survival: share of unsynced sectors that reached the disk.
        """
        lost, self.unsynced = self.unsynced, []
        names = [place for place, one in enumerate(lost) if one.undo is not None]
        kept_names = int(random.integers(0, len(names) + 1)) if names else 0
        first_lost = names[kept_names] if kept_names < len(names) else len(lost)
        now: dict[Path, Path] = {}
        for place in range(len(lost) - 1, -1, -1):
            one = lost[place]
            if one.write is not None:
                self._lose_sectors(now.get(one.scope, one.scope), *one.write, random, survival)
            elif place >= first_lost and one.undo is not None:
                one.undo()
                if one.renamed is not None:
                    old, new = one.renamed
                    now[new] = old

    def _lose_sectors(
        self, path: Path, offset: int, before: bytes, random: np.random.Generator, survival: float
    ) -> None:
        if not self._exists(path):
            return
        file = self.inner.open(path)
        start = offset
        while start < offset + len(before):
            end = min(start - start % SECTOR_BYTES + SECTOR_BYTES, offset + len(before))
            if random.random() >= survival:
                file.write([before[start - offset : end - offset]], start)
            start = end
        file.close()
