"""A small disk of its own: a tmpfs that can be filled up, and be given room again."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A tmpfs at a directory, which is made.

    Attributes:
        at: where it is mounted.
    """

    def __init__(self, at: Path, byte_count: int) -> None:
        self.at = at
        at.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={byte_count},mode=700", "tmpfs", str(at)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"no tmpfs here: {done.stderr.strip()}")

    @property
    def _ballast(self) -> Path:
        return self.at / "ballast"

    @property
    def free_bytes(self) -> int:
        """What is free now."""
        facts = os.statvfs(self.at)
        return facts.f_bavail * facts.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Have something else take all but this much."""
        with self._ballast.open("ab") as file:
            while (taken := self.free_bytes - leave_bytes) > 0:
                # Others write meanwhile: what was free may not be any more.
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, taken)

    def empty(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount."""
        subprocess.run(["umount", "-l", str(self.at)], check=True)


def small_disk_or_skip(at: Path, byte_count: int) -> SmallDisk:
    """A small disk; the test is skipped where this machine mounts none."""
    try:
        return SmallDisk(at, byte_count)
    except OSError as lacking:
        pytest.skip(str(lacking))
