"""Seeding: a view that begins with messages that there are already gets them piece by piece.

Room: engine; pure. Begun by the command OpenView, gone on with by SeedView.
Holds: which messages the view begins with was settled when it was opened, but for what a producer
    takes back meanwhile: what a command may finish elsewhere is seeded before that command;
    each message is seeded once.
See: views.py, which asks; view_rows.py, which copies the rows; rule 19; ADR 0066.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dejaqueue.engine import commands, view_rows
from dejaqueue.engine.arrays import Int64s, Mask, distinct
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.replay import places_in_order, returning
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import DONE

_NONE = np.zeros(0, dtype=np.int64)
_BLOCK_BITS = 14


@dataclass(slots=True)
class Seeding:
    """How far it is, and what it was to begin with.

    Attributes:
        first: the next sequence whose turn it is.
        end: messages from here on came in after the view was opened.
        from_ms: the place in the view's order from which it has them, kept or live
            (commands.OpenView); None = all that are live.
        held_due_ms: when those are due here that are leased elsewhere.
        arrived_ms: when all are due, in a view by arrival; None = when they are due elsewhere.
        seen: of blocks of sequences, which have had their turn before it came to them.
    """

    first: int
    end: int
    from_ms: int | None
    held_due_ms: int
    arrived_ms: int | None
    seen: dict[int, Mask] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """True if all have had their turn."""
        return self.first >= self.end

    def turn(self, sources: Sequence[Engine], span: int) -> Int64s:
        """The messages whose turn it is, out of that many sequences; it is over then.

        Args:
            sources: whose live messages are asked for; where none has any is not looked at.
        """
        first = min(source.live_from(self.first) for source in sources)
        stop = min(first + span, self.end)
        self.first = max(self.first, stop)
        sequences = self._unseen(np.arange(first, stop, dtype=np.int64))
        for number in [number for number in self.seen if (number + 1) << _BLOCK_BITS <= stop]:
            del self.seen[number]
        return sequences

    def out_of_turn(self, sequences: Int64s) -> Int64s:
        """Those of these messages that have not had their turn; they have it now."""
        found = distinct(sequences)
        found = found[(found >= self.first) & (found < self.end)]
        found = self._unseen(found)
        self.see(found)
        return found

    def see(self, sequences: Int64s) -> None:
        """These messages have had their turn."""
        for number, rows in _blocks(sequences):
            mask = self.seen.setdefault(number, np.zeros(1 << _BLOCK_BITS, dtype=np.bool_))
            mask[sequences[rows] & ((1 << _BLOCK_BITS) - 1)] = True

    def _unseen(self, sequences: Int64s) -> Int64s:
        if not self.seen:
            return sequences
        unseen: Mask = np.ones(sequences.size, dtype=np.bool_)
        for number, rows in _blocks(sequences):
            mask = self.seen.get(number)
            if mask is not None:
                unseen[rows] = ~mask[sequences[rows] & ((1 << _BLOCK_BITS) - 1)]
        return sequences[unseen]

    def seed(
        self, state: PartitionState, sources: list[PartitionState], sequences: Int64s, now_ms: int
    ) -> None:
        """Have the view begin with those of these messages that it is to have.

        Args:
            sources: the other views, and what is retained where that counts; the first that has a
                message says what it is like.
        """
        kept = None if state.kept is None else state.kept.state
        is_live: Mask = np.zeros(sequences.size, dtype=np.bool_)
        for source in sources:
            if source is not kept:
                is_live |= source.table.states[source.table.places(sequences)] != DONE
        mask, keyless = is_live.copy(), _NONE
        if self.from_ms is not None:
            dues_ms = view_rows.dues_in(sources, sequences, self.held_due_ms)
            by_arrival = self.arrived_ms is not None
            if state.kept is not None and by_arrival and state.kept.arrivals.firsts:
                dues_ms = places_in_order(state, state.kept.state, sequences)
            mask &= dues_ms >= self.from_ms
            is_back = ~is_live & returning(state, now_ms, self.from_ms, sequences)
            mask, keyless = mask | is_back, sequences[is_back]
        if state.rules.takes is not None:
            mask &= view_rows.taken_in(sources, sequences, state.rules.takes)
            keyless = keyless[np.isin(keyless, sequences[mask], assume_unique=True)]
        view_rows.seed(
            state,
            sources,
            sequences[mask],
            held_due_ms=self.held_due_ms,
            arrived_ms=self.arrived_ms,
            keyless=keyless,
        )
        state.now_ms = max(state.now_ms, now_ms)

    def to_values(self) -> list[object]:
        """All of it, for JSON."""
        parts = [np.flatnonzero(mask) + (at << _BLOCK_BITS) for at, mask in self.seen.items()]
        seen = np.sort(np.concatenate([_NONE, *parts]), kind="stable")
        seen = seen[seen >= self.first]
        begins = np.flatnonzero(np.diff(seen, prepend=-2) != 1)
        counts = np.diff(begins, append=seen.size)
        runs = np.stack([seen[begins], counts], axis=1).tolist()
        return [self.first, self.end, self.from_ms, self.held_due_ms, self.arrived_ms, runs]

    @staticmethod
    def from_values(values: Any) -> Seeding:
        """What `to_values` gave. Raises ValueError, TypeError."""
        first, end, from_ms, held_due_ms, arrived_ms, runs = values
        from_ms = None if from_ms is None else int(from_ms)
        arrived_ms = None if arrived_ms is None else int(arrived_ms)
        seeding = Seeding(int(first), int(end), from_ms, int(held_due_ms), arrived_ms)
        for begin, count in runs:
            seeding.see(np.arange(begin, begin + count, dtype=np.int64))
        return seeding


def _blocks(sequences: Int64s) -> Iterator[tuple[int, slice]]:
    """Blocks that these sequences, which ascend, are in, and which of them each has."""
    numbers, begins = np.unique(sequences >> _BLOCK_BITS, return_index=True)
    ends = [*begins[1:].tolist(), sequences.size][: begins.size]
    for number, begin, end in zip(numbers.tolist(), begins.tolist(), ends, strict=True):
        yield number, slice(begin, end)


def may_finish(
    command: commands.Command, engines: dict[int, Engine], kept: Engine | None
) -> Int64s:
    """Sequences of messages that may be done in a view after this command, but for those that a
    producer takes back from all views.

    Args:
        engines: of the views by number, 0 = the unnamed one.
        kept: that of what is retained.
    """
    if isinstance(command, commands.InView):
        inner, engine = command.command, engines.get(command.number)
        if isinstance(inner, commands.Cancel):
            return inner.sequences
        return _NONE if engine is None else _finished_in(engine, inner)
    if isinstance(command, commands.Decide):
        parts = [_finished_in(engine, command) for engine in engines.values()]
        return np.concatenate(parts)
    if isinstance(command, commands.Forget) and kept is not None:
        parts = [_NONE, *_places_before(kept.state, command.before)]
        named = _NONE if command.sequences is None else command.sequences
        return np.concatenate([kept.state.table.base + np.concatenate(parts), named])
    return _finished_in(engines[0], command)


def _places_before(state: PartitionState, before: int) -> Iterator[Int64s]:
    """Places of live messages below that sequence, in pieces."""
    for places in state.table.live_places():
        if places[0] + state.table.base >= before:
            break
        yield places[places + state.table.base < before]


def _finished_in(engine: Engine, command: commands.Command) -> Int64s:
    state = engine.state
    match command:
        case commands.Ack() if command.sequences is not None:
            return command.sequences
        case commands.Ack():
            lease = state.leases.by_id.get(command.lease_id)
            return _NONE if lease is None else lease.sequences
        case commands.Bury():
            dead = engine.dead.get(command.group)
            return _NONE if dead is None else dead.sequences
        case commands.Decide():
            staged = state.staged.get(command.transaction)
            return _NONE if staged is None else np.concatenate([_NONE, *staged.acked])
        case commands.Seek():
            end = min(command.end, engine.next_sequence)
            return np.arange(command.first, max(command.first, end), dtype=np.int64)
        case _:
            return _NONE
