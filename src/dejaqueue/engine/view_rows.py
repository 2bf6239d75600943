"""Seeding: the first messages of a view that begins when there are messages already.

Room: engine; pure. Part of what the command OpenView does.
Holds: a row has the locator, key, tags, sender and life that it has in the view it is taken from;
    what decides is the commands alone, so a replay seeds the same rows.
See: views.py, which asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dejaqueue.engine import apply
from dejaqueue.engine.arrays import Int32s, Int64s, Mask, Words
from dejaqueue.engine.dictionary import Dictionary
from dejaqueue.engine.records import Staged
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import DONE, SCHEDULED, STAGED

_AS_THEY_ARE = ("key_hashes", "payload_sizes", "urgencies", "expires_ms")
"""Wide columns without codes, which are copied."""
_NONE = np.zeros(0, dtype=np.int64)


def everything(sources: Sequence[PartitionState]) -> Int64s:
    """Sequences of what is live in any of these views, ascending, each once."""
    parts = [_NONE]
    for state in sources:
        parts += [places + state.table.base for places in state.table.live_places()]
    return np.unique(np.concatenate(parts))


def dues_in(sources: Sequence[PartitionState], sequences: Int64s, held_due_ms: int) -> Int64s:
    """When each message is due in a view that takes it from the first of these that has it."""
    dues_ms = np.full(sequences.size, held_due_ms, dtype=np.int64)
    left: Mask = np.ones(sequences.size, dtype=np.bool_)
    for source in sources:
        places = source.table.places(sequences)
        states = source.table.states[places]
        rows = np.flatnonzero(left & (states == SCHEDULED))
        dues_ms[rows] = source.table.dues_ms[places[rows]]
        left &= states == DONE
    return dues_ms


def undecided(source: PartitionState) -> Int64s:
    """Sequences of what transactions sent that are not decided, ascending."""
    parts = [part for staged in source.staged.values() for part in staged.enqueued]
    sequences = np.concatenate([_NONE, *parts])
    sequences.sort(kind="stable")
    return sequences


def seed(
    state: PartitionState,
    sources: Sequence[PartitionState],
    sequences: Int64s,
    *,
    held_due_ms: int,
    arrived_ms: int | None,
    keyless: Int64s = _NONE,
) -> None:
    """Have an empty view begin with these messages. Cost: O(messages).

    Args:
        sources: the other views; the first that has a message says what it is like.
        sequences: ascending; none is done in all of them.
        held_due_ms: when messages that are leased there are due here.
        arrived_ms: when all are due, in a view by arrival; None = when they are due there.
        keyless: those that have lost their keys.
    """
    table, next_sequence = state.table, sources[0].table.next_sequence
    table.begin_at(int(sequences[0]) if sequences.size else next_sequence)
    table.row_count = next_sequence - table.base
    table.reserve(table.row_count)
    left: Mask = np.ones(sequences.size, dtype=np.bool_)
    for source in sources:
        from_places = source.table.places(sequences)
        rows = np.flatnonzero(left & (source.table.states[from_places] != DONE))
        if rows.size:
            left[rows] = False
            places = sequences[rows] - table.base
            copy_rows(state, source, places, from_places[rows], held_due_ms, arrived_ms)
    places = sequences - table.base
    table.slab_lives += np.bincount(places >> table.slab_bits, minlength=table.slab_lives.size)
    table.slab_dirty_mask |= table.slab_lives > 0
    if "payload_sizes" in table.uses:
        state.count_sizes(places, 1)
    if "key_hashes" in table.uses:
        table.key_hashes[keyless - table.base] = 0
        state.keys.insert(table.key_hashes[places], sequences, table)
    scheduled = places[table.states[places] == SCHEDULED]
    state.schedule(scheduled, table.dues_ms[scheduled])
    apply.will_die_of_age(state, scheduled)
    state.counts.enqueued = sequences.size
    state.counts.scheduled = scheduled.size
    state.counts.staged = sequences.size - scheduled.size
    for name, staged in sources[0].staged.items():
        state.staged[name] = Staged(
            staged.until_ms, list(staged.enqueued), replaced=list(staged.replaced)
        )


def copy_rows(
    state: PartitionState,
    source: PartitionState,
    places: Int64s,
    from_places: Int64s,
    held_due_ms: int = 0,
    arrived_ms: int | None = None,
) -> None:
    """Take rows over from another view; the caller counts them and puts them into indexes."""
    table, theirs = state.table, source.table
    states, dues_ms = theirs.states[from_places], theirs.dues_ms[from_places]
    is_staged = states == STAGED
    dues_ms[(states != SCHEDULED) & ~is_staged] = held_due_ms
    if arrived_ms is not None:
        dues_ms[~is_staged] = arrived_ms
    table.states[places] = np.where(is_staged, STAGED, SCHEDULED)
    table.dues_ms[places] = dues_ms
    table.locators[places] = theirs.locators[from_places]
    for name in _AS_THEY_ARE:
        if name in theirs.uses:
            table.widen(places, name, getattr(theirs, name)[from_places])
    if "groups" in theirs.uses:
        codes = state.group_codes(_words(source.groups, theirs.groups[from_places]))
        state.groups.come(codes)
        table.widen(places, "groups", codes)
        state.groups_moved |= source.groups_moved
    if "tag_sets" in theirs.uses:
        codes = state.tag_sets.codes(_words(source.tag_sets, theirs.tag_sets[from_places]))
        state.tag_sets.come(codes)
        table.widen(places, "tag_sets", codes)
    if "senders" in theirs.uses:
        words = _words(source.senders, theirs.senders[from_places])
        table.widen(places, "senders", state.sender_codes(words.names)[words.indices])


def _words(dictionary: Dictionary, codes: Int32s) -> Words:
    """The texts of these codes."""
    used, indices = np.unique(codes, return_inverse=True)
    names = tuple(dictionary.names[code] for code in used.tolist())
    return Words(names, indices.astype(np.int32))
