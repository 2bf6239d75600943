"""Replay: a view goes to another place among its messages; what it was done with comes back.

Room: engine; pure. With apply.py and decisions.py a writer of a PartitionState.
Holds: what is leased, dead or staged stays as it is, and what a filter does not select; what comes
    back has an attempt that nobody was given yet, so that whoever had it before the replay can't
    settle it (rule 4); done twice in a row, the second time changes nothing.
See: commands.Seek; retention.py; rule 21; ADR 0071 for filters.

A view's places are times: where messages are in order of arrival, when they came in, else when they
are due. A message that comes back has no key: others may have taken it since. A filter is about
what a message is as it is retained, since a view of arrivals does not know when it is due, and one
that failed is due later there; what is not retained is what the view says.
"""

from __future__ import annotations

import numpy as np

from dejaqueue.engine import apply, commands, view_rows
from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.selection import selected_mask
from dejaqueue.engine.state import PartitionState, new_sequences
from dejaqueue.engine.table import DONE, FORGIVEN_MAX, SCHEDULED
from dejaqueue.model import ChangeKind

SEEK = "seek"
"""The reason that history gives for what a seek changes."""
_NONE = np.zeros(0, dtype=np.int64)


def seek(state: PartitionState, command: commands.Seek) -> Effects:
    """Messages from a place on come back; those before it are passed over.

    Cost: O(sequences in the span).
    """
    apply.begin(state, command.now_ms)
    table = state.table
    end = min(command.end, table.next_sequence)
    sequences = new_sequences(command.first, max(0, end - command.first))
    states = table.states[table.places(sequences)]
    done, scheduled = sequences[states == DONE], sequences[states == SCHEDULED]
    is_before: Mask = places_in_order(state, state, scheduled) < command.from_ms
    if command.wanted is not None:
        is_before &= _wanted(state, command.wanted, scheduled)
        done = done[_wanted(state, command.wanted, done)]
    freed = _pass_over(state, scheduled[is_before])
    _bring_back(state, command, done)
    if state.kept is not None and state.kept.by_arrival:
        _order_by_arrival(state, scheduled[~is_before])
    state.sweep_order()
    return Effects(freed_locators=freed)


def places_in_order(state: PartitionState, source: PartitionState, sequences: Int64s) -> Int64s:
    """Where each message is in the order of a view: a time.

    Args:
        source: has the messages.
    """
    kept = state.kept
    if kept is not None and kept.by_arrival and kept.arrivals.firsts:
        return kept.arrivals.spans(sequences)[1]
    dues_ms: Int64s = source.table.dues_ms[source.table.places(sequences)]
    return dues_ms


def _wanted(state: PartitionState, wanted: Selection, sequences: Int64s) -> Mask:
    """Which of these messages a filter selects: by what is retained of each, else by the view."""
    mask: Mask = np.zeros(sequences.size, dtype=np.bool_)
    left: Mask = np.ones(sequences.size, dtype=np.bool_)
    for source in (state,) if state.kept is None else (state.kept.state, state):
        places = source.table.places(sequences)
        here = left & (source.table.states[places] == SCHEDULED)
        mask[here] = selected_mask(source, wanted, places[here])
        left &= ~here
    return mask


def _pass_over(state: PartitionState, sequences: Int64s) -> Int64s:
    """These scheduled messages are done; returns their locators."""
    places = state.table.places(sequences)
    state.unschedule(places)
    state.counts.scheduled -= places.size
    state.counts.acked += places.size
    if state.changes is not None:
        state.note(ChangeKind.ACKED, places, SEEK, has_due=False)
    return state.finish(places)


def returning(state: PartitionState, now_ms: int, from_ms: int, sequences: Int64s) -> Mask:
    """Which of these messages are retained, alive, and not before that place of a view."""
    kept = state.kept
    if kept is None:
        return np.zeros(sequences.size, dtype=np.bool_)
    table = kept.state.table
    places = table.places(sequences)
    mask: Mask = table.states[places] == SCHEDULED
    if "expires_ms" in table.uses:
        expires_ms = table.expires_ms[places]
        mask &= (expires_ms == 0) | (expires_ms > now_ms)
    mask &= places_in_order(state, kept.state, sequences) >= from_ms
    if state.rules.takes is not None:
        mask &= kept.state.matching(state.rules.takes)(sequences)
    return mask


def _bring_back(state: PartitionState, command: commands.Seek, sequences: Int64s) -> None:
    """Those of these messages, which are done, that are to come back are scheduled again."""
    kept, table = state.kept, state.table
    sequences = sequences[returning(state, command.now_ms, command.from_ms, sequences)]
    if kept is None or not sequences.size:
        return
    table.reach_back(int(sequences[0]))
    places = sequences - table.base
    kept_places = sequences - kept.state.table.base
    table.will_write(places)
    table.blank(places)
    view_rows.copy_rows(state, kept.state, places, kept_places)
    if "key_hashes" in table.uses:
        table.key_hashes[places] = 0
    if kept.by_arrival:
        table.dues_ms[places] = kept.arrivals.spans(sequences)[0]
    attempts = kept.state.table.attempts[kept_places]
    table.attempts[places] = attempts
    if attempts.any():
        forgiven = np.minimum(attempts, FORGIVEN_MAX).astype(np.uint8)
        table.widen(places, "returned", forgiven << np.uint8(1))
    table.revived(places)
    if "payload_sizes" in table.uses:
        state.count_sizes(places, 1)
    state.counts.scheduled += places.size
    state.counts.replayed += places.size
    state.schedule(places, table.dues_ms[places])
    apply.will_die_of_age(state, places)
    if state.changes is not None:
        state.note(ChangeKind.MOVED, places, SEEK)


def _order_by_arrival(state: PartitionState, sequences: Int64s) -> None:
    """What was never delivered is due no later than what came in after it, and is back."""
    kept, table = state.kept, state.table
    if kept is None or not kept.arrivals.firsts or not sequences.size:
        return
    starts_ms = kept.arrivals.spans(sequences)[0]
    places = table.places(sequences)
    mask = (table.attempts[places] == 0) & (table.dues_ms[places] > starts_ms)
    places, starts_ms = places[mask], starts_ms[mask]
    state.unschedule(places)
    table.will_write(places)
    table.dues_ms[places] = starts_ms
    state.schedule(places, starts_ms)
