"""The disk beneath a broker or a server: small, and with whatever can be wrong with one.

A file system of our own in FUSE (tests/crash/lossy_disk.py) on a small tmpfs: what fills the one
has the other find no room.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.crash import lossy_mount
from tests.crash.lossy_mount import LossyMount
from tests.crash.small_disk import SmallDisk

DISK_BYTES = 768 << 20
RESERVE_BYTES = 64 << 20


class BadDisk:
    """One disk, that others than its owner may enter.

    Args:
        mended: called when it has room, or takes changes, again.

    Attributes:
        at: where it is mounted.
        mount: what it is mounted by.
    """

    def __init__(self, place: Path, mended: Callable[[], None] = lambda: None) -> None:
        self._mended = mended
        self._small = SmallDisk(place, DISK_BYTES)
        place.chmod(0o755)
        self.mount = LossyMount(place / "mount")
        self.mount.mount()
        self.at = self.mount.at

    def fill(self, leave_bytes: int) -> None:
        """Take all room but this much."""
        self._small.fill(leave_bytes)

    def empty(self) -> None:
        """Give back what `fill` took."""
        self._small.empty()
        self._mended()

    def slow(self, late_ms: int) -> None:
        """Have each write and sync take so much longer."""
        self.mount.ask(f"slow {late_ms}")

    def read_only(self, is_so: bool) -> None:
        """Refuse changes, or not any more."""
        self.mount.ask(f"read_only {int(is_so)}")
        if not is_so:
            self._mended()

    def close(self) -> None:
        """Unmount."""
        self.mount.close()
        with suppress(OSError):
            self._small.close()


def missing() -> str:
    """What this machine lacks; "" = nothing."""
    return lossy_mount.missing()
