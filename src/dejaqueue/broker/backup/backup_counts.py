"""BackupCounts: how the backups of a broker went: what metrics and health tell of them.

Room: broker. Any thread may count and any may read.
Holds: counts never fall; what is said to be wrong names no place, as everybody may read it.
See: backups.py, which counts; watching/health.py and http/exposition.py, which tell.
"""

from __future__ import annotations

from typing import Final

LATE_TURNS: Final = 3
"""Backups by themselves are late when none was done for so many turns,"""
LATE_MS_MIN: Final = 60_000
"""and for so long besides: one may take a while."""


class BackupCounts:
    """How backups went.

    Attributes:
        done, failed: how many were taken since the broker started, and how many broke off.
        new_bytes: what they stored.
        last_ms: as of when the last one is that was done, UTC, also before the broker started;
            0 = none is known.
        has_failed: the last one broke off.
    """

    def __init__(self) -> None:
        self.done = self.failed = self.new_bytes = self.last_ms = 0
        self.has_failed = False
        self._since_ms = 0

    def expect(self, now_ms: int, last_ms: int) -> None:
        """From now on backups are taken by themselves; the last one is as of `last_ms`."""
        self._since_ms, self.last_ms = now_ms, max(self.last_ms, last_ms)

    def seen(self, last_ms: int) -> None:
        """The last one is as of then, whichever broker of the cluster took it."""
        self.last_ms = max(self.last_ms, last_ms)

    def succeed(self, cut_ms: int, new_bytes: int) -> None:
        """One is there."""
        self.done += 1
        self.new_bytes += new_bytes
        self.last_ms, self.has_failed = cut_ms, False

    def fail(self) -> None:
        """One broke off."""
        self.failed += 1
        self.has_failed = True

    def trouble(self, now_ms: int, interval_ms: int) -> str:
        """What is wrong with backups, in words; "" = nothing.

        Args:
            interval_ms: how often one is to be taken by itself; 0 = never.
        """
        if self.has_failed:
            return "the last backup failed: the log says why"
        if not interval_ms or not self._since_ms:
            return ""
        age_ms = now_ms - max(self._since_ms, self.last_ms)
        if age_ms <= LATE_TURNS * interval_ms + LATE_MS_MIN:
            return ""
        return f"no backup was done for {age_ms // 1_000:,} s: the log says why"
