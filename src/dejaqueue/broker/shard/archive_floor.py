"""ArchiveFloor: entries stay in a partition's journal until backups have them, for a while.

So any instant between two backups can be restored: the later one finds all entries since the
earlier one, though snapshots cover them by then.

Room: broker. Asked by the partition's worker; what backups reached may be told by any thread.
Holds: without backups by a schedule nothing stays for them; what stays is bounded, by KEEP_MS since
the last backup and by the disk, and that it goes before a backup had it is told.
See: maintenance.py, which truncates; broker/backup; docs/guides/backup.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

KEEP_MS: Final = 900_000
"""Backups that are further apart than a quarter of an hour do not have all entries: so much of a
busy topic is more than its owner would have the journal grow by."""


class ArchiveFloor:
    """Up to where backups have one partition.

    Args:
        is_wanted: whether backups are taken by a schedule.
        now_ms: the time.

    >>> floor = ArchiveFloor(lambda: True, lambda: 0)
    >>> floor.limit(30)
    0
    >>> floor.reach(20)
    >>> floor.limit(30)
    20
    """

    def __init__(self, is_wanted: Callable[[], bool], now_ms: Callable[[], int]) -> None:
        self._is_wanted, self._now_ms = is_wanted, now_ms
        self._position = 0
        self._reached_ms = now_ms()
        self._has_given_up = False

    def reach(self, position: int) -> None:
        """A backup has all entries up to this one."""
        self._position, self._reached_ms = max(self._position, position), self._now_ms()
        self._has_given_up = False

    def give_up(self) -> bool:
        """Keep nothing until the next backup; True if something was kept."""
        was_kept = self._is_wanted() and not self._has_given_up
        self._has_given_up = True
        return was_kept

    def is_late(self) -> bool:
        """Whether the last backup is so old that nothing more is kept for the next one."""
        return self._is_wanted() and self._now_ms() - self._reached_ms > KEEP_MS

    def limit(self, position: int) -> int:
        """How far entries may be given back, of those up to a position."""
        if self._has_given_up or not self._is_wanted():
            return position
        return min(position, self._position)
