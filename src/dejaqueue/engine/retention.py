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
from dejaqueue.engine.arrays import Int64s
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
        """What is retained of messages before that sequence is gone: sequences and locators."""
        state = self.engine.state
        state.now_ms = max(state.now_ms, command.now_ms)
        table, parts = state.table, [_NONE]
        for first, end in table.live_slabs():
            end = min(end, command.before - table.base)
            if end <= first:
                break
            parts.append(np.flatnonzero(table.states[first:end] == SCHEDULED) + first)
        places = np.concatenate(parts)
        sequences = places + table.base
        state.counts.scheduled -= places.size
        state.counts.acked += places.size
        locators = state.finish(places)
        self.arrivals.forget(command.before)
        return sequences, locators

    @property
    def count(self) -> int:
        """How many messages are retained; those of undecided transactions are not yet."""
        return self.engine.counts.scheduled

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
