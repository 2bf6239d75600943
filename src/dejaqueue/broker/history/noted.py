"""What was noted of a command, and of all that one append made durable.

Room: broker. Columns as the engine gave them, by reference; nothing is encoded yet.
Holds: made on the partition's worker, never changed; a piece's changes are in the order of their
positions.
See: commit.py, whose groups collect it; encode.py, which makes columns of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dejaqueue.engine.effects import Change, Effects
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn

HOUR_MS = 3_600_000


class Noted(NamedTuple):
    """What a command changed.

    Attributes:
        place: of its entry in its group, from 0.
        at_ms: the time of the command.
        keys: of the rows of an enqueue; None = they have none.
        ahead_ms: how long before its due time a message could be leased by it.
        rows: changes of single messages.
    """

    place: int
    at_ms: int
    changes: tuple[Change, ...]
    keys: TextColumn | None
    ahead_ms: int
    rows: int

    @classmethod
    def of(cls, place: int, entry: Entry, effects: Effects) -> Noted:
        """What this entry's command did."""
        changes, ahead_ms = effects.changes, 0
        keys = entry.texts.get("key")
        if keys is not None:
            # A copy: the column may be a piece of what came with the payloads.
            keys = TextColumn(keys.offsets.copy(), bytes(keys.data))
        if entry.kind is EntryKind.LEASE:
            ahead_ms = entry.params[0] - entry.now_ms
        rows = changes[0].sequences.size
        if len(changes) > 1:
            rows = sum(change.sequences.size for change in changes)
        return cls(place, entry.now_ms, changes, keys, ahead_ms, rows)


class Piece(NamedTuple):
    """What is recorded at once, of journal entries that follow on one another.

    Attributes:
        first, last: positions of the entries.
        base: position of the entry with place 0.
        noted: what they changed.
        consumers: who got a lease, by its position.
        pushed_ms: when leases of it went to their consumers; -1 = not known.
        missed: no changes: so many that are not recorded, 0 = it is not known how many.
        reason: why they are not recorded.
    """

    first: int
    last: int
    base: int
    noted: tuple[Noted, ...]
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
        return 1 if self.is_gap else sum(noted.rows for noted in self.noted)

    @property
    def at_ms(self) -> int:
        """When its last change was; those before were no later."""
        return self.noted[-1].at_ms if self.noted else self.gap_at_ms

    def after(self, position: int) -> Piece:
        """What of it came after a position."""
        place = position + 1 - self.base
        noted = tuple(one for one in self.noted if one.place >= place)
        return self._replace(first=position + 1, noted=noted)

    def by_hours(self) -> list[Piece]:
        """Pieces none of which lies in two hours."""
        noted = self.noted
        if not noted or noted[0].at_ms // HOUR_MS == noted[-1].at_ms // HOUR_MS:
            return [self]
        hours = [one.at_ms // HOUR_MS for one in noted]
        at = bisect_left(hours, hours[0] + 1)
        position = self.base + self.noted[at].place
        head = self._replace(last=position - 1, noted=noted[:at])
        return [head, *self._replace(first=position, noted=noted[at:]).by_hours()]
