"""A disk in memory that knows all states in which a crash may leave it.

`RecordingFiles` stands between a segment journal and files in memory. After each call that changes
something it has `on_change` called; `states` then makes disks as a crash at that instant may leave
them. Of the bytes that were not synced it keeps

- all, none, or the first so many writes;
- the last write up to any byte: a sector that is torn;
- any sectors of 512 bytes, or of 4,096, and of each file any of its sizes;

and of the names that were made, changed or removed since their directory was synced all, none, or
the first so many, each directory by itself.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from dejaqueue.journal.format import Piece
from dejaqueue.journal.memory import MemoryContent, MemoryFileSystem
from dejaqueue.journal.segments.files import FileSystem, OpenFile
from dejaqueue.journal.segments.proof import MARK_NAME

SUBSETS = 6
"""Random sets of sectors of each size that are tried at one instant."""
TORN = 2
"""Bytes at which the last write is torn, at one instant."""
NAMES = 2
"""Random sets of names that are tried at one instant, beside all and none."""

Names = dict[Path, "Inode"]


@dataclass(eq=False)
class Inode:
    """A file, whatever it is called.

    Attributes:
        content: as it is now.
        number: of this file, and of what was durable in it, among all that ever were.
        durable: as it was when it was synced.
        writes: offset and bytes of each write since.
        sizes: that it had since.
        is_in_doubt: after a sync that failed: what was written before it is shown as durable, and
            need not be.
    """

    content: MemoryContent
    number: int
    durable: bytes = b""
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    is_in_doubt: bool = False

    def now(self) -> bytes:
        """All bytes as they are now."""
        memory = self.content.memory
        return b"" if memory is None else memory[: self.content.byte_count]

    def is_clean(self) -> bool:
        """Whether a crash takes nothing away."""
        return not self.writes and not self.sizes and not self.is_in_doubt

    def synced(self, number: int) -> None:
        """What was written since the last sync, failed or not, is durable."""
        if not self.is_clean():
            self.durable = self.after(len(self.writes), 0) if self.is_in_doubt else self.now()
            self.number = number
            self.writes, self.sizes = [], []

    def failed(self) -> None:
        """A sync failed: the system has forgotten what was to be written."""
        self.writes, self.sizes, self.is_in_doubt = [], [], True

    def after(self, count: int, torn: float) -> bytes:
        """With the first so many writes, and a share of the bytes of the next."""
        held = np.zeros(self.content.byte_count, np.uint8)
        held[: len(self.durable)] = np.frombuffer(self.durable, np.uint8)[: len(held)]
        for offset, written in self.writes[:count]:
            held[offset : offset + len(written)] = np.frombuffer(written, np.uint8)
        if count < len(self.writes):
            offset, written = self.writes[count]
            part = written[: int(len(written) * torn)]
            held[offset : offset + len(part)] = np.frombuffer(part, np.uint8)
        return held.tobytes()

    def sectors(self, random: np.random.Generator, sector_bytes: int, share: float) -> bytes:
        """With any of the sectors that changed, and any size."""
        size = self.content.byte_count
        room = -(-max(size, len(self.durable)) // sector_bytes) * sector_bytes
        now, before = np.zeros((2, room), np.uint8)
        now[:size] = np.frombuffer(self.now(), np.uint8)
        before[: len(self.durable)] = np.frombuffer(self.durable, np.uint8)
        kept = random.random(room // sector_bytes) < share
        mixed = np.where(np.repeat(kept, sector_bytes), now, before)
        sizes = [*self.sizes, size, len(self.durable)] if self.sizes else [size]
        return mixed[: sizes[int(random.integers(len(sizes)))]].tobytes()


@dataclass(frozen=True)
class Fault:
    """The call of some operations, counted together from 1, that fails, and how."""

    operations: tuple[str, ...]
    number: int
    error: int


@dataclass(frozen=True)
class State:
    """What a crash leaves.

    Attributes:
        how: in words.
        contents: of files that were not synced.
    """

    how: str
    names: Names
    contents: dict[Path, bytes]

    def mark(self) -> int:
        """The same for states that are the same."""
        contents, names = self.contents, self.names
        return hash(
            tuple((str(p), contents.get(p, names[p].number)) for p in sorted(names, key=str))
        )


@dataclass(frozen=True)
class NameChange:
    """A name that came, went, or both; `inode` None = it went."""

    directory: Path
    new: Path | None
    old: Path | None
    inode: Inode

    def apply(self, names: Names) -> None:
        """Do it."""
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None:
            names[self.new] = self.inode


class RecordedFile(OpenFile):
    """A file whose changes are noted."""

    def __init__(self, files: RecordingFiles, inner: OpenFile, inode: Inode) -> None:
        self._files, self._inner, self._inode = files, inner, inode
        self.path = inner.path

    def write(self, pieces: Sequence[Piece], offset: int) -> None:
        """See OpenFile.write."""
        content = b"".join(pieces)
        try:
            self._files.about_to("write")
        except OSError:
            self._write(content[: len(content) // 2], offset)
            raise
        self._write(content, offset)

    def _write(self, content: bytes, offset: int) -> None:
        self._inner.write([content], offset)
        self._inode.writes.append((offset, content))
        self._files.changed("write")

    def sync(self) -> None:
        """See OpenFile.sync."""
        try:
            self._files.about_to("sync")
        except OSError:
            self._inode.failed()
            raise
        self._inode.synced(self._files.next_number())
        self._files.changed("sync")

    def allocate(self, byte_count: int) -> None:
        """See OpenFile.allocate."""
        self._files.about_to("allocate")
        self._inode.sizes.append(self._inner.byte_count())
        self._inner.allocate(byte_count)
        self._files.changed("allocate")

    def truncate(self, byte_count: int) -> None:
        """See OpenFile.truncate."""
        self._inode.sizes.append(self._inner.byte_count())
        self._inner.truncate(byte_count)
        self._files.changed("truncate")

    def byte_count(self) -> int:
        """See OpenFile.byte_count."""
        return self._inner.byte_count()

    def map(self, byte_count: int) -> mmap.mmap:
        """See OpenFile.map."""
        return self._inner.map(byte_count)

    def close(self) -> None:
        """See OpenFile.close."""


class RecordingFiles(FileSystem):
    """Files in memory of which is known what is durable.

    Args:
        disk: what a crash left; all of it is durable.
        spares: as FileSystem.spares.
        on_change: called after each change, with what it was.
        fault: a call that fails.

    Attributes:
        calls: how often each operation was asked for.
        has_failed: whether the call that was to fail has.
    """

    background = False

    def __init__(
        self,
        disk: MemoryFileSystem,
        on_change: Callable[[str], None],
        *,
        spares: bool,
        fault: Fault | None = None,
    ) -> None:
        self._disk, self._on_change, self.spares = disk, on_change, spares
        self._fault = fault
        self.calls: Counter[str] = Counter()
        self.has_failed = False
        self._durable: Names = {}
        self._numbers = count()
        for path, content in disk._contents.items():
            self._durable[path] = inode = Inode(content, self.next_number())
            inode.durable = inode.now()
        self._now: Names = dict(self._durable)
        self._pending: list[NameChange] = []

    def next_number(self) -> int:
        """One that no file has had."""
        return next(self._numbers)

    def about_to(self, operation: str) -> None:
        """Count a call; raise OSError if it is the one that fails."""
        self.calls[operation] += 1
        fault = self._fault
        if fault is None or operation not in fault.operations:
            return
        if sum(self.calls[one] for one in fault.operations) == fault.number:
            self.has_failed = True
            raise OSError(fault.error, os.strerror(fault.error))

    def changed(self, what: str) -> None:
        """Something was done."""
        self._on_change(what)

    # --- what a journal asks -------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False) -> OpenFile:
        """See FileSystem.open; a file that is made anew has another inode."""
        inner = self._disk.open(path, create=create)
        if create:
            inode = Inode(self._disk._contents[path], self.next_number())
            self._name(NameChange(path.parent, path, None, inode))
            self.changed("create")
        return RecordedFile(self, inner, self._now[path])

    def _name(self, change: NameChange) -> None:
        change.apply(self._now)
        self._pending.append(change)

    def make_private(self, path: Path) -> None:
        """Nothing to do."""

    def names(self, directory: Path) -> list[str]:
        """See FileSystem.names."""
        return self._disk.names(directory)

    def make_directories(self, directories: Iterable[Path]) -> None:
        """See FileSystem.make_directories."""
        for directory in directories:
            self.make_directory(directory)

    def make_directory(self, directory: Path) -> None:
        """See FileSystem.make_directory; durable."""
        self._disk.make_directory(directory)

    def sync_directory(self, directory: Path) -> None:
        """See FileSystem.sync_directory."""
        self.about_to("sync_directory")
        for change in self._pending:
            if change.directory == directory:
                change.apply(self._durable)
        self._pending = [one for one in self._pending if one.directory != directory]
        self.changed("sync_directory")

    def rename(self, old: Path, new: Path) -> None:
        """See FileSystem.rename; of files within a directory."""
        self._disk.rename(old, new)
        self._name(NameChange(new.parent, new, old, self._now[old]))
        self.changed("rename")

    def unlink(self, path: Path) -> None:
        """See FileSystem.unlink."""
        self._disk.unlink(path)
        self._name(NameChange(path.parent, None, path, self._now[path]))
        self.changed("unlink")

    def free_bytes(self, directory: Path) -> int:
        """See FileSystem.free_bytes."""
        return self._disk.free_bytes(directory)

    # --- what a crash leaves -------------------------------------------------------------------

    def states(self, random: np.random.Generator) -> Iterator[State]:
        """What a crash at this instant may leave; some of it twice."""
        for naming, names in self._namings(random):
            dirty = [path for path, inode in names.items() if not inode.is_clean()]
            yield State(naming + ", all bytes", names, {p: names[p].now() for p in dirty})
            if dirty:
                for way, make in self._ways([names[path] for path in dirty], random):
                    yield State(f"{naming}, {way}", names, {p: make(names[p]) for p in dirty})

    def disk_of(self, state: State) -> MemoryFileSystem:
        """A disk in such a state. What recovery never writes to is shared with others."""
        disk = MemoryFileSystem()
        disk._directories = set(self._disk._directories)
        segments = sorted(path for path in state.names if path.suffix == ".segment")
        for path, inode in state.names.items():
            held = state.contents.get(path)
            if held is not None:
                disk._contents[path] = _content(held)
            elif path in segments[-2:] or path.name == MARK_NAME:
                disk._contents[path] = _content(inode.durable)
            else:
                disk._contents[path] = inode.content
        return disk

    def _namings(self, random: np.random.Generator) -> Iterator[tuple[str, Names]]:
        yield "all names", dict(self._now)
        if not self._pending:
            return
        yield "no names", dict(self._durable)
        directories = list(dict.fromkeys(change.directory for change in self._pending))
        for _ in range(NAMES):
            names = dict(self._durable)
            for directory in directories:
                mine = [one for one in self._pending if one.directory == directory]
                for change in mine[: int(random.integers(len(mine) + 1))]:
                    change.apply(names)
            yield "some names", names

    @staticmethod
    def _ways(
        dirty: list[Inode], random: np.random.Generator
    ) -> Iterator[tuple[str, Callable[[Inode], bytes]]]:
        yield "no bytes", lambda inode: inode.durable
        for most in range(1, max(len(inode.writes) for inode in dirty)):
            yield f"{most} writes", lambda inode, most=most: inode.after(most, 0.0)  # type: ignore[misc]
        for _ in range(TORN):
            share = float(random.random())
            yield (
                f"{share:.3f} of the last write",
                lambda inode, share=share: inode.after(max(len(inode.writes) - 1, 0), share),  # type: ignore[misc]
            )
        for sector_bytes in (512, 4096):
            for turn in range(SUBSETS):
                share = (turn + 1) / (SUBSETS + 1)
                yield (
                    f"sectors of {sector_bytes}",
                    lambda inode, size=sector_bytes, share=share: inode.sectors(  # type: ignore[misc]
                        random, size, share
                    ),
                )


def _content(held: bytes) -> MemoryContent:
    content = MemoryContent()
    if held:
        content.memory = mmap.mmap(-1, len(held))
        content.memory[:] = held
    content.byte_count = len(held)
    return content
