"""What happens to a partition when its owner's clock is put right.

Room: engine; pure. With apply.py and decisions.py the only writer of a PartitionState.
Holds: what the owner gave keeps what is left of it; what somebody asked for stays where it was;
    nothing is handed out, ends or dies here, the next command sees to that.
See: commands.py, SetTime; broker/shard/timekeeping.py for when; rule 16; ADR 0026.
"""

from __future__ import annotations

import numpy as np

from dejaqueue import limits
from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.fair import FairReady
from dejaqueue.engine.ready import Lane
from dejaqueue.engine.runs import Pair
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import LEASED, RETURNED, SCHEDULED


def set_time(state: PartitionState, command: commands.SetTime) -> Effects:
    """The time is another one. Cost: O(live messages)."""
    by_ms, now_ms = command.by_ms, command.now_ms
    until = state.ready_until_ms, state.ready_until_sequence
    if until[0] > now_ms:
        until = now_ms, limits.SEQUENCE_MAX
    _shift_dues(state, by_ms)
    state.leases.shift(by_ms)
    for staged in state.staged.values():
        staged.until_ms = max(0, staged.until_ms - by_ms)
    state.producers.shift(by_ms, now_ms)
    state.now_ms = now_ms
    _order_anew(state, until)
    return Effects()


def _shift_dues(state: PartitionState, by_ms: int) -> None:
    """Leases end, and what came back is due, as long from now as before."""
    table = state.table
    has_returned = "returned" in table.uses
    for places in table.live_places():
        states = table.states[places]
        leased = places[states == LEASED]
        table.will_write(leased)
        table.dues_ms[leased] -= by_ms
        if has_returned:
            returned = places[(states == SCHEDULED) & (table.returned[places] & RETURNED != 0)]
            table.will_write(returned)
            table.dues_ms[returned] = np.maximum(table.dues_ms[returned] - by_ms, 0)


def _order_anew(state: PartitionState, until: Pair) -> None:
    """Put all that is scheduled into new indexes; what is up to there is ready, as it was."""
    if state.rules.keeps:
        return
    table, starts = state.table, state.starts()
    _empty_indexes(state)
    for places in table.live_places():
        scheduled = places[table.states[places] == SCHEDULED]
        if scheduled.size:
            dues_ms: Int64s = table.dues_ms[scheduled]
            state.lane.insert(dues_ms, scheduled + table.base)
    if state.ready is not None:
        state.fill_ready(*until)
    if isinstance(state.ready, FairReady):
        state.ready.restore(starts)


def _empty_indexes(state: PartitionState) -> None:
    state.lane = Lane(state.layout)
    state.ready = None
    state.configure(state.rules)
