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
from dejaqueue.engine.commands import Effects, Int64s, Leased, UInt8s, UInt16s
from dejaqueue.engine.leases import held_mask
from dejaqueue.engine.runs import Mask
from dejaqueue.engine.state import PartitionState, new_sequences
from dejaqueue.engine.table import LEASED, SCHEDULED, row_locators
from dejaqueue.errors import InternalError
from dejaqueue.model import RowStatus

_OK = np.uint8(RowStatus.OK)
_NOT_FOUND = np.uint8(RowStatus.NOT_FOUND)
_IS_LEASED = np.uint8(RowStatus.LEASED)
_LEASE_LOST = np.uint8(RowStatus.LEASE_LOST)
_ATTEMPTS_MAX = np.uint16(limits.ATTEMPTS_MAX)
_NONE = np.zeros(0, dtype=np.int64)


def begin(state: PartitionState, now_ms: int) -> None:
    """It is `now_ms`: leases that ended by now are over."""
    state.now_ms = now_ms
    ended = state.leases.expire(state.table, now_ms)
    if ended is not None:
        state.order.insert(state.table.dues_ms[state.table.places(ended)], ended)
        state.counts.leased -= ended.size
        state.counts.scheduled += ended.size
        state.counts.expired += ended.size


def open_epoch(state: PartitionState, command: commands.OpenEpoch) -> Effects:
    """A new owner begins."""
    if command.epoch < state.epoch:
        raise InternalError(f"epoch {command.epoch} after epoch {state.epoch}")
    begin(state, command.now_ms)
    state.epoch = command.epoch
    return Effects()


def enqueue(state: PartitionState, command: commands.Enqueue) -> Effects:
    """New messages are scheduled (rules 10, 12)."""
    dues_ms = command.dues_ms
    count = dues_ms.size
    batches = command.sub_batches
    if batches and sum(batch.count for batch in batches) != count:
        raise InternalError(f"sub-batches do not add up to the {count} rows of the command")
    begin(state, command.now_ms)
    freed = _NONE if command.replaced is None else _replace(state, command.replaced)
    first_sequence = state.table.append(dues_ms, command.position << limits.ROW_BITS)
    sequences = new_sequences(first_sequence, count)
    # A copy: the command's column may be a view of the wire's or the journal's memory.
    state.order.insert(dues_ms.copy(), sequences)
    if command.key_hashes is not None:
        state.keys.insert(command.key_hashes, sequences, state.is_live)
    batch_first = first_sequence
    for batch in batches:
        if batch.producer:
            state.producers.remember(batch, batch_first, command.now_ms)
        batch_first += batch.count
    state.counts.scheduled += count
    state.counts.enqueued += count
    return Effects(first_sequence=first_sequence, freed_locators=freed)


def _replace(state: PartitionState, sequences: Int64s) -> Int64s:
    """Those of these messages that are scheduled are gone; returns their locators."""
    table = state.table
    places = np.unique(table.places(sequences))
    places = places[table.states[places] == SCHEDULED]
    freed = table.locators[places]
    table.finish(places)
    state.counts.scheduled -= places.size
    state.counts.cancelled += places.size
    return freed


def lease(state: PartitionState, command: commands.Lease) -> Effects:
    """Messages that are due are handed out, in order (rules 2, 3, 7).

    If there are none, nothing at all has changed, not even the time: such a command never gets
    into the journal, and so must leave no trace that a replay would miss.
    """
    now_ms, until_ms = command.now_ms, command.until_ms
    table, order, counts = state.table, state.order, state.counts
    end_ms = state.leases.next_end_ms(table) if command.count > 0 else None
    if end_ms is not None and end_ms <= now_ms and end_ms <= until_ms:
        begin(state, now_ms)  # this row at least will be leased, so the command leaves a trace
    dues_ms, sequences = order.pop(command.count, until_ms, state.is_due)
    count = sequences.size
    if command.count_expected not in (-1, count):
        raise InternalError(f"leased {count} messages where {command.count_expected} were before")
    if not count:
        return Effects()
    begin(state, now_ms)
    places = table.places(sequences)
    attempts: UInt16s = table.attempts[places]
    counts.redelivered += int(np.count_nonzero(attempts))
    attempts += attempts < _ATTEMPTS_MAX
    table.will_write(places)
    table.states[places] = LEASED
    table.attempts[places] = attempts
    table.dues_ms[places] = command.lease_end_ms
    locators = table.locators[places]
    state.leases.add(command.lease_id, sequences, attempts, command.lease_end_ms)
    counts.scheduled -= count
    counts.leased += count
    counts.delivered += count
    leased = Leased(command.lease_id, command.lease_end_ms, sequences, attempts, dues_ms, locators)
    return Effects(leased=leased)


def ack(state: PartitionState, command: commands.Ack) -> Effects:
    """Messages are done (rules 4, 6)."""
    rows = _Held(state, command)
    places = rows.held_places(once=True)
    if not places.size:
        return Effects(statuses=rows.statuses)
    freed = state.table.locators[places]
    state.table.finish(places)
    rows.forget_lease()
    state.counts.leased -= places.size
    state.counts.acked += places.size
    _sweep(state)
    return Effects(statuses=rows.statuses, freed_locators=freed)


def nack(state: PartitionState, command: commands.Nack) -> Effects:
    """Messages come back at a given time (rule 4)."""
    rows = _Held(state, command)
    places = rows.held_places(once=True)
    count = places.size
    if not count:
        return Effects(statuses=rows.statuses)
    table = state.table
    table.will_write(places)
    table.states[places] = SCHEDULED
    table.dues_ms[places] = command.due_ms
    dues_ms = np.full(count, command.due_ms, dtype=np.int64)
    state.order.insert(dues_ms, places + table.base)
    rows.forget_lease()
    state.counts.leased -= count
    state.counts.scheduled += count
    state.counts.nacked += count
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
        once = np.unique(places)  # a row may be named twice, but ends once
        state.leases.ends_earlier(
            command.lease_id, once + table.base, table.attempts[once], command.lease_end_ms
        )
    table.will_write(places)
    table.dues_ms[places] = command.lease_end_ms
    state.counts.extended += places.size
    return Effects(statuses=rows.statuses)


def move(state: PartitionState, command: commands.Move) -> Effects:
    """Scheduled messages get other times (rule 9)."""
    begin(state, command.now_ms)
    table = state.table
    sequences, dues_ms = command.sequences, command.dues_ms
    places = table.places(sequences)
    statuses, mask = _producer_statuses(state, places)
    if statuses is not None:
        places, dues_ms = places[mask], dues_ms[mask]
    repeats = _later_repeats(places[::-1])  # of a message named twice, the last row decides
    if repeats is not None:
        places, dues_ms = places[~repeats[::-1]], dues_ms[~repeats[::-1]]
    state.counts.moved += places.size
    changed_mask = table.dues_ms[places] != dues_ms
    if not changed_mask.all():
        places, dues_ms = places[changed_mask], dues_ms[changed_mask]
    if places.size:
        table.will_write(places)
        table.dues_ms[places] = dues_ms
        state.order.insert(dues_ms.copy(), places + table.base)
        _sweep(state)
    return Effects(statuses=statuses)


def cancel(state: PartitionState, command: commands.Cancel) -> Effects:
    """Scheduled messages are gone (rules 6, 9)."""
    begin(state, command.now_ms)
    table = state.table
    places = table.places(command.sequences)
    statuses, mask = _producer_statuses(state, places)
    repeats = _later_repeats(places if statuses is None else places[mask])
    if repeats is not None:
        indices = np.arange(places.size) if statuses is None else np.flatnonzero(mask)
        statuses = np.zeros(places.size, dtype=np.uint8) if statuses is None else statuses
        statuses[indices[repeats]] = _NOT_FOUND
        mask = statuses == _OK
    if statuses is not None:
        places = places[mask]
    freed = table.locators[places]
    table.finish(places)
    state.counts.scheduled -= places.size
    state.counts.cancelled += places.size
    _sweep(state)
    return Effects(statuses=statuses, freed_locators=freed)


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
    statuses: UInt8s = np.full(places.size, _NOT_FOUND)
    statuses[mask] = _OK
    statuses[states == LEASED] = _IS_LEASED
    return statuses, mask


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
    state.order.sweep(state.is_due, state.counts.scheduled)
    state.leases.sweep(state.table, state.counts.leased)
