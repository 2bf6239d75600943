"""A disk that loses what was not synced, as a file system: `python lossy_disk.py BACK AT`.

In the manner of LazyFS, through FUSE. Files lie in the directory BACK; what was written and not
synced, and names whose directory was not synced, are remembered, and a power cut takes them away:
each sector with its own luck, names from the last one backwards (testing/faulty_journal.py).

Commands come line by line on standard input, each is answered with a line:

    cut SEED SHARE   the power is cut: everything fails from now on, and SHARE of the sectors that
                     were not synced have reached the disk
    fail OP N ERRNO  the N-th next write, sync, open, ... fails
    always OP ERRNO  every one fails; ERRNO 0 ends that
    lie YES          a sync says it was done, and does nothing (1), or is honest (0)
    calls OP         how often it was called
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mfusepy
import numpy as np

from dejaqueue.journal.segments.files import FileSystem, OpenFile
from dejaqueue.testing.faulty_journal import FaultyFile, FaultyFileSystem


class _BackingFile(OpenFile):
    """A file of which only the lossy disk says what is durable."""

    def sync(self) -> None:
        """Nothing: the machine itself stays on."""

    @property
    def number(self) -> int:
        """Of the open file."""
        return self._fd


class _Backing(FileSystem):
    """The directory behind."""

    def open(self, path: Path, *, create: bool = False) -> OpenFile:
        return _BackingFile(path, create=create)

    def sync_directory(self, directory: Path) -> None:
        """Nothing."""


def _while_powered(ask: Callable[..., Any]) -> Callable[..., Any]:
    """One operation at a time, and none once the power is cut."""

    @functools.wraps(ask)
    def asked(disk: LossyDisk, *arguments: Any, **named: Any) -> Any:
        with disk.guard:
            if disk.dead:
                raise mfusepy.FuseOSError(errno.EIO)
            try:
                return ask(disk, *arguments, **named)
            except OSError as failure:
                raise mfusepy.FuseOSError(failure.errno or errno.EIO) from failure

    return asked


class LossyDisk(mfusepy.Operations):  # type: ignore[misc]
    """The operations of the file system.

    Attributes:
        guard: held by each operation.
        dead: whether the power was cut.
    """

    use_ns = True

    def __init__(self, back: Path) -> None:
        self._back = back
        self._files = FaultyFileSystem(_Backing())
        self._open: dict[int, OpenFile] = {}
        self._number = 0
        self.dead = False
        self._lies = False
        self.guard = threading.Lock()

    def _at(self, path: str) -> Path:
        return self._back / path.lstrip("/")

    def command(self, line: str) -> str:
        """Do what a line says."""
        name, *rest = line.split()
        with self.guard:
            if name == "cut":
                self.dead = True
                lost = len(self._files.unsynced)
                self._files.power_cut(np.random.default_rng(int(rest[0])), float(rest[1]))
                return f"{lost}"
            if name == "fail":
                self._files.fail(rest[0], after=int(rest[1]), number=int(rest[2]))
            elif name == "always":
                self._files.fail_always(rest[0], int(rest[1]) or None)
            elif name == "lie":
                self._lies = rest[0] == "1"
            elif name == "calls":
                return str(self._files.calls[rest[0]])
            else:
                return f"no such command: {name}"
        return "done"

    # --- what the kernel asks -----------------------------------------------------------------

    @_while_powered
    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        """Of a file or directory."""
        facts = os.lstat(self._at(path))
        names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_blocks")
        found = {name: getattr(facts, name) for name in names}
        return found | {
            "st_atime": facts.st_atime_ns,
            "st_mtime": facts.st_mtime_ns,
            "st_ctime": facts.st_ctime_ns,
        }

    @_while_powered
    def readdir(self, path: str, fh: int) -> list[str]:
        """Names."""
        return [".", "..", *os.listdir(self._at(path))]

    @_while_powered
    def mkdir(self, path: str, mode: int) -> int:
        """Directories stay."""
        os.mkdir(self._at(path), mode)
        return 0

    @_while_powered
    def rmdir(self, path: str) -> int:
        """As they were."""
        os.rmdir(self._at(path))
        return 0

    def _opened(self, path: str, *, create: bool) -> int:
        self._number += 1
        self._open[self._number] = self._files.open(self._at(path), create=create)
        return self._number

    @_while_powered
    def open(self, path: str, flags: int) -> int:
        """To read and write, whatever was asked."""
        return self._opened(path, create=False)

    @_while_powered
    def create(self, path: str, mode: int, fi: Any = None) -> int:
        """A new file."""
        number = self._opened(path, create=True)
        os.chmod(self._at(path), mode & 0o777)
        return number

    @_while_powered
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """Bytes, as they are now."""
        self._files.count("read", self._at(path))
        inner = self._open[fh]
        assert isinstance(inner, FaultyFile)
        assert isinstance(inner._inner, _BackingFile)
        return os.pread(inner._inner.number, size, offset)

    @_while_powered
    def write(self, path: str, content: bytes, offset: int, fh: int) -> int:
        """Not durable yet."""
        self._open[fh].write([content], offset)
        return len(content)

    @_while_powered
    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Sizes stay."""
        self._files.count("truncate", self._at(path))
        os.truncate(self._at(path), length)
        return 0

    @_while_powered
    def fsync(self, path: str, datasync: int, fh: int) -> int:
        """Durable from now on, if the disk is honest."""
        if self._lies:
            self._files.count("sync", self._at(path))
        else:
            self._open[fh].sync()
        return 0

    @_while_powered
    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        """Names are durable from now on, if the disk is honest."""
        if not self._lies:
            self._files.sync_directory(self._at(path))
        return 0

    @_while_powered
    def rename(self, old: str, new: str) -> int:
        """Not durable yet."""
        if self._at(old).is_dir():
            os.rename(self._at(old), self._at(new))
        else:
            self._files.rename(self._at(old), self._at(new))
        return 0

    @_while_powered
    def unlink(self, path: str) -> int:
        """Not durable yet."""
        self._files.unlink(self._at(path))
        return 0

    @_while_powered
    def chmod(self, path: str, mode: int) -> int:
        """Durable at once."""
        os.chmod(self._at(path), mode)
        return 0

    @_while_powered
    def flush(self, path: str, fh: int) -> int:
        """Nothing: to close is not to sync."""
        return 0

    @_while_powered
    def release(self, path: str, fh: int) -> int:
        """Closed."""
        self._open.pop(fh).close()
        return 0

    @_while_powered
    def statfs(self, path: str) -> dict[str, int]:
        """Room, as behind; none if writes find none."""
        facts = os.statvfs(self._back)
        names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree")
        found = {name: getattr(facts, name) for name in names}
        if self._files.free is not None:
            found |= {"f_bfree": 0, "f_bavail": 0}
        return found


def main() -> None:
    """Serve until unmounted."""
    back, at = Path(sys.argv[1]), sys.argv[2]
    disk = LossyDisk(back)

    def listen() -> None:
        for line in sys.stdin:
            try:
                answer = disk.command(line)
            except Exception as wrong:  # noqa: BLE001 - whoever asked is told
                answer = f"{type(wrong).__name__}: {wrong}"
            print(answer, flush=True)

    threading.Thread(target=listen, daemon=True).start()
    mfusepy.FUSE(disk, at, foreground=True, nothreads=True, default_permissions=True)


if __name__ == "__main__":
    main()
