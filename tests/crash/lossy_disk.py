"""A disk that loses what was not synced, as a file system: `python lossy_disk.py BACK AT`.

In the manner of LazyFS, through FUSE. Files lie in the directory BACK; volatile.py knows what is
not durable, and a power cut takes that away.

Commands come line by line on standard input, each is answered with a line:

    cut SEED SHARE   the power is cut: everything fails from now on, and SHARE of the sectors that
                     were not synced have reached the disk
    fail OP N ERRNO  the N-th next write, sync, open, ... fails
    always OP ERRNO  every one fails; ERRNO 0 ends that
    lie YES          a sync says it was done, and does nothing (1), or is honest (0)
    journaled YES    names as ext4 and XFS keep them (1), or as POSIX promises (0)
    sector BYTES     what the disk writes whole or not at all: 512 at first
    settle           all there is now is durable
    read_only YES    nothing can be changed (1), or it can again (0)
    slow MS          each write and each sync takes so much longer
    calls OP         how often it was called
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mfusepy
import numpy as np

from tests.crash.volatile import VolatileFiles


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


def _changes(ask: Callable[..., Any]) -> Callable[..., Any]:
    """What a disk that is read-only refuses."""

    @functools.wraps(ask)
    def asked(disk: LossyDisk, *arguments: Any, **named: Any) -> Any:
        if disk.read_only:
            raise mfusepy.FuseOSError(errno.EROFS)
        return ask(disk, *arguments, **named)

    return _while_powered(asked)


class LossyDisk(mfusepy.Operations):  # type: ignore[misc]
    """The operations of the file system.

    Attributes:
        guard: held by each operation.
        dead: whether the power was cut.
        read_only: whether changes are refused.
    """

    use_ns = True

    def __init__(self, back: Path, gone: Path) -> None:
        self._back = back
        self._files = VolatileFiles(back, gone)
        self.dead = self.read_only = False
        self._late_seconds = 0.0
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
                lost = self._files.unsynced
                self._files.power_cut(np.random.default_rng(int(rest[0])), float(rest[1]))
                return f"{lost}"
            if name == "calls":
                return str(self._files.calls[rest[0]])
            if name == "fail":
                self._files.fail(rest[0], after=int(rest[1]), number=int(rest[2]))
            elif name == "always":
                self._files.fail_always(rest[0], int(rest[1]) or None)
            elif name == "lie":
                self._lies = rest[0] == "1"
            elif name == "journaled":
                self._files.journaled = rest[0] == "1"
            elif name == "sector":
                self._files.sector_bytes = int(rest[0])
            elif name == "read_only":
                self.read_only = rest[0] == "1"
            elif name == "slow":
                self._late_seconds = int(rest[0]) / 1_000
            elif name == "settle":
                self._files.settle()
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

    def _give(self, path: Path) -> None:
        """What is made belongs to whoever made it."""
        user, group, _ = mfusepy.fuse_get_context()
        if user or group:
            os.lchown(path, user, group)

    def _take_time(self) -> None:
        if self._late_seconds:
            threading.Event().wait(self._late_seconds)

    @_changes
    def mkdir(self, path: str, mode: int) -> int:
        """Not durable yet."""
        os.mkdir(self._at(path), mode)
        self._give(self._at(path))
        self._files.named(self._at(path), is_directory=True)
        return 0

    @_changes
    def rmdir(self, path: str) -> int:
        """Not durable yet."""
        self._files.remove_directory(self._at(path))
        return 0

    @_while_powered
    def open(self, path: str, flags: int) -> int:
        """To read and write, whatever was asked."""
        self._files.count("open")
        if self.read_only and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return os.open(self._at(path), os.O_RDWR | os.O_CLOEXEC)

    @_changes
    def create(self, path: str, mode: int, fi: Any = None) -> int:
        """A new file."""
        self._files.count("open")
        at = self._at(path)
        fd = os.open(at, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        os.fchmod(fd, mode & 0o777)
        self._give(at)
        self._files.named(at)
        return fd

    @_changes
    def link(self, target: str, source: str) -> int:
        """Another name, not durable yet."""
        os.link(self._at(source), self._at(target))
        self._files.named(self._at(target))
        return 0

    @_while_powered
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """Bytes, as they are now."""
        self._files.count("read")
        return os.pread(fh, size, offset)

    @_changes
    def write(self, path: str, content: bytes, offset: int, fh: int) -> int:
        """Not durable yet."""
        self._take_time()
        self._files.write(fh, content, offset)
        return len(content)

    @_changes
    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Not durable yet."""
        if fh is not None:
            self._files.truncate(fh, length)
            return 0
        fd = os.open(self._at(path), os.O_RDWR | os.O_CLOEXEC)
        try:
            self._files.truncate(fd, length)
        finally:
            os.close(fd)
        return 0

    @_changes
    def fallocate(self, path: str, mode: int, offset: int, size: int, fh: int) -> int:
        """Room, not durable yet; no other kind of it."""
        if mode:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        self._files.allocate(fh, offset, size)
        return 0

    @_while_powered
    def fsync(self, path: str, datasync: int, fh: int) -> int:
        """Durable from now on, if the disk is honest."""
        self._take_time()
        if self._lies:
            self._files.count("sync")
        else:
            self._files.sync(fh, contents_only=bool(datasync))
        return 0

    @_while_powered
    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        """Names are durable from now on, if the disk is honest."""
        if not self._lies:
            self._files.sync_directory(self._at(path))
        return 0

    @_changes
    def rename(self, old: str, new: str) -> int:
        """Not durable yet."""
        self._files.rename(self._at(old), self._at(new))
        return 0

    @_changes
    def unlink(self, path: str) -> int:
        """Not durable yet."""
        self._files.unlink(self._at(path))
        return 0

    @_changes
    def chmod(self, path: str, mode: int) -> int:
        """Durable at once."""
        os.chmod(self._at(path), mode)
        return 0

    @_changes
    def chown(self, path: str, uid: int, gid: int) -> int:
        """Durable at once."""
        os.lchown(self._at(path), _signed(uid), _signed(gid))
        return 0

    @_changes
    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        """Durable at once."""
        if times is None:
            os.utime(self._at(path))
        else:
            os.utime(self._at(path), ns=times)
        return 0

    @_while_powered
    def flush(self, path: str, fh: int) -> int:
        """Nothing: to close is not to sync."""
        return 0

    def release(self, path: str, fh: int) -> int:
        """Closed, also when there is no power."""
        os.close(fh)
        return 0

    @_while_powered
    def statfs(self, path: str) -> dict[str, int]:
        """Room, as behind; none if writes find none."""
        facts = os.statvfs(self._back)
        names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree")
        found = {name: getattr(facts, name) for name in names}
        if self._files.full:
            found |= {"f_bfree": 0, "f_bavail": 0}
        return found


def _signed(number: int) -> int:
    """-1 = as it is."""
    return -1 if number >= 1 << 31 else number


def main() -> None:
    """Serve until unmounted."""
    back, at = Path(sys.argv[1]), sys.argv[2]
    gone = back.with_name(f"{back.name}.gone")
    gone.mkdir(exist_ok=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each unsynced file takes one
    disk = LossyDisk(back, gone)

    def listen() -> None:
        for line in sys.stdin:
            try:
                answer = disk.command(line)
            except Exception as wrong:  # noqa: BLE001 - whoever asked is told
                answer = f"{type(wrong).__name__}: {wrong}"
            print(answer, flush=True)

    threading.Thread(target=listen, daemon=True).start()
    options: dict[str, Any] = {"attr_timeout": 30, "entry_timeout": 30}
    if os.geteuid() == 0:  # a server of another user may keep its files here
        options["allow_other"] = True
    mfusepy.FUSE(disk, at, foreground=True, nothreads=True, default_permissions=True, **options)


if __name__ == "__main__":
    main()
