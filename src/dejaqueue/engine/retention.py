"""Retention: what a partition keeps of its messages when all views are done with them.

Room: engine; pure.
Holds: a view that nobody consumes: what comes in is in it, a producer's change counts in it while
    some view is not done with the message, and rows leave it by the command Forget alone; while it
    has a message its place in the journal is not freed. It has no order and no index of keys:
    nothing is leased from it, dies in it, or is found in it by a producer.
See: views.py, which has one; arrivals.py; replay.py, which brings messages back; rule 21; ADR 0063.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Int64s, Mask, distinct
from dejaqueue.engine.arrivals import Arrivals
from dejaqueue.engine.effects import Leased
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.table import DONE, SCHEDULED

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class Retention:
    """The messages that are retained.

    Attributes:
        number: of the view; no other one has it.
        engine: its rows; `attempts` is how often a message was delivered in the view that delivered
            it most, so that a replayed one gets no attempt again that somebody may still name.
        arrivals: when they came in.
    """

    number: int
    engine: Engine
    arrivals: Arrivals = field(default_factory=Arrivals)

    def seen_by(self, command: commands.Enqueue) -> commands.Enqueue:
        """New messages as they are retained."""
        return replace(command, sub_batches=(), firings=())

    def handed_out(self, leased: Leased) -> None:
        """A view delivered these messages."""
        table = self.engine.state.table
        places = table.places(leased.sequences)
        mask = table.states[places] != DONE
        places = places[mask]
        table.will_write(places)
        table.attempts[places] = np.maximum(table.attempts[places], leased.attempts[mask])

    def forget(self, command: commands.Forget) -> tuple[Int64s, Int64s]:
        """What is retained of messages before that sequence, and of those that are named, is gone:
        sequences and locators."""
        state = self.engine.state
        state.now_ms = max(state.now_ms, command.now_ms)
        table, parts = state.table, [_NONE]
        for first, end in table.live_slabs():
            end = min(end, command.before - table.base)
            if end <= first:
                break
            parts.append(np.flatnonzero(table.states[first:end] == SCHEDULED) + first)
        if command.sequences is not None:
            named = table.places(distinct(command.sequences))
            parts.append(named[table.states[named] == SCHEDULED])
        places = distinct(np.concatenate(parts))
        sequences = places + table.base
        state.counts.scheduled -= places.size
        state.counts.acked += places.size
        locators = state.finish(places)
        self.arrivals.forget(command.before)
        return sequences, locators

    def keyed(self, first: int, end: int, limit: int) -> tuple[Int64s, Int64s]:
        """Up to `limit` messages with keys that are retained, in that span; and the hashes."""
        table = self.engine.state.table
        if "key_hashes" not in table.uses:
            return _NONE, _NONE
        parts, found = [_NONE], 0
        for low, high in table.live_slabs():
            low, high = max(low, first - table.base), min(high, end - table.base)
            if high <= low or found >= limit:
                continue
            mask = (table.states[low:high] == SCHEDULED) & (table.key_hashes[low:high] != 0)
            parts.append(np.flatnonzero(mask)[: limit - found] + low)
            found += parts[-1].size
        places = np.concatenate(parts)
        return places + table.base, table.key_hashes[places]

    def has(self, sequences: Int64s) -> Mask:
        """Which of these messages are retained."""
        table = self.engine.state.table
        mask: Mask = table.states[table.places(sequences)] == SCHEDULED
        return mask

    @property
    def count(self) -> int:
        """How many messages are retained; those of undecided transactions are not yet."""
        return self.engine.counts.scheduled

    def too_much(self, byte_count: int, limit: int, mean_payload_bytes: int) -> int:
        """How far the first messages reach without which the payloads are of that many bytes at
        most: the sequence after the last of them.

        Args:
            limit: messages to look at, at most.
            mean_payload_bytes: as for `Engine.backlog`.
        """
        state = self.engine.state
        excess = self.engine.backlog(mean_payload_bytes)[1] - byte_count
        if excess <= 0:
            return 0
        sequences = self.oldest(state.table.next_sequence, limit)
        sizes = np.full(sequences.size, mean_payload_bytes, dtype=np.int64)
        if "payload_sizes" in state.table.uses:
            noted = state.table.payload_sizes[sequences - state.table.base].astype(np.int64)
            sizes = np.where(noted > 0, noted - 1, sizes)
        count = int(np.cumsum(sizes).searchsorted(excess)) + 1
        return int(sequences[:count][-1]) + 1 if sequences.size else 0

    def oldest(self, before: int, limit: int) -> Int64s:
        """Sequences of the first messages that are retained, below `before`."""
        table = self.engine.state.table
        parts, found = [_NONE], 0
        for first, end in table.live_slabs():
            end = min(end, before - table.base)
            if end <= first or found >= limit:
                break
            places = np.flatnonzero(table.states[first:end] == SCHEDULED) + first
            parts.append(places + table.base)
            found += places.size
        return np.concatenate(parts)[:limit]
