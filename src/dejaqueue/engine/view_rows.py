"""Rows of a view that begins when there are messages already.

Room: engine; pure. Part of what the commands OpenView and SeedView do.
Holds: a row has the locator, key, tags, sender and life that it has in the view it is taken from;
    what decides is the commands alone, so a replay seeds the same rows.
See: seeding.py, which says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dejaqueue.engine import apply
from dejaqueue.engine.arrays import Int32s, Int64s, Mask, Words
from dejaqueue.engine.dictionary import Dictionary
from dejaqueue.engine.records import Staged
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import DONE, SCHEDULED, STAGED
from dejaqueue.model import TagFilter

_AS_THEY_ARE = ("key_hashes", "payload_sizes", "urgencies", "expires_ms")
"""Wide columns without codes, which are copied."""
_NONE = np.zeros(0, dtype=np.int64)


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


def taken_in(sources: Sequence[PartitionState], sequences: Int64s, takes: TagFilter) -> Mask:
    """Which of these messages have such tags in the first of these that has them."""
    mask: Mask = np.zeros(sequences.size, dtype=np.bool_)
    left: Mask = np.ones(sequences.size, dtype=np.bool_)
    for source in sources:
        rows = np.flatnonzero(left & (source.table.states[source.table.places(sequences)] != DONE))
        mask[rows] = source.matching(takes)(sequences[rows])
        left[rows] = False
    return mask


def pass_over(state: PartitionState, sequences: Int64s) -> Int64s:
    """Those of these messages that are scheduled, and not for this view, are done; returns their
    locators. Without tags that it takes it is for none."""
    table, takes = state.table, state.rules.takes
    places = table.places(sequences)
    places = places[table.states[places] == SCHEDULED]
    if takes is not None:
        places = places[~state.matching(takes)(places + table.base)]
    state.unschedule(places)
    state.counts.scheduled -= places.size
    state.counts.acked += places.size
    locators = state.finish(places)
    state.sweep_order()
    return locators


def begin(state: PartitionState, first: int, next_sequence: int) -> None:
    """An empty view may get messages from that sequence on; the next new one has the other."""
    table = state.table
    table.begin_at(first)
    table.row_count = next_sequence - table.base
    table.reserve(table.row_count)


def seed(
    state: PartitionState,
    sources: Sequence[PartitionState],
    sequences: Int64s,
    *,
    held_due_ms: int,
    arrived_ms: int | None,
    keyless: Int64s = _NONE,
) -> None:
    """Have a view begin with these messages, too. Cost: O(messages).

    Args:
        sources: the other views; the first that has a message says what it is like.
        sequences: ascending; none is done in all of them, and none was ever in this one.
        held_due_ms: when messages that are leased there are due here.
        arrived_ms: when all are due, in a view by arrival; None = when they are due there.
        keyless: those that have lost their keys.
    """
    if not sequences.size:
        return
    table = state.table
    table.reach_back(int(sequences[0]))
    places = sequences - table.base
    table.will_write(places)
    table.blank(places)
    left: Mask = np.ones(sequences.size, dtype=np.bool_)
    for source in sources:
        from_places = source.table.places(sequences)
        rows = np.flatnonzero(left & (source.table.states[from_places] != DONE))
        if rows.size:
            left[rows] = False
            copy_rows(state, source, places[rows], from_places[rows], held_due_ms, arrived_ms)
    table.revived(places)
    if "payload_sizes" in table.uses:
        state.count_sizes(places, 1)
    if "key_hashes" in table.uses:
        table.key_hashes[keyless - table.base] = 0
        state.keys.insert(table.key_hashes[places], sequences, table)
    scheduled = places[table.states[places] == SCHEDULED]
    state.schedule(scheduled, table.dues_ms[scheduled])
    apply.will_die_of_age(state, scheduled)
    # As if all that it has were the only messages that there ever were.
    state.counts.enqueued += sequences.size
    state.rules = replace(state.rules, ids_from=state.rules.ids_from - sequences.size)
    state.counts.scheduled += scheduled.size
    state.counts.staged += sequences.size - scheduled.size


def stage(state: PartitionState, source: PartitionState) -> None:
    """Know the transactions that are undecided there."""
    for name, staged in source.staged.items():
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
