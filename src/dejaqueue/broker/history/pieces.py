"""What is recorded at once: the changes of journal entries that follow on one another.

Room: broker. Columns as the engine gave them, by reference; nothing is encoded yet.
Holds: a piece is never changed; its changes are in the order of their positions.
See: recorder.py, which collects pieces; encode.py, which makes columns of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dejaqueue.broker.shard.entry_changes import EntryChanges

HOUR_MS = 3_600_000


class Piece(NamedTuple):
    """What is recorded at once, of journal entries that follow on one another.

    Attributes:
        first, last: positions of the entries.
        base: position of the entry with index 0.
        changes: what they changed.
        consumers: who got a lease, by its position.
        pushed_ms: when leases of it went to their consumers; -1 = not known.
        missed: no changes: so many that are not recorded, 0 = it is not known how many.
        reason: why they are not recorded.
    """

    first: int
    last: int
    base: int
    changes: tuple[EntryChanges, ...]
    consumers: Mapping[int, str] = MappingProxyType({})
    pushed_ms: int = -1
    missed: int = -1
    reason: str = ""
    gap_at_ms: int = 0

    @property
    def is_gap(self) -> bool:
        """True if it says only that something was not recorded."""
        return self.missed >= 0

    @property
    def rows(self) -> int:
        """Rows it becomes."""
        return 1 if self.is_gap else sum(one.rows for one in self.changes)

    @property
    def at_ms(self) -> int:
        """When its last change was; those before were no later."""
        return self.changes[-1].at_ms if self.changes else self.gap_at_ms

    def after(self, position: int) -> Piece:
        """What of it came after a position."""
        first_index = position + 1 - self.base
        changes = tuple(one for one in self.changes if one.entry_index >= first_index)
        return self._replace(first=position + 1, changes=changes)

    def by_hours(self) -> list[Piece]:
        """Pieces none of which lies in two hours."""
        changes = self.changes
        if not changes or changes[0].at_ms // HOUR_MS == changes[-1].at_ms // HOUR_MS:
            return [self]
        hours = [one.at_ms // HOUR_MS for one in changes]
        at = bisect_left(hours, hours[0] + 1)
        position = self.base + changes[at].entry_index
        head = self._replace(last=position - 1, changes=changes[:at])
        return [head, *self._replace(first=position, changes=changes[at:]).by_hours()]
