"""What the entries of a journal changed: of which messages, by which command.

Room: broker. Columns as the engine gave them, by reference; nothing is encoded here.
Holds: made on the partition's worker and never changed afterwards.
See: commit.py, whose groups collect it; history/pieces.py, which joins those of one append.
"""

from __future__ import annotations

from typing import NamedTuple

from dejaqueue.engine.effects import Change, Effects
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn


class EntryChanges(NamedTuple):
    """What the command of one entry changed.

    Attributes:
        entry_index: of its entry in its group, from 0.
        at_ms: the time of the command.
        keys: of the rows of an enqueue; None = they have none.
        ahead_ms: how long before its due time a message could be leased by it.
        rows: changes of single messages.
    """

    entry_index: int
    at_ms: int
    changes: tuple[Change, ...]
    keys: TextColumn | None
    ahead_ms: int
    rows: int

    @classmethod
    def of(cls, entry_index: int, entry: Entry, effects: Effects) -> EntryChanges:
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
        return cls(entry_index, entry.now_ms, changes, keys, ahead_ms, rows)
