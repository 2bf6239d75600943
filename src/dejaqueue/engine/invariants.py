"""What must always be true of a partition, each as one function that can be read aloud.

Room: engine; pure. For tests and for doubt: costs O(everything).
Holds: `check` changes nothing that can be told from outside.
See: tests/model, which checks after every step.
"""

from __future__ import annotations

import numpy as np

from dejaqueue.engine.leases import held_mask
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import DEAD, LEASED, SCHEDULED, STAGED, STAGED_ACK
from dejaqueue.errors import InternalError
from dejaqueue.schema.keys import NO_KEY


def counts_are_those_of_the_table(state: PartitionState) -> bool:
    """As many rows are in each state as the counts say."""
    found: list[int] = np.bincount(state.table.states, minlength=6).tolist()[1:]
    counts = state.counts
    return found == [
        counts.scheduled,
        counts.leased,
        counts.dead,
        counts.staged,
        counts.staged_acks,
    ]


def what_came_in_is_live_or_went(state: PartitionState) -> bool:
    """Every message that was enqueued, or came back, is live, acked, cancelled, buried or
    aborted."""
    counts = state.counts
    return (
        counts.enqueued == state.table.next_sequence - state.rules.ids_from
        and counts.enqueued + counts.replayed
        == counts.live + counts.acked + counts.cancelled + counts.buried + counts.aborted
    )


def slabs_count_their_live_rows(state: PartitionState) -> bool:
    """Each slab knows how many of its rows are live, and no row beyond the last was written."""
    table = state.table
    slabs = np.flatnonzero(table.states) >> table.slab_bits
    lives = np.bincount(slabs, minlength=table.slab_lives.size)
    unused = table.states[table.row_count :]
    return bool((lives == table.slab_lives).all()) and not unused.any()


def runs_are_sorted(state: PartitionState) -> bool:
    """Every sorted run ascends by (key, sequence)."""
    for run in state.order.small + state.order.sealed:
        same = run.keys[1:] == run.keys[:-1]
        rising = (run.keys[1:] > run.keys[:-1]) | (same & (run.sequences[1:] >= run.sequences[:-1]))
        if not rising.all() or run.start >= run.keys.size or run.head != run.keys[run.start]:
            return False
    return True


def entries_are_counted(state: PartitionState) -> bool:
    """The order index knows how many entries it holds, and the smallest sealed one."""
    order = state.order
    count = sum(len(run) for run in order.small + order.sealed)
    count += sum(batch[3].size for batch in order.young)
    guard = min((run.first_pair() for run in order.sealed), default=None)
    return count == order.entry_count and guard == order.guard


def scheduled_rows_are_in_the_order_index(state: PartitionState) -> bool:
    """Every scheduled row has an entry with its due time, unless it is among the ready ones, or
    kept for nobody."""
    order, table = state.order, state.table
    if state.rules.keeps:
        return not order.entry_count
    runs = order.small + order.sealed
    keys = [run.keys[run.start :] for run in runs] + [batch[3] for batch in order.young]
    sequences = [run.sequences[run.start :] for run in runs] + [batch[4] for batch in order.young]
    indexed_mask = np.zeros(table.states.size, dtype=np.bool_)
    for some_keys, some_sequences in zip(keys, sequences, strict=True):
        mask = state.is_due(some_keys, some_sequences)
        indexed_mask[some_sequences[mask] - table.base] = True
    if state.ready is not None:
        indexed_mask[state.ready_places()] = True
    return bool((indexed_mask == (table.states == SCHEDULED)).all())


def leased_rows_are_in_leases(state: PartitionState) -> bool:
    """Every leased row is in a lease with its attempt, and its lease ends after now, unless it
    was extended to an end that is over already; the next command gives those back."""
    table = state.table
    listed_mask = np.zeros(table.states.size, dtype=np.bool_)
    for lease in state.leases.by_id.values():
        places = table.places(lease.sequences)
        listed_mask[places[held_mask(table, places, lease.attempts)]] = True
    return bool((listed_mask == (table.states == LEASED)).all())


def next_end_is_that_of_the_table(state: PartitionState) -> bool:
    """The next lease end is the smallest one in the table."""
    table = state.table
    ends_ms = table.dues_ms[table.states == LEASED]
    return state.leases.next_end_ms(table) == (int(ends_ms.min()) if ends_ms.size else None)


def every_key_finds_its_messages(state: PartitionState) -> bool:
    """Every live message with a key is found by that key's hash."""
    table = state.table
    if "key_hashes" not in table.uses or state.rules.keeps:
        return True
    for places in table.live_places():
        keyed = places[table.key_hashes[places] != NO_KEY]
        wanted, sequences = state.keys.candidates(table.key_hashes[keyed], table)
        if np.count_nonzero(keyed[wanted] + table.base == sequences) != keyed.size:
            return False
    return True


def payloads_add_up(state: PartitionState) -> bool:
    """The sizes of live payloads that were noted add up to what is counted."""
    if "payload_sizes" not in state.table.uses:
        return state.payload_bytes == state.sized_count == 0
    found = [state.table.payload_sizes[places] for places in state.table.live_places()]
    sizes = np.concatenate([*found, np.zeros(0, dtype=np.uint32)])
    sizes = sizes[sizes > 0].astype(np.int64) - 1
    return (int(sizes.sum()), sizes.size) == (state.payload_bytes, state.sized_count)


def dead_rows_are_in_groups(state: PartitionState) -> bool:
    """Every dead row is in one group of dead, every staged one in one transaction."""
    table = state.table
    dead = [group.sequences for group in state.dead.values()]
    enqueued = [part for staged in state.staged.values() for part in staged.enqueued]
    acked = [part for staged in state.staged.values() for part in staged.acked]
    for parts, code in ((dead, DEAD), (enqueued, STAGED), (acked, STAGED_ACK)):
        sequences = np.sort(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]), kind="stable")
        if not np.array_equal(sequences - table.base, np.flatnonzero(table.states == code)):
            return False
    return True


def names_count_their_messages(state: PartitionState) -> bool:
    """Each group and each set of tags knows how many live messages have it."""
    table = state.table
    for column, words in (("groups", state.groups), ("tag_sets", state.tag_sets)):
        if column in table.uses:
            codes = getattr(table, column)[table.states != 0]
            lives = np.bincount(codes, minlength=words.lives.size)
            if not np.array_equal(lives[1:], words.lives[1:]):
                return False
    return True


def every_sender_has_a_name(state: PartitionState) -> bool:
    """The code of each live message's sender is that of a name."""
    table = state.table
    if "senders" not in table.uses:
        return True
    codes = np.unique(table.senders[table.states != 0]).tolist()
    return all(code == 0 or state.senders.names[code] for code in codes)


def entries_are_listed_at_their_times(state: PartitionState) -> bool:
    """Each cron entry is found when it is to be looked at, and no other is."""
    return state.entries.is_whole()


INVARIANTS = (
    entries_are_listed_at_their_times,
    dead_rows_are_in_groups,
    names_count_their_messages,
    every_sender_has_a_name,
    counts_are_those_of_the_table,
    what_came_in_is_live_or_went,
    slabs_count_their_live_rows,
    runs_are_sorted,
    entries_are_counted,
    scheduled_rows_are_in_the_order_index,
    leased_rows_are_in_leases,
    next_end_is_that_of_the_table,
    every_key_finds_its_messages,
    payloads_add_up,
)


def check(state: PartitionState) -> None:
    """Raise InternalError naming the first invariant that is breached."""
    for invariant in INVARIANTS:
        if not invariant(state):
            raise InternalError(f"breached: {invariant.__name__.replace('_', ' ')}")
