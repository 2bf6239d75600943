"""Selection: messages by what they are, found in the table without any index.

Room: engine; pure, memory only. Reads the state, never changes it.
Holds: one call looks at a bounded number of rows, says how far it came, and goes on from there at
    the same price; a message that is not changed meanwhile is found once, whatever happens to
    others.
See: page.py for pages by due time; broker/calls/browse.py for what users may ask.

A message keeps its place in the table for life, so a walk in that order can be broken off, and its
finds moved or cancelled on the way.
"""

from __future__ import annotations

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.message_filter import DUE_END_MS, Selection
from dejaqueue.engine.page import scan_pages
from dejaqueue.engine.runs import Pair
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import URGENCY_FLIP

_PAGE_ROWS_MIN = 2_048
_STRETCH_ROWS_MIN = 4_096
_NONE = np.zeros(0, dtype=np.int64)


def matching_mask(state: PartitionState, selection: Selection, places: Int64s) -> Mask:
    """Which of these rows are of the selection's group, tags, priority and sender."""
    table = state.table
    mask = np.ones(places.size, dtype=np.bool_)
    if selection.group is not None:
        code = state.groups.code(selection.group)
        mask &= table.groups[places] == code if "groups" in table.uses else code == 0
    if selection.tags is not None:
        mask &= state.matching(selection.tags)(places + table.base)
    if selection.priority_from > 0 or selection.priority_to < limits.PRIORITY_MAX:
        priorities = state.priorities(places)
        if priorities is None:
            priorities = np.full(places.size, URGENCY_FLIP, dtype=np.uint16)
        mask &= priorities >= selection.priority_from
        mask &= priorities <= selection.priority_to
    if selection.sender is not None:
        mask &= state.sent_by(places, selection.sender)
    return mask


def selected_mask(state: PartitionState, selection: Selection, places: Int64s) -> Mask:
    """Which of these rows are selected."""
    table = state.table
    dues_ms = table.dues_ms[places]
    mask: Mask = _wanted_states(selection)[table.states[places]]
    mask &= (dues_ms >= selection.due_from_ms) & (dues_ms < selection.due_to_ms)
    mask[mask] = matching_mask(state, selection, places[mask])
    return mask


def _wanted_states(selection: Selection) -> Mask:
    wanted = np.zeros(256, dtype=np.bool_)
    wanted[[int(code) for code in selection.states]] = True
    return wanted


def _selected_of(state: PartitionState, selection: Selection, first: int, end: int) -> Int64s:
    """The places of this stretch of the table that are selected, ascending."""
    table = state.table
    if len(selection.states) == 1:
        mask: Mask = table.states[first:end] == int(selection.states[0])
    else:
        mask = _wanted_states(selection)[table.states[first:end]]
    if selection.due_from_ms > 0:
        mask &= table.dues_ms[first:end] >= selection.due_from_ms
    if selection.due_to_ms < DUE_END_MS:
        mask &= table.dues_ms[first:end] < selection.due_to_ms
    places = np.flatnonzero(mask)
    places += first
    if places.size and not selection.is_plain:
        places = places[matching_mask(state, selection, places)]
    return places


def find(
    state: PartitionState,
    selection: Selection,
    first_sequence: int,
    end_sequence: int,
    limit: int,
    rows_max: int,
) -> tuple[Int64s, int | None]:
    """The first selected messages by sequence, from `first_sequence` on, before `end_sequence`.

    Args:
        limit: messages at most.
        rows_max: rows to look at, about: a slab is looked at as a whole.

    Returns:
        Their sequences, and where to go on; None = there are no more.
    """
    table = state.table
    parts = [_NONE]
    left, looked = limit, 0
    rows = max(_STRETCH_ROWS_MIN, 2 * limit)
    for slab_first, slab_end in table.live_slabs():
        first = max(slab_first, first_sequence - table.base)
        end = min(slab_end, end_sequence - table.base)
        if first < end and looked >= rows_max:
            return np.concatenate(parts), first + table.base
        while first < end:
            if left <= 0:
                return np.concatenate(parts), first + table.base
            stop = min(end, first + rows)
            places = _selected_of(state, selection, first, stop)
            looked += stop - first
            parts.append(places[:left] + table.base)
            if places.size > left:
                return np.concatenate(parts), int(places[left]) + table.base
            left -= places.size
            # Where little is selected, longer stretches cost less.
            rows *= 1 if 2 * places.size > stop - first else 2
            first = stop
    return np.concatenate(parts), None


def tally(
    state: PartitionState,
    selection: Selection,
    first_sequence: int,
    rows_max: int,
    bucket_ms: int,
    bucket_count: int,
) -> tuple[Int64s, int | None]:
    """How many selected messages are due in each bucket of time, looking from that sequence on.

    Returns:
        A number for each bucket, int64 array of shape (bucket_count,), the first beginning at
        `due_from_ms`; and where to go on, None = that was all.
    """
    table = state.table
    counts = np.zeros(bucket_count, dtype=np.int64)
    looked = 0
    for slab_first, slab_end in table.live_slabs():
        first = max(slab_first, first_sequence - table.base)
        if first >= slab_end:
            continue
        if looked >= rows_max:
            return counts, first + table.base
        places = _selected_of(state, selection, first, slab_end)
        looked += slab_end - first
        if bucket_count == 1:
            counts[0] += places.size
        elif places.size:
            buckets = table.dues_ms[places] - selection.due_from_ms
            buckets //= bucket_ms
            counts += np.bincount(buckets, minlength=bucket_count)
    return counts, None


def tally_index(
    state: PartitionState, due_from_ms: int, due_to_ms: int, bucket_ms: int, bucket_count: int
) -> tuple[Int64s, int]:
    """As `tally` of all that is scheduled between two times, from the order index alone.

    Returns:
        The numbers, and by how much all of them together may be too high: what lies in the index
        for messages that are leased, done or moved by now. 0 = they are exact. Only for
        partitions whose order is by due time. Cost: O(runs × buckets), and O(young entries).
    """
    order = state.order
    edges = due_from_ms + bucket_ms * np.arange(bucket_count + 1, dtype=np.int64)
    edges = np.minimum(edges, max(due_from_ms, due_to_ms))
    counts = np.zeros(bucket_count, dtype=np.int64)
    for run in order.small + order.sealed:
        counts += np.diff(np.maximum(run.keys.searchsorted(edges, "left"), run.start))
    for batch in order.young:
        keys = batch[3]
        buckets = keys[(keys >= due_from_ms) & (keys < edges[-1])] - due_from_ms
        counts += np.bincount(buckets // bucket_ms, minlength=bucket_count)
    return counts, order.entry_count - state.counts.scheduled


def due_before(state: PartitionState, instants_ms: Int64s) -> tuple[Int64s, int]:
    """How many entries of the order index are due before each of these rising instants; for a rough
    look ahead.

    Returns:
        A number for each instant, and by how much it may be too high, as for `tally_index`. What
        is ready in a partition of another order than time is not among them. Cost: O(runs), and
        O(young entries); about 100 µs for 10 million messages.
    """
    order = state.order
    counts = np.zeros(instants_ms.size, dtype=np.int64)
    for run in order.small + order.sealed:
        counts += np.maximum(run.keys.searchsorted(instants_ms, "left"), run.start) - run.start
    young = [batch[3] for batch in order.young if batch[0] < instants_ms[-1]]
    if young:
        keys = np.concatenate(young)
        # One pass for each instant beats sorting: they are a handful.
        counts += [np.count_nonzero(keys < instant) for instant in instants_ms.tolist()]
    return counts, order.entry_count - state.counts.scheduled


def due_page(
    state: PartitionState, selection: Selection, after: Pair, limit: int, rows_max: int
) -> tuple[Int64s, Pair | None]:
    """The next selected scheduled messages by (due, sequence), after the given pair.

    Only for partitions whose order is by due time: elsewhere what is ready is not among them.

    Returns:
        Their sequences, and the pair up to which all was looked at; None = there are no more.
    """
    parts = [_NONE]
    left = limit
    page_rows = limit if selection.is_plain else max(limit, _PAGE_ROWS_MIN)
    pages_left = max(1, rows_max // (2 * page_rows))
    after = max(after, (selection.due_from_ms, -1))
    until = selection.due_to_ms - 1
    for keys, sequences, reached in scan_pages(state.order, after, until, page_rows, state.is_due):
        if not selection.is_plain:
            mask = matching_mask(state, selection, state.table.places(sequences))
            keys, sequences = keys[mask], sequences[mask]
        parts.append(sequences[:left])
        if sequences.size > left:
            return np.concatenate(parts), (int(keys[left - 1]), int(sequences[left - 1]))
        left -= sequences.size
        pages_left -= 1
        if left <= 0 or pages_left <= 0:
            return np.concatenate(parts), reached
    return np.concatenate(parts), None
