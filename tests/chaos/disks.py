"""The disk of a broker and of the server beside it: small, and with whatever can be wrong with one.

A file system of our own in FUSE (tests/crash/lossy_disk.py) on a small tmpfs: what fills the one
has the other find no room.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.crash import lossy_mount
from tests.crash.lossy_mount import LossyMount
from tests.crash.small_disk import SmallDisk

DISK_BYTES = 768 << 20
RESERVE_BYTES = 64 << 20


class BrokerDisk:
    """One disk.

    Attributes:
        at: where it is mounted.
    """

    def __init__(self, place: Path) -> None:
        self._small = SmallDisk(place, DISK_BYTES)
        self._mount = LossyMount(place / "mount")
        self._mount.mount()
        self.at = self._mount.at

    def fill(self, leave_bytes: int) -> None:
        """Take all room but this much."""
        self._small.fill(leave_bytes)

    def empty(self) -> None:
        """Give back what `fill` took."""
        self._small.empty()

    def slow(self, late_ms: int) -> None:
        """Have each write and sync take so much longer."""
        self._mount.ask(f"slow {late_ms}")

    def read_only(self, is_so: bool) -> None:
        """Refuse changes, or not any more."""
        self._mount.ask(f"read_only {int(is_so)}")

    def close(self) -> None:
        """Unmount."""
        self._mount.close()
        with suppress(OSError):
            self._small.close()


def missing() -> str:
    """What this machine lacks; "" = nothing."""
    return lossy_mount.missing()
