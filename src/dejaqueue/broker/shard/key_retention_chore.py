"""Retention by key: of what a topic retains, the newest message of each key is enough.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: a message goes only if a newer one that is retained has the same key, text by text; what
goes, goes by a command, so that a replay forgets the same ones; one piece a step.
See: engine/retention.py; retention_chore.py, for what is too old or too much; rule 21; ADR 0066.

It goes round and round: the messages that came since the round before, up to WINDOW of them, are
looked for among all that came earlier. What it knows is in memory; after a restart all are new.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dejaqueue.broker.shard.chore import Chore, wake_us
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.stored_rows import RowsAwaited
from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.commands import Forget
from dejaqueue.engine.retention import Retention

WINDOW = 262_144
"""Messages with keys that one round is about, at most; their hashes are sorted in one step."""
ROWS_MAX = 16_384
"""Messages that one step looks through."""
READ_MAX = 1_024
"""Keys that one step compares."""
LOOK_MS = 1_000
"""A round begins so long after the one before, at least."""


@dataclass(slots=True)
class _Cursor:
    """One round.

    Attributes:
        end: the sequence after the last message that it is about.
        hashes, sequences: of these, by hash and then newest first, the newest of each hash.
        first: the sequence to go on from.
    """

    end: int
    hashes: Int64s
    sequences: Int64s
    first: int = 0


class KeyRetentionChore(Chore):
    """Watches over the keys of what a partition retains."""

    def __init__(self) -> None:
        self._next_ms = 0
        self._seen = 0
        self._round: _Cursor | None = None

    def loaded(self, core: PartitionCore) -> None:
        """What was seen, was seen in another engine."""
        self._seen, self._round = 0, None

    def configured(self, core: PartitionCore) -> None:
        """It may be a thing to do from now on."""
        self._seen, self._round = 0, None
        self._next_ms = 0

    def step(self, core: PartitionCore) -> None:
        """Begin a round, or go on with it."""
        kept = core.views.retained
        if not core.topic().retention_keys or kept is None or not kept.count:
            self._round = None
            return
        now_ms = core.now_ms()
        if self._round is None:
            if now_ms < self._next_ms or self._seen >= core.engine.next_sequence:
                return
            self._round = self._begin(kept)
        try:
            self._go_on(core, kept, self._round, now_ms)
        except RowsAwaited:
            return  # it is rung when they are there

    def next_us(self, core: PartitionCore) -> int | None:
        """At once while a round is on; else when the next one may begin; None = nothing is new."""
        kept = core.views.retained
        if not core.topic().retention_keys or kept is None or not kept.count:
            return None
        if self._round is not None:
            return None if core.stored.is_awaited else core.clock.now_us()
        if self._seen >= core.engine.next_sequence:
            return None
        return wake_us(core, self._next_ms)

    def _begin(self, kept: Retention) -> _Cursor:
        sequences, hashes = kept.keyed(self._seen, kept.engine.next_sequence, WINDOW)
        end = kept.engine.next_sequence if sequences.size < WINDOW else int(sequences[-1]) + 1
        # The last of each hash: they ascend by sequence.
        hashes, places = np.unique(hashes[::-1], return_index=True)
        return _Cursor(end, hashes, sequences[::-1][places], kept.engine.live_from(0))

    def _go_on(self, core: PartitionCore, kept: Retention, turn: _Cursor, now_ms: int) -> None:
        first = kept.engine.live_from(turn.first)
        sequences, hashes = kept.keyed(first, min(first + ROWS_MAX, turn.end), READ_MAX)
        reached = min(first + ROWS_MAX, turn.end)
        if sequences.size == READ_MAX:
            reached = int(sequences[-1]) + 1
        newer = np.full(sequences.size, -1, dtype=np.int64)
        if turn.hashes.size:
            places = np.minimum(turn.hashes.searchsorted(hashes), turn.hashes.size - 1)
            newer = np.where(turn.hashes[places] == hashes, turn.sequences[places], newer)
        newer = np.where(kept.has(newer), newer, -1)
        mask: Mask = newer > sequences
        if mask.any():
            mask[mask] = _same_key(core, sequences[mask], newer[mask])
        if mask.any():
            core.apply(Forget(now_ms, 0, sequences[mask]))
        turn.first = reached
        if reached >= turn.end:
            self._seen, self._round, self._next_ms = turn.end, None, now_ms + LOOK_MS


def _same_key(core: PartitionCore, sequences: Int64s, newer: Int64s) -> Mask:
    """Which of these messages have the same key as the newer one, as it is stored."""
    both = np.concatenate([sequences, newer])
    keys = core.stored.read(core.views.locators(both), ("key",)).column(0)
    texts = keys.to_pylist()
    pairs = zip(texts[: sequences.size], texts[sequences.size :], strict=True)
    return np.array([one == other for one, other in pairs], dtype=np.bool_)
