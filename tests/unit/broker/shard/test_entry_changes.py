"""What the entry of a command changed, as it is kept until it is recorded."""

from __future__ import annotations

import numpy as np

from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.engine.effects import Change, Effects
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn
from dejaqueue.model import ChangeKind


def change(*sequences: int) -> Change:
    return Change(ChangeKind.ACKED, np.array(sequences), None, None, None, None)


def test_keys_are_copied_and_a_lease_knows_how_far_ahead_it_was() -> None:
    content = bytearray(b"ab")
    entry = Entry(
        EntryKind.ENQUEUE,
        100,
        (0, 0, 0, 0),
        2,
        (np.array([1, 2]),),
        {"key": TextColumn(np.array([0, 1, 2], dtype=np.int32), memoryview(content))},
    )
    one = EntryChanges.of(3, entry, Effects(changes=(change(0, 1),)))
    content[0] = 0
    assert one.keys is not None
    assert bytes(one.keys.data) == b"ab"
    assert (one.entry_index, one.at_ms, one.rows, one.ahead_ms) == (3, 100, 2, 0)
    lease = Entry(EntryKind.LEASE, 100, (125, 1, 0, 0))
    assert EntryChanges.of(0, lease, Effects(changes=(change(0),))).ahead_ms == 25
