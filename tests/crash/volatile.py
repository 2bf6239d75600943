"""Files of which a power cut takes away what was not synced: the model behind lossy_disk.py.

A directory holds everything as programs see it; what could still be lost is remembered here: for
each file its writes and changes of size since it was synced, and changes of names in their order.

Holds, after `power_cut`:
- what was synced is there;
- each sector of the rest has any of the contents that it had since, a sector never a mixture;
- a file has any of the sizes that it had since;
- names: with `journaled` those of one instant, as a file system with one log of metadata has them
  (ext4, XFS): to sync a file that changed makes its name durable, and all that was renamed before.
  Without, as POSIX promises: a name is durable when its directory was synced; of the others the
  last ones are lost.
"""

from __future__ import annotations

import errno
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HIDDEN = ".fuse_hidden"
"""Begins names of files that were deleted while open; a real file system has no such names."""


@dataclass
class Change:
    """Bytes of a file from an offset on, before they were changed, and its size then."""

    offset: int
    before: bytes
    size_before: int


@dataclass
class Unsynced:
    """A file, by a descriptor of our own, and what was done since it was synced."""

    fd: int
    changes: list[Change] = field(default_factory=list)


@dataclass(eq=False)
class NameChange:
    """A name that was made, given to something else, or removed.

    Attributes:
        number: of the file.
        new, old: the path that came, the path that went; None = none.
        gone: where what was replaced or removed is kept.
    """

    number: int
    new: Path | None
    old: Path | None
    gone: Path | None = None
    is_directory: bool = False

    def directories(self) -> set[Path]:
        """Whose sync makes it durable."""
        return {path.parent for path in (self.new, self.old) if path is not None}


class VolatileFiles:
    """Files below a directory.

    Args:
        back: where they are.
        gone: an empty directory beside it, for what may have to come back.

    Attributes:
        calls: how often each operation was asked for.
        journaled: see above.
        sector_bytes: what a disk writes whole or not at all.
        full: whether writes fail because there is no room.
    """

    def __init__(self, back: Path, gone: Path) -> None:
        self.back, self._gone = back, gone
        for path in gone.iterdir():
            path.unlink()
        self.calls: Counter[str] = Counter()
        self.journaled = False
        self.sector_bytes = 512
        self._files: dict[int, Unsynced] = {}
        self._names: list[NameChange] = []
        self._planned: dict[tuple[str, int], int] = {}
        self._always: dict[str, int] = {}
        self._next_gone = 0

    # --- failures ------------------------------------------------------------------------------

    def fail(self, operation: str, *, after: int, number: int) -> None:
        """Fail one call of an operation: the next, or the one after so many."""
        self._planned[operation, self.calls[operation] + after + 1] = number

    def fail_always(self, operation: str, number: int | None) -> None:
        """Fail every call from now on; None ends it."""
        self._always.pop(operation, None)
        if number is not None:
            self._always[operation] = number

    def count(self, operation: str) -> None:
        """Note a call; raise OSError if it is to fail."""
        self.calls[operation] += 1
        planned = self._planned.pop((operation, self.calls[operation]), None)
        number = self._always.get(operation, planned)
        if number is not None:
            raise OSError(number, os.strerror(number))

    @property
    def full(self) -> bool:
        """Whether writes find no room."""
        return self._always.get("write") == errno.ENOSPC

    # --- bytes ---------------------------------------------------------------------------------

    def write(self, fd: int, content: bytes, offset: int) -> None:
        """Write; a planned failure writes the first half, as a full disk may."""
        try:
            self.count("write")
        except OSError:
            self._write(fd, content[: len(content) // 2], offset)
            raise
        self._write(fd, content, offset)

    def _write(self, fd: int, content: bytes, offset: int) -> None:
        facts = os.fstat(fd)
        before = os.pread(fd, len(content), offset) if offset < facts.st_size else b""
        before += bytes(len(content) - len(before))
        self._note(fd, facts.st_ino, Change(offset, before, facts.st_size))
        os.pwrite(fd, content, offset)

    def truncate(self, fd: int, byte_count: int) -> None:
        """Give a file another size."""
        self.count("truncate")
        facts = os.fstat(fd)
        cut = max(facts.st_size - byte_count, 0)
        before = os.pread(fd, cut, byte_count) if cut else b""
        self._note(fd, facts.st_ino, Change(byte_count, before, facts.st_size))
        os.ftruncate(fd, byte_count)

    def allocate(self, fd: int, offset: int, byte_count: int) -> None:
        """Give a file room, and the size for it."""
        self.count("write")
        facts = os.fstat(fd)
        if offset + byte_count > facts.st_size:
            self._note(fd, facts.st_ino, Change(facts.st_size, b"", facts.st_size))
        os.posix_fallocate(fd, offset, byte_count)

    def _note(self, fd: int, number: int, change: Change) -> None:
        held = self._files.get(number)
        if held is None:
            held = self._files[number] = Unsynced(os.dup(fd))
        held.changes.append(change)

    def sync(self, fd: int, *, contents_only: bool) -> None:
        """Make a file durable; its name only as the class says."""
        self.count("sync")
        facts = os.fstat(fd)
        held = self._files.pop(facts.st_ino, None)
        if held is not None:
            os.close(held.fd)
        if self.journaled and self._commits(facts, held, contents_only=contents_only):
            self._keep_names(len(self._names))

    def _commits(
        self, facts: os.stat_result, held: Unsynced | None, *, contents_only: bool
    ) -> bool:
        """Whether a sync of this file has to write the log of metadata."""
        mine = [one for one in self._names if one.number == facts.st_ino]
        if not contents_only:
            return held is not None or bool(mine)
        grew = held is not None and any(c.size_before != facts.st_size for c in held.changes)
        return grew or any(one.old is None for one in mine)

    # --- names ---------------------------------------------------------------------------------

    def named(self, path: Path, *, is_directory: bool = False) -> None:
        """A name was made."""
        self._names.append(NameChange(_number(path), path, None, is_directory=is_directory))

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name."""
        self.count("rename")
        change = NameChange(_number(old), new, old, is_directory=old.is_dir())
        if not change.is_directory and new.exists():
            change.gone = self._keep(new)
        os.rename(old, new)
        if change.is_directory:
            self._moved(old, new)
        self._names.append(change)

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        self.count("unlink")
        self._names.append(NameChange(_number(path), None, path, self._keep(path)))
        os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        os.rmdir(path)
        self._names.append(NameChange(0, None, path, is_directory=True))

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        self.count("sync_directory")
        touched = [one for one in self._names if path in one.directories()]
        if self.journaled:
            self._keep_names(len(self._names) if touched else 0)
        else:
            for one in touched:
                self._forget(one)
            self._names = [one for one in self._names if one not in touched]

    def _keep(self, path: Path) -> Path:
        self._next_gone += 1
        kept = self._gone / str(self._next_gone)
        os.link(path, kept)
        return kept

    def _moved(self, old: Path, new: Path) -> None:
        """Paths below a directory with another name; not needed if all is undone in order."""
        for one in [] if self.journaled else self._names:
            one.new, one.old = _below(one.new, old, new), _below(one.old, old, new)

    def _keep_names(self, count: int) -> None:
        for one in self._names[:count]:
            self._forget(one)
        self._names = self._names[count:]

    def _forget(self, one: NameChange) -> None:
        if one.gone is not None:
            one.gone.unlink()

    # --- power ---------------------------------------------------------------------------------

    @property
    def unsynced(self) -> int:
        """How many changes could be lost now."""
        return len(self._names) + sum(len(held.changes) for held in self._files.values())

    def settle(self) -> None:
        """Everything is durable."""
        self._keep_names(len(self._names))
        for held in self._files.values():
            os.close(held.fd)
        self._files.clear()

    def power_cut(self, random: np.random.Generator, survival: float) -> None:
        """Lose what was not synced.

        Args:
            survival: share of sectors, and of sizes, that have reached the disk as they are now.
        """
        count = len(self._names)
        kept = int(random.integers(0, count + 1)) if count and survival > 0 else 0
        lost, self._names = self._names[kept:], self._names[:kept]
        while lost:
            self._take_back(lost.pop(), lost)
        for number in sorted(self._files):
            self._lose(self._files[number], random, survival)
        self.settle()
        for path in self.back.rglob(HIDDEN + "*"):
            path.unlink()

    def _take_back(self, one: NameChange, earlier: list[NameChange]) -> None:
        """Undo a change of names; all later ones are undone already."""
        if one.is_directory:
            self._take_back_directory(one, earlier)
            return
        if one.new is not None and one.old is not None:
            os.rename(one.new, one.old)
        elif one.new is not None:
            one.new.unlink(missing_ok=True)
        if one.gone is not None:
            back = one.new or one.old
            assert back is not None
            if back.parent.is_dir():
                os.rename(one.gone, back)
            else:  # its directory was removed, durably
                one.gone.unlink()
            one.gone = None

    def _take_back_directory(self, one: NameChange, earlier: list[NameChange]) -> None:
        if one.new is not None and one.old is not None:
            if one.old.is_dir() and any(one.old.iterdir()):
                return  # what took its place is durable, so this is
            os.rename(one.new, one.old)
            for before in [] if self.journaled else [*self._names, *earlier]:
                before.new = _below(before.new, one.new, one.old)
                before.old = _below(before.old, one.new, one.old)
        elif one.old is not None:
            one.old.mkdir()
        elif one.new is not None and not any(one.new.iterdir()):
            one.new.rmdir()  # else a name in it is durable, and so is the way there

    def _lose(self, held: Unsynced, random: np.random.Generator, survival: float) -> None:
        sizes = [change.size_before for change in held.changes]
        size = os.fstat(held.fd).st_size
        if sizes and random.random() >= survival:
            size = sizes[int(random.integers(0, len(sizes))) if survival else 0]
        for sector, pieces in _by_sector(held.changes, self.sector_bytes).items():
            if random.random() >= survival:
                kept = int(random.integers(0, len(pieces))) if survival else 0
                for offset, before in reversed(pieces[kept:]):
                    os.pwrite(held.fd, before, sector * self.sector_bytes + offset)
        os.ftruncate(held.fd, size)


def _by_sector(changes: list[Change], sector_bytes: int) -> dict[int, list[tuple[int, bytes]]]:
    """Of each sector what was changed: offset in it and bytes of before, in order."""
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for change in changes:
        at, end = change.offset, change.offset + len(change.before)
        while at < end:
            sector, offset = divmod(at, sector_bytes)
            until = min(end, (sector + 1) * sector_bytes)
            found[sector].append(
                (offset, change.before[at - change.offset : until - change.offset])
            )
            at = until
    return found


def _number(path: Path) -> int:
    return os.lstat(path).st_ino


def _below(path: Path | None, old: Path, new: Path) -> Path | None:
    """The path of something in a directory that was renamed."""
    if path is not None and path.is_relative_to(old):
        return new / path.relative_to(old)
    return path
