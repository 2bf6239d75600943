"""The memory journal: segments on files kept in memory; nothing outlives the process.

For tests and for queues that may be lost. The same entries, index and gather as on disk, so that
there is one implementation to trust; only the files differ.

Room: journal. Knows bytes.
Holds: closing and opening a journal of the same store gives back what was there.
See: segments/files.py for what a file system has to do.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from dejaqueue.journal.format import Piece
from dejaqueue.journal.segments.files import FileSystem, OpenFile
from dejaqueue.journal.segments.log import SEGMENT_BYTES
from dejaqueue.journal.segments.store import SHARDS, DirectoryLock, SegmentStore


class MemoryContent:
    """What is in a file: anonymous memory, which takes room only where it was written."""

    def __init__(self) -> None:
        self.memory: mmap.mmap | None = None
        self.byte_count = 0


class MemoryFile(OpenFile):
    """A file in memory."""

    def __init__(self, path: Path, content: MemoryContent) -> None:
        self.path = path
        self._content = content

    def write(self, pieces: Sequence[Piece], offset: int) -> None:
        """Write pieces one after the other; the file was allocated before."""
        memory = self._content.memory
        for piece in pieces:
            end = offset + len(piece)
            if memory is None or end > len(memory):
                if end > offset:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                continue
            memory[offset:end] = piece
            offset = end
        self._content.byte_count = max(self._content.byte_count, offset)

    def sync(self) -> None:
        """Nothing to do."""

    def allocate(self, byte_count: int) -> None:
        """Give the empty file its memory."""
        self._content.memory = mmap.mmap(-1, byte_count) if byte_count else None
        self._content.byte_count = byte_count

    def truncate(self, byte_count: int) -> None:
        """Make the file shorter; pages never written take no room anyhow."""
        self._content.byte_count = byte_count

    def byte_count(self) -> int:
        """Size of the file."""
        return self._content.byte_count

    def map(self, byte_count: int) -> mmap.mmap:
        """The memory itself."""
        memory = self._content.memory
        if memory is None or byte_count > len(memory):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return memory

    def close(self) -> None:
        """Nothing to do."""


class MemoryFileSystem(FileSystem):
    """Files and directories in a dictionary.

    Args:
        byte_count_max: size of the disk that it plays; None = no limit.
    """

    spares = False
    background = False

    def __init__(self, byte_count_max: int | None = None) -> None:
        self._contents: dict[Path, MemoryContent] = {}
        self._directories: set[Path] = set()
        self._guard = threading.RLock()
        self.byte_count_max = byte_count_max

    def open(self, path: Path, *, create: bool = False) -> OpenFile:
        """Open a file; `create` makes it empty."""
        with self._guard:
            if create:
                if path.parent not in self._directories:
                    raise FileNotFoundError(errno.ENOENT, "no such directory", str(path.parent))
                self._contents[path] = MemoryContent()
            elif path not in self._contents:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            return MemoryFile(path, self._contents[path])

    def make_private(self, path: Path) -> None:
        """Nothing to do: nobody else reads this memory."""

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, sorted."""
        with self._guard:
            paths = [str(path) for path in (*self._contents, *self._directories)]
        head = f"{directory}/"  # as text: a simulation asks very often
        below = {path[len(head) :] for path in paths if path.startswith(head)}
        return sorted(name for name in below if "/" not in name)

    def make_directories(self, directories: Iterable[Path]) -> None:
        """See FileSystem.make_directories."""
        for directory in directories:
            self.make_directory(directory)

    def make_directory(self, directory: Path) -> None:
        """Create a directory and those above it."""
        with self._guard:
            self._directories.update((directory, *directory.parents))

    def sync_directory(self, directory: Path) -> None:
        """Nothing to do."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory a name."""
        with self._guard:
            content = self._contents.pop(old, None)
            if content is not None:
                self._contents[new] = content
                return
            for kept in [path for path in self._contents if path.is_relative_to(old)]:
                self._contents[new / kept.relative_to(old)] = self._contents.pop(kept)
            for moved in [path for path in self._directories if path.is_relative_to(old)]:
                self._directories.remove(moved)
                self._directories.add(new / moved.relative_to(old))

    def unlink(self, path: Path) -> None:
        """Delete a file; maps in use keep its memory."""
        with self._guard:
            del self._contents[path]

    def remove_tree(self, directory: Path) -> None:
        """Delete a directory and everything in it."""
        with self._guard:
            for path in [path for path in self._contents if path.is_relative_to(directory)]:
                del self._contents[path]
            self._directories = {p for p in self._directories if not p.is_relative_to(directory)}

    def taken_bytes(self, directory: Path) -> int:
        """Bytes of the files in a directory."""
        with self._guard:
            inside = [one for path, one in self._contents.items() if path.parent == directory]
            return sum(content.byte_count for content in inside)

    def free_bytes(self, directory: Path) -> int:
        """Room left."""
        if self.byte_count_max is None:
            return 1 << 62
        with self._guard:
            used = sum(content.byte_count for content in self._contents.values())
        return self.byte_count_max - used


_NUMBERS = itertools.count(1 << 46, 1 << 24)
"""Of topics that no catalogue has numbered: not by chance, so that a test is in the same shard each
time; of the process, because tests open copies of one file system."""


class MemoryStore(SegmentStore):
    """All journals of one broker, in memory."""

    def __init__(
        self,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        reserve_bytes: int = 0,
        file_system: FileSystem | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__(
            Path(PurePosixPath("memory:")),
            segment_bytes=segment_bytes,
            reserve_bytes=reserve_bytes,
            file_system=file_system or MemoryFileSystem(),
            shards=shards,
        )

    def _new_identity(self) -> int:
        return 0

    def _new_number(self) -> int:
        return next(_NUMBERS)

    def _take_lock(self) -> DirectoryLock | None:
        return None
