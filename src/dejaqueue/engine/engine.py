"""Engine: the state machine of one partition, and the door to it.

Room: engine; pure: no clock, no I/O, no threads, no randomness. One thread uses an engine.
Holds: `apply` is the only way to change the state, and only commands decide what it becomes; what
    was asked in between leaves no trace.
See: apply.py for what commands do; docs/internals/engine.md for the tour; rule 13.

>>> import numpy as np
>>> from dejaqueue.engine.commands import Enqueue, Lease
>>> engine = Engine(partition=0)
>>> effects = engine.apply(Enqueue(1000, 1, np.array([5000, 2000]), ()))
>>> engine.next_due_ms()
2000
>>> leased = engine.apply(Lease(2000, 2, until_ms=2000, count=10, lease_end_ms=32_000)).leased
>>> leased.sequences, leased.attempts
(array([1]), array([1], dtype=uint16))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dejaqueue import limits
from dejaqueue.engine import (
    apply,
    commands,
    decisions,
    invariants,
    replay,
    selection,
    timekeeping,
)
from dejaqueue.engine import apply_cron as apply_schedule
from dejaqueue.engine.arrays import Int64s, Mask, UInt8s, UInt16s, Words
from dejaqueue.engine.commands import Command
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.engine.leases import held_mask
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.producers import Answer
from dejaqueue.engine.records import Counts, DeadGroup
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.runs import Pair
from dejaqueue.engine.schedule import Schedule
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.state_hash import hash_state
from dejaqueue.engine.table import DONE, LEASED
from dejaqueue.errors import InternalError
from dejaqueue.model import MessageState, TagFilter

_STEPS: dict[type, Callable[[PartitionState, Any], Effects]] = {
    commands.OpenEpoch: apply.open_epoch,
    commands.Enqueue: apply.enqueue,
    commands.Lease: apply.lease,
    commands.Ack: apply.ack,
    commands.Nack: apply.nack,
    commands.Extend: apply.extend,
    commands.Move: apply.move,
    commands.Cancel: apply.cancel,
    commands.Relocate: apply.relocate,
    commands.Configure: decisions.configure,
    commands.Decide: decisions.decide,
    commands.Remember: decisions.remember,
    commands.Bury: decisions.bury,
    commands.PutEntries: apply_schedule.put_entries,
    commands.DropEntries: apply_schedule.drop_entries,
    commands.Depart: apply.depart,
    commands.SetTime: timekeeping.set_time,
    commands.Seek: replay.seek,
    commands.ForgetTexts: decisions.forget_texts,
}
_STORY_LINES = 64
_NONE = np.zeros(0, dtype=np.int64)


class Engine:
    """A partition: commands in, effects out.

    Attributes:
        partition: number of the partition within its topic.
        state: everything that it is, for this package only; others ask by a method.
        applied_count: commands that were begun: if it has not risen, nothing has changed.
    """

    def __init__(self, partition: int, layout: Layout = STANDARD) -> None:
        self.partition = partition
        self.state = PartitionState(layout)
        self.applied_count = 0
        self._story: deque[tuple[str, int, object]] = deque(maxlen=_STORY_LINES)

    # --- the only writer

    def apply(self, command: Command) -> Effects:
        """Do what the command says.

        A Lease whose effects are void changed nothing, and is not to be journalled.

        Raises:
            InternalError: the command cannot be what was meant: time runs backwards, rows do not
                add up, a replayed lease hands out another number of rows. Drop this engine.
        """
        state = self.state
        if command.now_ms < state.now_ms and not isinstance(command, commands.SetTime):
            raise InternalError(
                f"command of {command.now_ms} after one of {state.now_ms}", self.story()
            )
        self.applied_count += 1
        self._story.append((type(command).__name__, command.now_ms, _subject(command)))
        try:
            effects = _STEPS[type(command)](state, command)
        except InternalError as error:
            raise InternalError(str(error), self.story()) from None
        if state.changes is not None:
            effects.changes = tuple(state.changes)
            state.changes.clear()
        return effects

    def note_changes(self, wanted: bool) -> None:
        """Whether effects are to say what happened to which messages."""
        if wanted != (self.state.changes is not None):
            self.state.changes = [] if wanted else None

    def story(self) -> list[str]:
        """The last commands, one line each, oldest first."""
        return [f"{now_ms} {kind} {subject}" for kind, now_ms, subject in self._story]

    # --- what it is

    @property
    def next_sequence(self) -> int:
        """The sequence that the next new message gets."""
        return self.state.table.next_sequence

    @property
    def first_sequence(self) -> int:
        """No live message has a lower sequence."""
        table = self.state.table
        return next((first + table.base for first, _ in table.live_slabs()), table.next_sequence)

    def live_from(self, sequence: int) -> int:
        """No live message has a sequence from the given one on, and below this one."""
        table = self.state.table
        ends = ((first + table.base, end + table.base) for first, end in table.live_slabs())
        later = (max(first, sequence) for first, end in ends if end > sequence)
        return next(later, table.next_sequence)

    @property
    def now_ms(self) -> int:
        """Time of the last command that left a trace; the next one must not be before it, but for
        SetTime."""
        return self.state.now_ms

    @property
    def epoch(self) -> int:
        """Number of the ownership, 0 before the first."""
        return self.state.epoch

    @property
    def rules(self) -> Rules:
        """The topic's settings that it knows."""
        return self.state.rules

    @property
    def has_mortals(self) -> bool:
        """True if messages can die without a consumer: of age, or of attempts."""
        return bool(self.state.rules.max_attempts or self.state.expiries.entry_count)

    @property
    def counts(self) -> Counts:
        """How many messages are where, and how often things happened. Not to be changed."""
        return self.state.counts

    @property
    def dead(self) -> Mapping[int, DeadGroup]:
        """Messages on their way to another topic, by number of their group. Not to be changed."""
        return self.state.dead

    @property
    def dead_number(self) -> int:
        """The number that the next group of the dead gets."""
        return self.state.dead_number

    def answer(self, producer: str, number: int) -> Answer | None:
        """The answer to a producer's batch, if it is in already (rule 10); None if not."""
        return self.state.producers.answer(producer, number)

    # --- what it waits for

    def next_due_ms(self, wanted: TagFilter | None = None) -> int | None:
        """When there may be a message to lease; None if there is none.

        Args:
            wanted: for a consumer that takes such messages only: exact about what was looked at
                for this filter, but what was not yet may turn out not to match.
        """
        state = self.state
        if state.ready is not None:
            if state.ready.has_next(wanted, state.is_ready):
                return state.ready_until_ms
            return state.order.head(state.is_due)
        if wanted is None:
            return state.order.head(state.is_due)
        return state.lane.next_key(wanted, state.is_due)

    @property
    def is_taking_over(self) -> bool:
        """True if what is due is being made ready in pieces, and there may be more: a Lease, also
        one of no rows, takes the next."""
        return self.state.ready is not None and self.state.is_taking_over

    def next_expiry_ms(self) -> int | None:
        """When the next lease or life ends; None if none does. Any command from then on, also a
        Lease of no rows, gives the messages back, or has them die."""
        return apply.next_end_ms(self.state)

    @property
    def schedule(self) -> Schedule:
        """The cron entries. Not to be changed."""
        return self.state.entries

    # --- looking up

    def staged(self) -> dict[str, tuple[int, int, int]]:
        """Undecided transactions: until when, how many messages and how many acks are staged."""
        return {
            name: (
                held.until_ms,
                sum(part.size for part in held.enqueued),
                sum(part.size for part in held.acked),
            )
            for name, held in self.state.staged.items()
        }

    @property
    def staged_count(self) -> int:
        """How many transactions are undecided here."""
        return len(self.state.staged)

    def has_staged(self, transaction: str) -> bool:
        """True if something of that transaction is staged here."""
        return transaction in self.state.staged

    def staged_ends(self) -> dict[str, int]:
        """Undecided transactions, and until when each has time."""
        return {name: held.until_ms for name, held in self.state.staged.items()}

    def staged_sequences(self, transactions: Iterable[str]) -> Int64s:
        """What these transactions staged here, ascending."""
        staged = self.state.staged
        parts = [part for name in transactions for part in staged[name].enqueued]
        sequences = np.concatenate([*parts, _NONE])
        sequences.sort(kind="stable")
        return sequences

    @property
    def decisions(self) -> Mapping[str, tuple[bool, str]]:
        """What was decided of transactions whose home is here, oldest first: commit, and who has
        to be told, "" = nobody any more. Not to be changed."""
        return self.state.decided

    def states(self, sequences: Int64s) -> UInt8s:
        """MessageState of each message; DONE for what never was."""
        table = self.state.table
        return table.states[table.places(sequences)]

    def dues(self, sequences: Int64s) -> Int64s:
        """When each is due, or its lease ends; meaningless for what is done."""
        table = self.state.table
        return table.dues_ms[table.places(sequences)]

    def attempts(self, sequences: Int64s) -> UInt16s:
        """Deliveries of each so far; meaningless for what is done."""
        table = self.state.table
        return table.attempts[table.places(sequences)]

    def lease_ids(self, sequences: Int64s) -> Int64s:
        """Which lease each is in; -1 for what is not leased, or was not found (leases.py)."""
        table = self.state.table
        places = table.places(sequences)
        leased = np.flatnonzero(table.states[places] == LEASED)
        lease_ids = np.full(sequences.size, -1, dtype=np.int64)
        if leased.size:
            attempts = table.attempts[places[leased]]
            lease_ids[leased] = self.state.leases.ids_of(sequences[leased], attempts)
        return lease_ids

    def locators(self, sequences: Int64s) -> Int64s:
        """Where the stored row of each is; -1 for what is done."""
        table = self.state.table
        places = table.places(sequences)
        locators: Int64s = np.where(table.states[places] != DONE, table.locators[places], -1)
        return locators

    def priorities(self, sequences: Int64s) -> UInt16s | None:
        """The priority of each; None = all have the default."""
        return self.state.priorities(self.state.table.places(sequences))

    def expires(self, sequences: Int64s) -> Int64s | None:
        """When each dies, UTC milliseconds, 0 = never; None = none does."""
        table = self.state.table
        if "expires_ms" not in table.uses:
            return None
        expires_ms: Int64s = table.expires_ms[table.places(sequences)]
        return expires_ms

    def moved_groups(self, sequences: Int64s) -> Words | None:
        """The group of each, if groups changed since they were stored; else None."""
        if not self.state.groups_moved:
            return None
        return self.state.groups_of(self.state.table.places(sequences))

    def senders(self, sequences: Int64s) -> Words | None:
        """Who sent each, "" = nobody; None = nobody sent any. Those that are done are not asked."""
        return self.state.senders_of(self.state.table.places(sequences))

    def sent_by(self, sequences: Int64s, sender: str) -> Mask:
        """Which of these are live messages that this sender sent, bool array, shape (n,)."""
        return self.state.sent_by(self.state.table.places(sequences), sender)

    def backlog(self, mean_payload_bytes: int) -> tuple[int, int]:
        """How many messages are live, and bytes of their payloads.

        Args:
            mean_payload_bytes: of the messages whose size was not noted, as the topic had no limit
                of bytes when they came.
        """
        count = self.counts.live
        unknown = count - self.state.sized_count
        return count, self.state.payload_bytes + unknown * mean_payload_bytes

    def answers_of(self, producer: str) -> Mapping[int, Answer]:
        """The batches of a producer that are remembered, by number."""
        known = self.state.producers.by_name.get(producer)
        return {} if known is None else known.answers

    def ready_count(self, due_count: int, excess: int) -> tuple[int, int]:
        """How many messages are ready, and by how much that may be too many.

        Args:
            due_count: entries of the order index that are due.
            excess: how many of them are of messages that are elsewhere now; both as `due_before`
                counts them.
        """
        scheduled = self.counts.scheduled
        if self.state.ready is None:
            return min(due_count, scheduled), excess
        # What is ready is in an order of its own; what is not is all that the index has.
        later = self.state.order.entry_count - due_count
        return max(0, scheduled - later), max(0, later - scheduled)

    def has_key(self, wanted: Callable[[Int64s], Mask]) -> bool:
        """True if a live message has a key whose hash is wanted. Cost: O(live messages).

        Args:
            wanted: of hashes, none of which is 0, which are wanted.
        """
        table = self.state.table
        if "key_hashes" not in table.uses:
            return False
        for indices in table.live_places():
            hashes = table.key_hashes[indices]
            hashes = hashes[hashes != 0]
            if wanted(hashes).any():
                return True
        return False

    def is_keyless(self, sequence: int) -> bool:
        """True if this is a live message, neither dead nor staged, without a key."""
        table = self.state.table
        [index] = table.places(np.array([sequence], dtype=np.int64))
        if table.states[index] not in (MessageState.SCHEDULED, MessageState.LEASED):
            return False
        return "key_hashes" not in table.uses or not table.key_hashes[index]

    def find_keys(self, key_hashes: Int64s) -> tuple[Int64s, Int64s]:
        """Live messages that may have these keys: those with the same hash.

        Returns:
            Places in `key_hashes` and sequences, in order of both. Whether the stored key is the
            same is for the caller to compare.
        """
        return self.state.keys.candidates(key_hashes, self.state.table)

    def leased_rows(self, lease_id: int) -> tuple[Int64s, UInt16s] | None:
        """Sequences and attempts of a lease, in its order; None if none of them is held."""
        lease = self.state.leases.by_id.get(lease_id)
        if lease is None:
            return None
        table = self.state.table
        if not held_mask(table, table.places(lease.sequences), lease.attempts).any():
            return None
        return lease.sequences, lease.attempts

    def rows_of_leases(self, lease_ids: Int64s) -> tuple[Int64s, UInt16s, Int64s]:
        """Sequences and attempts of what these leases handed out, and how many each did."""
        return self.state.leases.rows_of(lease_ids)

    # --- looking around

    def selected(self, sequences: Int64s, wanted: Selection) -> Mask:
        """Which of these messages are selected."""
        state = self.state
        return selection.selected_mask(state, wanted, state.table.places(sequences))

    def page(
        self, wanted: Selection, *, after: Pair, limit: int, rows_max: int
    ) -> tuple[Int64s, Pair | None]:
        """Scheduled and leased messages by (due or lease end, sequence), after the given pair.

        Only for partitions whose order is by due time (selection.due_page).

        Args:
            after: due time and sequence of the last one of the page before; (-1, -1) at first.
            limit: messages at most.
            rows_max: entries of the index to look at, about.

        Returns:
            Sequences, and the pair up to which all was looked at; None = there are no more.
        """
        parts: list[Int64s] = [_NONE]
        reached: Pair | None = None
        if MessageState.SCHEDULED in wanted.states:
            sequences, reached = selection.due_page(self.state, wanted, after, limit, rows_max)
            parts.append(sequences)
        if MessageState.LEASED in wanted.states:
            sequences = self._leased_page(wanted, after)
            if sequences.size > limit:
                sequences = sequences[:limit]
                last = self._pair(sequences[-1])
                reached = last if reached is None or last < reached else reached
            parts.append(sequences)
        joined = np.concatenate(parts)
        joined = joined[np.lexsort((joined, self.dues(joined)))]
        if reached is not None:
            dues_ms = self.dues(joined)
            mask = (dues_ms < reached[0]) | ((dues_ms == reached[0]) & (joined <= reached[1]))
            joined = joined[mask]
        if joined.size > limit:
            joined = joined[:limit]
            reached = self._pair(joined[-1])
        return joined, reached

    def _pair(self, sequence: np.int64) -> Pair:
        return int(self.dues(np.array([sequence]))[0]), int(sequence)

    def _leased_page(self, wanted: Selection, after: Pair) -> Int64s:
        """Leased messages by (lease end, sequence). Cost: O(leased)."""
        leases, table = self.state.leases.by_id, self.state.table
        if not leases:
            return _NONE
        sequences = np.concatenate([lease.sequences for lease in leases.values()])
        attempts = np.concatenate([lease.attempts for lease in leases.values()])
        places = table.places(sequences)
        ends_ms = table.dues_ms[places]
        mask: Mask = held_mask(table, places, attempts)
        mask &= (ends_ms > after[0]) | ((ends_ms == after[0]) & (sequences > after[1]))
        mask[mask] = self.selected(sequences[mask], wanted)
        sequences, ends_ms = sequences[mask], ends_ms[mask]
        return sequences[np.lexsort((sequences, ends_ms))]

    def find(
        self, wanted: Selection, *, first: int, end: int, limit: int, rows_max: int
    ) -> tuple[Int64s, int | None]:
        """Selected messages by sequence, from `first` on, before `end` (selection.find)."""
        return selection.find(self.state, wanted, first, end, limit, rows_max)

    def tally(
        self, wanted: Selection, *, first: int, rows_max: int, bucket_ms: int, bucket_count: int
    ) -> tuple[Int64s, int | None]:
        """How many are due in each bucket of time, from that sequence on (selection.tally)."""
        return selection.tally(self.state, wanted, first, rows_max, bucket_ms, bucket_count)

    def tally_index(
        self, due_from_ms: int, due_to_ms: int, bucket_ms: int, bucket_count: int
    ) -> tuple[Int64s, int]:
        """As `tally` of what is scheduled, of the order index alone (selection.tally_index)."""
        return selection.tally_index(self.state, due_from_ms, due_to_ms, bucket_ms, bucket_count)

    def due_before(self, instants_ms: Int64s) -> tuple[Int64s, int]:
        """How many are due before each instant, of the order index (selection.due_before)."""
        return selection.due_before(self.state, instants_ms)

    def group_counts(self) -> tuple[list[str], Int64s]:
        """Every group that live messages have, and how many; those without one not counted."""
        return self.state.groups.counts()

    def tag_set_counts(self) -> tuple[list[str], Int64s]:
        """As `group_counts`, of sets of tags as they are packed (schema/packing.py)."""
        return self.state.tag_sets.counts()

    def due_count(self, until_ms: int) -> int:
        """How many scheduled messages are due by then.

        Cost: O(runs) if the order index holds nothing that is dead; else 60 µs for each slab of
        the table.
        """
        state = self.state
        if state.ready is None:
            counts, excess = self.tally_index(0, until_ms + 1, until_ms + 1, 1)
            if not excess or not counts[0]:
                return int(counts[0])
        wanted = Selection(due_to_ms=until_ms + 1)
        every = state.table.row_count
        return int(selection.tally(state, wanted, 0, every, 1, 1)[0][0])

    # --- for tests and replicas

    def state_hash(self) -> int:
        """64 bits, equal on engines that applied the same commands. Cost: O(live messages)."""
        return hash_state(self.state)

    def check(self) -> None:
        """Raise InternalError if an invariant is breached. Cost: O(live messages)."""
        invariants.check(self.state)

    # --- for the journal

    def live_sequences(self) -> Iterator[Int64s]:
        """Sequences of all live messages, ascending, in pieces. Do not `apply` meanwhile."""
        table = self.state.table
        for places in table.live_places():
            yield places + table.base

    def live_locators(self) -> Iterator[Int64s]:
        """Where the rows of all live messages are, in pieces. Do not `apply` meanwhile."""
        table = self.state.table
        for places in table.live_places():
            yield table.locators[places]

    def live_in(self, first_position: int, last_position: int, limit: int) -> Int64s:
        """Up to `limit` live messages stored in these journal entries, soonest due first."""
        table = self.state.table
        first = first_position << limits.ROW_BITS
        end = (last_position + 1) << limits.ROW_BITS
        parts: list[Int64s] = []
        for places in table.live_places():
            locators = table.locators[places]
            parts.append(places[(locators >= first) & (locators < end)])
        if not parts:
            return _NONE
        places = np.concatenate(parts)
        return places[np.lexsort((places, table.dues_ms[places]))][:limit] + table.base


def _subject(command: Command) -> object:
    """The part of a command that the story keeps: cheap, and without its columns."""
    if isinstance(command, commands.Enqueue):
        return command.position
    if isinstance(command, commands.Lease):
        return command.lease_id
    if isinstance(command, commands.Ack | commands.Nack | commands.Extend):
        return command.lease_id if command.sequences is None else len(command.sequences)
    if isinstance(command, commands.Move | commands.Cancel | commands.Depart | commands.Relocate):
        return len(command.sequences)
    if isinstance(command, commands.PutEntries):
        return len(command.entries)
    if isinstance(command, commands.DropEntries):
        return len(command.names)
    if isinstance(command, commands.SetTime):
        return command.by_ms
    if isinstance(command, commands.Decide | commands.Remember):
        return command.transaction
    return ""
