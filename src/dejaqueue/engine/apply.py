"""What each command does, one function per kind, in the order of a message's life.

Room: engine; pure. The only writer of a PartitionState.
Holds: a command is applied whole; rows that cannot be are answered with a status; nothing but the
    commands and their order decides what happens.
See: transitions.py for the table of states, docs/reference/semantics.md for the rules.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dejaqueue import limits
from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Int64s, Mask, UInt8s, UInt16s, Words, distinct
from dejaqueue.engine.effects import Change, Effects, Leased
from dejaqueue.engine.leases import held_mask
from dejaqueue.engine.records import DeadGroup
from dejaqueue.engine.state import PartitionState, new_sequences
from dejaqueue.engine.table import (
    DEAD,
    FORGIVEN_MAX,
    LEASED,
    RETURNED,
    SCHEDULED,
    STAGED,
    STAGED_ACK,
    URGENCY_FLIP,
    row_locators,
)
from dejaqueue.engine.transitions import statuses_by_state
from dejaqueue.errors import InternalError
from dejaqueue.model import ChangeKind, RowStatus

_OK = np.uint8(RowStatus.OK)
_NOT_FOUND = np.uint8(RowStatus.NOT_FOUND)
_LEASE_LOST = np.uint8(RowStatus.LEASE_LOST)
# Move, cancel and depart: producers may change what is scheduled, and are refused alike.
_PRODUCER_STATUSES = statuses_by_state("cancel")
_ATTEMPTS_MAX = np.uint16(limits.ATTEMPTS_MAX)
_NONE = np.zeros(0, dtype=np.int64)

# Why messages die, where nobody gave a reason.
LEASE_ENDED = "lease ended"
REFUSED = "refused"
EXPIRED = "expired"
REPLACED = "replaced"
ABORTED = "aborted"


def begin(state: PartitionState, now_ms: int) -> None:
    """It is `now_ms`: leases that ended by now are over, and so are lives."""
    state.now_ms = now_ms
    ended = state.leases.expire(state.table, now_ms)
    if ended is not None:
        places = state.table.places(ended)
        state.counts.leased -= ended.size
        state.counts.expired += ended.size
        state.unlease(places)
        come_back(state, places, state.table.dues_ms[places], LEASE_ENDED, ChangeKind.LAPSED)
    if state.expiries.entry_count:
        _die_of_age(state, now_ms)


def _die_of_age(state: PartitionState, now_ms: int) -> None:
    """Scheduled messages whose time to live is over are dead."""
    head_ms = state.expiries.head(state.dies_then)
    if head_ms is None or head_ms > now_ms:
        return
    _, sequences = state.expiries.pop(state.counts.scheduled, now_ms, state.dies_then)
    places = state.table.places(sequences)
    state.unschedule(places)
    state.counts.scheduled -= places.size
    _die(state, places, EXPIRED)


def come_back(
    state: PartitionState,
    places: Int64s,
    dues_ms: Int64s,
    reason: str,
    kind: ChangeKind,
    *,
    waits: bool = True,
    wears_out: bool = True,
    is_counted: bool = True,
) -> None:
    """These rows were leased, each is named once: they are scheduled again, or dead.

    Args:
        dues_ms: when; later by the backoff if `waits`. Kept.
        reason: why they are dead, if they are.
        kind: what history says of those that are not.
        wears_out: they are dead if they were delivered often enough.
        is_counted: False = this delivery counts neither now nor later.
    """
    table, rules = state.table, state.rules
    alive = np.ones(places.size, dtype=np.bool_)
    if rules.max_attempts and wears_out:
        worn_out = table.tries(places) >= rules.max_attempts
        if worn_out.any():
            alive &= ~worn_out
            _die(state, places[worn_out], reason)
    if "expires_ms" in table.uses:
        expires_ms = table.expires_ms[places]
        old = alive & (expires_ms > 0) & (expires_ms <= state.now_ms)
        if old.any():
            alive &= ~old
            _die(state, places[old], EXPIRED)
    if not alive.all():
        places, dues_ms = places[alive], dues_ms[alive]
    if not places.size:
        return
    if waits:
        waits_ms = rules.waits_ms(places + table.base, table.tries(places))
        if waits_ms is not None:
            dues_ms = dues_ms + waits_ms
    table.will_write(places)
    table.states[places] = SCHEDULED
    table.dues_ms[places] = dues_ms
    returned = table.returned[places] | RETURNED
    if not is_counted:
        returned += (returned >> 1 < FORGIVEN_MAX).astype(np.uint8) << np.uint8(1)
    table.widen(places, "returned", returned)
    state.counts.scheduled += places.size
    state.schedule(places, dues_ms)
    will_die_of_age(state, places)
    if state.changes is not None:
        state.note(kind, places, "" if kind is ChangeKind.LAPSED else reason)


def will_die_of_age(state: PartitionState, places: Int64s) -> None:
    """Note when these scheduled rows die."""
    table = state.table
    if "expires_ms" not in table.uses or state.rules.keeps:
        return
    expires_ms = table.expires_ms[places]
    mortal = expires_ms > 0
    if mortal.any():
        state.expiries.insert(expires_ms[mortal], places[mortal] + table.base)


def _die(state: PartitionState, places: Int64s, reason: str, destination: str = "") -> None:
    """These rows, counted nowhere any more, are dead: their group waits to be buried."""
    if state.changes is not None:
        kind = ChangeKind.EXPIRED if reason == EXPIRED else ChangeKind.DEAD
        kind = ChangeKind.DEPARTED if destination else kind
        state.note(kind, places, destination or reason)
    state.table.will_write(places)
    state.table.states[places] = DEAD
    state.counts.dead += places.size
    state.counts.outlived += places.size if reason == EXPIRED else 0
    sequences = np.sort(places, kind="stable") + state.table.base
    state.dead[state.dead_number] = DeadGroup(sequences, reason, state.now_ms, destination)
    state.dead_number += 1


def open_epoch(state: PartitionState, command: commands.OpenEpoch) -> Effects:
    """A new owner begins."""
    if command.epoch < state.epoch:
        raise InternalError(f"epoch {command.epoch} after epoch {state.epoch}")
    begin(state, command.now_ms)
    state.epoch = command.epoch
    return Effects()


def enqueue(state: PartitionState, command: commands.Enqueue) -> Effects:
    """New messages are scheduled, or staged (rules 10, 12)."""
    dues_ms = command.dues_ms
    count = dues_ms.size
    batches = command.sub_batches
    if batches and sum(batch.count for batch in batches) != count:
        raise InternalError(f"sub-batches do not add up to the {count} rows of the command")
    begin(state, command.now_ms)
    freed = _NONE
    if command.replaced is not None and command.stage is None:
        freed = replace(state, command.replaced)
    first_sequence = state.table.append(
        dues_ms,
        command.position << limits.ROW_BITS,
        SCHEDULED if command.stage is None else STAGED,
    )
    sequences = new_sequences(first_sequence, count)
    places = sequences - state.table.base
    _widen(state, command, places)
    if command.stage is None:
        # A copy: the command's column may be a view of the wire's or the journal's memory.
        state.schedule(places, dues_ms.copy())
        will_die_of_age(state, places)
        state.counts.scheduled += count
    else:
        staged = state.stage(command.stage)
        staged.enqueued.append(sequences)
        if command.replaced is not None:
            staged.replaced.append(command.replaced)
        state.counts.staged += count
    if command.key_hashes is not None and not state.rules.keeps:
        state.keys.insert(command.key_hashes, sequences, state.table)
    batch_first = first_sequence
    for batch in batches:
        if batch.producer:
            state.producers.remember(batch, batch_first, command.now_ms)
        batch_first += batch.count
    state.counts.enqueued += count
    for firing in command.firings:
        state.entries.fired(firing, first_sequence)
    if state.changes is not None:
        kind = ChangeKind.ENQUEUED if command.stage is None else ChangeKind.STAGED
        state.note(kind, places)
    return Effects(first_sequence=first_sequence, freed_locators=freed)


def _widen(state: PartitionState, command: commands.Enqueue, places: Int64s) -> None:
    """Write what new rows have beside a time."""
    table = state.table
    if command.key_hashes is not None:
        table.widen(places, "key_hashes", command.key_hashes)
    if command.payload_sizes is not None:
        table.widen(places, "payload_sizes", command.payload_sizes + np.uint32(1))
        state.count_sizes(places, 1)
    if command.priorities is not None:
        table.widen(places, "urgencies", command.priorities ^ URGENCY_FLIP)
    if command.expires_ms is not None:
        table.widen(places, "expires_ms", command.expires_ms)
    if command.groups is not None:
        codes = state.group_codes(command.groups)
        state.groups.come(codes)
        table.widen(places, "groups", codes)
    if command.tags is not None:
        codes = state.tag_sets.codes(command.tags)
        state.tag_sets.come(codes)
        table.widen(places, "tag_sets", codes)
    if command.senders is not None:
        codes = state.sender_codes(command.senders.names)
        is_one = len(codes) == 1
        table.fill(places, "senders", codes[0] if is_one else codes[command.senders.indices])


def replace(state: PartitionState, sequences: Int64s) -> Int64s:
    """Those of these messages that are scheduled are gone; returns their locators."""
    places = distinct(state.table.places(sequences))
    places = places[state.table.states[places] == SCHEDULED]
    state.unschedule(places)
    state.counts.scheduled -= places.size
    state.counts.cancelled += places.size
    if state.changes is not None:
        state.note(ChangeKind.CANCELLED, places, REPLACED)
    return state.finish(places)


def lease(state: PartitionState, command: commands.Lease) -> Effects:
    """Messages that are due are handed out, in order (rules 2, 3, 7).

    If there are none, and no lease and no life ended, nothing at all has changed, not even the
    time: such a command never gets into the journal, and so must leave no trace that a replay
    would miss.
    """
    now_ms = command.now_ms
    table, counts = state.table, state.counts
    chore_ms = next_end_ms(state)
    has_chores = chore_ms is not None and chore_ms <= now_ms
    if has_chores:
        begin(state, now_ms)
    # Where there are pieces, a lease of no rows takes one over, too: nobody may have credit. One
    # that was begun ends so, also if the rules have changed since.
    in_pieces = state.rules.take_over_rows_max > 0 or state.is_taking_over
    looks_up = state.ready is not None and (command.count > 0 or in_pieces)
    promotes = looks_up and state.promote(now_ms)
    sequences = _take(state, command) if command.count > 0 else _NONE
    count = sequences.size
    if command.count_expected not in (-1, count):
        raise InternalError(f"leased {count} messages where {command.count_expected} were before")
    if not count and not has_chores and not promotes:
        return Effects(is_void=True)
    state.now_ms = now_ms
    if looks_up and not state.is_taking_over:
        state.ready_until_ms = now_ms
    if not count:
        return Effects()
    places = table.places(sequences)
    attempts: UInt16s = table.attempts[places]
    counts.redelivered += int(np.count_nonzero(attempts))
    attempts += attempts < _ATTEMPTS_MAX
    dues_ms = table.dues_ms[places]
    table.will_write(places)
    table.states[places] = LEASED
    table.attempts[places] = attempts
    table.dues_ms[places] = command.lease_end_ms
    locators = table.locators[places]
    state.leases.add(command.lease_id, sequences, attempts, command.lease_end_ms)
    counts.scheduled -= count
    counts.leased += count
    counts.delivered += count
    leased = Leased(
        command.lease_id,
        command.lease_end_ms,
        sequences,
        attempts,
        dues_ms,
        locators,
        state.priorities(places),
        state.groups_of(places) if state.groups_moved else None,
    )
    if command.filter is not None:
        state.sweep_order()  # the picked rows are still in the index
    if state.changes is not None:
        groups = state.groups_of(places) if "groups" in table.uses else None
        change = (sequences, dues_ms, attempts, leased.priorities, groups)
        state.changes.append(Change(ChangeKind.DELIVERED, *change))
    return Effects(leased=leased)


def _take(state: PartitionState, command: commands.Lease) -> Int64s:
    """The messages to lease, in order."""
    wanted, count = command.filter, command.count
    expected = command.count_expected
    if state.ready is None:
        until_ms = command.until_ms
        if wanted is None:
            return state.order.pop(count, until_ms, state.is_due)[1]
        matches = state.matching(wanted)
        return state.lane.pick(wanted, count, until_ms, state.is_due, matches, expected=expected)[1]
    if wanted is None:
        return state.ready.take(count, state.is_ready)
    matches = state.matching(wanted)
    return state.ready.take_matching(wanted, count, state.is_ready, matches, expected=expected)


def next_end_ms(state: PartitionState) -> int | None:
    """When the next lease or the next life ends; None if none does."""
    lease_ms = state.leases.next_end_ms(state.table)
    life_ms = None
    if state.expiries.entry_count:
        life_ms = state.expiries.head(state.dies_then)
    if lease_ms is None or life_ms is None:
        return life_ms if lease_ms is None else lease_ms
    return min(lease_ms, life_ms)


def ack(state: PartitionState, command: commands.Ack) -> Effects:
    """Messages are done (rules 4, 6), or will be when the transaction is committed."""
    rows = _Held(state, command)
    places = rows.held_places(once=True)
    if not places.size:
        return Effects(statuses=rows.statuses)
    state.counts.leased -= places.size
    state.unlease(places)
    freed = _NONE
    if command.stage is None:
        if state.changes is not None:
            state.note(ChangeKind.ACKED, places, has_due=False, named=rows.all_named())
        freed = state.finish(places)
        state.counts.acked += places.size
    else:
        state.table.will_write(places)
        state.table.states[places] = STAGED_ACK
        state.counts.staged_acks += places.size
        state.stage(command.stage).acked.append(places + state.table.base)
    rows.forget_lease()
    _sweep(state)
    return Effects(statuses=rows.statuses, freed_locators=freed)


def nack(state: PartitionState, command: commands.Nack) -> Effects:
    """Messages come back at a given time, or as the backoff says, or die (rule 4)."""
    rows = _Held(state, command)
    places = rows.held_places(once=True)
    count = places.size
    if not count:
        return Effects(statuses=rows.statuses)
    state.counts.leased -= count
    state.counts.nacked += count
    state.unlease(places)
    if command.bury:
        _die(state, places, command.reason or REFUSED)
    else:
        due_ms = command.now_ms if command.due_ms < 0 else command.due_ms
        dues_ms = np.full(count, due_ms, dtype=np.int64)
        come_back(
            state,
            places,
            dues_ms,
            command.reason or REFUSED,
            ChangeKind.NACKED,
            waits=command.due_ms < 0,
            wears_out=not command.release,
            is_counted=not command.release,
        )
    rows.forget_lease()
    _sweep(state)
    return Effects(statuses=rows.statuses)


def extend(state: PartitionState, command: commands.Extend) -> Effects:
    """The lease of messages ends at another time (rule 4). Of a row named twice, both are OK."""
    rows = _Held(state, command)
    places = rows.held_places(once=False)
    if not places.size:
        return Effects(statuses=rows.statuses)
    table = state.table
    if command.lease_end_ms < int(table.dues_ms[places].max()):
        once = distinct(places)  # a row may be named twice, but ends once
        state.leases.ends_earlier(
            command.lease_id, once + table.base, table.attempts[once], command.lease_end_ms
        )
    table.will_write(places)
    table.dues_ms[places] = command.lease_end_ms
    state.counts.extended += places.size
    return Effects(statuses=rows.statuses)


def move(state: PartitionState, command: commands.Move) -> Effects:
    """Scheduled messages get other times, priorities or groups (rule 9)."""
    begin(state, command.now_ms)
    table = state.table
    places = table.places(command.sequences)
    statuses, mask = _producer_statuses(state, places)
    rows = np.arange(places.size) if statuses is None else np.flatnonzero(mask)
    repeats = _later_repeats(places[rows][::-1])  # of a message named twice, the last row decides
    if repeats is not None:
        rows = rows[~repeats[::-1]]
    state.counts.moved += rows.size
    if command.dues_ms is not None and "returned" in table.uses:
        returned = places[rows][table.returned[places[rows]] & RETURNED != 0]
        table.will_write(returned)
        table.returned[returned] &= ~RETURNED  # somebody asked for this time
    # Where nothing changes, the entry in the index is still right: no second one is added.
    old_dues_ms = table.dues_ms[places[rows]]
    dues_ms = old_dues_ms if command.dues_ms is None else command.dues_ms[rows]
    if command.priorities is None and command.groups is None:
        changed_mask = old_dues_ms != dues_ms
        rows, dues_ms = rows[changed_mask], dues_ms[changed_mask]
    if not rows.size:
        return Effects(statuses=statuses)
    places = places[rows]
    state.unschedule(places)
    table.will_write(places)
    table.dues_ms[places] = dues_ms
    if command.priorities is not None:
        table.widen(places, "urgencies", command.priorities[rows] ^ URGENCY_FLIP)
    if command.groups is not None:
        groups = Words(command.groups.names, command.groups.indices[rows])
        codes = state.group_codes(groups)
        if "groups" in table.uses:
            state.groups.go(table.groups[places])
        state.groups.come(codes)
        table.widen(places, "groups", codes)
        state.groups_moved = True
    state.schedule(places, dues_ms.copy())
    if state.changes is not None:
        state.note(ChangeKind.MOVED, places)
    _sweep(state)
    return Effects(statuses=statuses)


def cancel(state: PartitionState, command: commands.Cancel) -> Effects:
    """Scheduled messages are gone (rules 6, 9)."""
    begin(state, command.now_ms)
    places, statuses = _take_away(state, command.sequences)
    if state.changes is not None:
        state.note(ChangeKind.CANCELLED, places)
    freed = state.finish(places)
    state.counts.cancelled += places.size
    _sweep(state)
    return Effects(statuses=statuses, freed_locators=freed)


def depart(state: PartitionState, command: commands.Depart) -> Effects:
    """Scheduled messages leave for another topic (rule 18)."""
    begin(state, command.now_ms)
    places, statuses = _take_away(state, command.sequences)
    if places.size:
        _die(state, places, "", command.destination)
    _sweep(state)
    return Effects(statuses=statuses)


def _take_away(state: PartitionState, sequences: Int64s) -> tuple[Int64s, UInt8s | None]:
    """Those of these messages that are scheduled are not any more: their places, and the statuses
    of all, None if all are OK."""
    table = state.table
    places = table.places(sequences)
    statuses, mask = _producer_statuses(state, places)
    repeats = _later_repeats(places if statuses is None else places[mask])
    if repeats is not None:
        indices = np.arange(places.size) if statuses is None else np.flatnonzero(mask)
        statuses = np.zeros(places.size, dtype=np.uint8) if statuses is None else statuses
        statuses[indices[repeats]] = _NOT_FOUND
        mask = statuses == _OK
    if statuses is not None:
        places = places[mask]
    state.unschedule(places)
    state.counts.scheduled -= places.size
    return places, statuses


def relocate(state: PartitionState, command: commands.Relocate) -> Effects:
    """The stored rows of messages are somewhere else now."""
    begin(state, command.now_ms)
    table = state.table
    sequences = command.sequences
    copies = row_locators(command.position, sequences.size)
    places = table.places(sequences)
    mask = table.states[places] != 0
    repeats = _later_repeats(places[mask])
    if repeats is not None:  # the first copy is as good as the others
        mask[np.flatnonzero(mask)[repeats]] = False
    places = places[mask]
    freed = np.concatenate([table.locators[places], copies[~mask]])
    table.will_write(places)
    table.locators[places] = copies[mask]
    state.counts.relocated += places.size
    return Effects(freed_locators=freed)


class _Held:
    """The rows that an Ack, Nack or Extend names, and which of them are held as it says.

    Attributes:
        statuses: RowStatus per row once `held_places` was asked; None = all OK.
    """

    def __init__(
        self, state: PartitionState, command: commands.Ack | commands.Nack | commands.Extend
    ) -> None:
        begin(state, command.now_ms)
        self._state = state
        self._lease_id = command.lease_id
        self.statuses: UInt8s | None = None
        self._sequences: Int64s | None = command.sequences
        self._attempts: UInt16s | None = command.attempts
        if command.lease_id >= 0:
            lease = state.leases.by_id.get(command.lease_id)
            self._sequences = lease.sequences if lease is not None else None
            self._attempts = lease.attempts if lease is not None else None
        elif command.sequences is None or command.attempts is None:
            raise InternalError("neither a lease nor rows are named")

    def held_places(self, *, once: bool) -> Int64s:
        """Places of the rows that are held; `once`: of a row named twice, only the first."""
        if self._sequences is None or self._attempts is None:
            self.statuses = np.full(1, _LEASE_LOST)
            return np.zeros(0, dtype=np.int64)
        table = self._state.table
        places = table.places(self._sequences)
        mask = held_mask(table, places, self._attempts)
        all_held = bool(mask.all())
        held = places if all_held else places[mask]
        repeats = _later_repeats(held) if once and self._lease_id < 0 else None
        if repeats is not None:
            mask[np.flatnonzero(mask)[repeats]] = False
            all_held, held = False, places[mask]
        if not all_held:
            self.statuses = np.where(mask, _OK, _LEASE_LOST)
            if self._lease_id >= 0 and not held.size:
                self.statuses = self.statuses[:1]  # as if it had been forgotten already
        return held

    def all_named(self) -> tuple[Int64s, UInt16s] | None:
        """Sequences and attempts of the rows, if all of a whole lease are held."""
        if self._lease_id < 0 or self.statuses is not None:
            return None
        if self._sequences is None or self._attempts is None:
            return None
        return self._sequences, self._attempts

    def forget_lease(self) -> None:
        """All rows that were held are not any more."""
        if self._lease_id >= 0:
            self._state.leases.drop(self._lease_id)


def _producer_statuses(state: PartitionState, places: Int64s) -> tuple[UInt8s | None, Mask]:
    """Statuses of rows that a producer may change if they are scheduled; None if all are."""
    states = state.table.states[places]
    mask: Mask = states == SCHEDULED
    if mask.all():
        return None, mask
    return _PRODUCER_STATUSES[states], mask


def _later_repeats(places: Int64s) -> npt.NDArray[np.bool_] | None:
    """Which places stand further in front already; None if each is there once (as mostly)."""
    if places.size < 2 or bool((places[1:] > places[:-1]).all()):
        return None
    # tidy: allow determinism, because equal places are one value: their order cannot be seen
    ordered = np.sort(places)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    repeats = np.ones(places.size, dtype=np.bool_)
    repeats[np.unique(places, return_index=True)[1]] = False
    return repeats


def _sweep(state: PartitionState) -> None:
    """Drop remains of what is done, if they have become too many; a bounded piece at a time."""
    state.sweep_order()
    state.leases.sweep(state.table, state.counts.leased)
