"""PartitionState: everything that a partition is, in one place.

Room: engine; pure, memory only. Written by apply.py alone.
Holds: what `invariants.check` says; two states after the same commands have the same hash.
See: apply.py, which changes it; state_hash.py, for the parts that replays must agree on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int32s, Int64s, Mask, UInt16s, Words
from dejaqueue.engine.arrivals import Arrivals
from dejaqueue.engine.commands import Stage
from dejaqueue.engine.dictionary import Dictionary
from dejaqueue.engine.effects import Change
from dejaqueue.engine.fair import FairReady
from dejaqueue.engine.key_index import KeyIndex
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.engine.leases import Leases
from dejaqueue.engine.priority_first_ready import PriorityFirstReady
from dejaqueue.engine.producers import Producers
from dejaqueue.engine.ready import Lane, Matches, PriorityReady
from dejaqueue.engine.records import Counts, DeadGroup, Staged
from dejaqueue.engine.rules import TIMELINE, Rules
from dejaqueue.engine.runs import SortedRuns, all_alive
from dejaqueue.engine.schedule import Schedule
from dejaqueue.engine.shares import Starts
from dejaqueue.engine.table import DONE, SCHEDULED, URGENCY_FLIP, MessageTable
from dejaqueue.model import ChangeKind, GroupOrder, TagFilter, TopicKind


@dataclass(slots=True)
class Kept:
    """What a view can bring back.

    Attributes:
        state: of what is retained.
        arrivals: when it came in.
        by_arrival: the view is in order of arrival.
    """

    state: PartitionState
    arrivals: Arrivals
    by_arrival: bool


@dataclass(slots=True)
class PartitionState:
    """The parts of a partition.

    Attributes:
        now_ms: time of the last command.
        epoch: number of the ownership, 0 before the first.
        rules: the topic's settings that matter here.
        lane: scheduled messages by due time; where `ready` is used, those that are not ready.
        ready: messages that are due, where their order is another than by due time; else None.
        ready_until_ms: whatever is scheduled for before this is in `ready`; the time of the last
            lease that left a trace, or, while what is due is being taken over, how far that came.
        ready_until_sequence: what is scheduled for `ready_until_ms` itself is in `ready` up to this
            sequence.
        groups_moved: True once a message changed its group: stored texts may be outdated.
        expiries: messages that can die of age, by that time.
        groups, tag_sets, senders: names of the codes in the table.
        dead: messages on their way to the dead-letter topic, by number.
        dead_number: the number that the next ones get.
        staged: undecided transactions by name.
        entries: the cron entries.
        decided: decisions of transactions whose home is here: (commit, participants) by name.
        payload_bytes, sized_count: of the live messages whose payload's size was noted; found
            again in the table, so not part of a snapshot.
        slab_files: snapshot file of each slab (numbered from sequence 0) that has one.
        snapshot_number: snapshots planned so far.
        filter_takes: which tag sets each filter takes, and the dictionary's version; a cache.
        changes: what the command that is applied has done so far, in order; None = nobody wants
            to know.
        finished: sequences of what the command has finished so far, aligned with the locators that
            its effects free; None = nobody wants to know.
        kept: what is retained, where something is; not this state's own.
    """

    layout: Layout = STANDARD
    now_ms: int = 0
    epoch: int = 0
    counts: Counts = field(default_factory=Counts)
    rules: Rules = TIMELINE
    table: MessageTable = field(init=False)
    lane: Lane = field(init=False)
    ready: PriorityReady | FairReady | None = None
    ready_until_ms: int = -1
    ready_until_sequence: int = limits.SEQUENCE_MAX
    groups_moved: bool = False
    expiries: SortedRuns = field(init=False)
    leases: Leases = field(init=False)
    keys: KeyIndex = field(init=False)
    groups: Dictionary = field(default_factory=Dictionary)
    tag_sets: Dictionary = field(default_factory=Dictionary)
    senders: Dictionary = field(default_factory=Dictionary)
    dead: dict[int, DeadGroup] = field(default_factory=dict)
    dead_number: int = 0
    staged: dict[str, Staged] = field(default_factory=dict)
    decided: dict[str, tuple[bool, str]] = field(default_factory=dict)
    producers: Producers = field(default_factory=Producers)
    entries: Schedule = field(default_factory=Schedule)
    payload_bytes: int = 0
    sized_count: int = 0
    slab_files: dict[int, str] = field(default_factory=dict)
    snapshot_number: int = 0
    filter_takes: dict[TagFilter, tuple[int, Mask]] = field(default_factory=dict)
    changes: list[Change] | None = None
    finished: list[Int64s] | None = None
    kept: Kept | None = None

    def __post_init__(self) -> None:
        self.table = MessageTable(self.layout)
        self.lane = Lane(self.layout)
        self.expiries = SortedRuns(self.layout)
        self.leases = Leases(self.layout)
        self.keys = KeyIndex(self.layout)

    # --- what is alive

    @property
    def order(self) -> SortedRuns:
        """The order index by due time."""
        return self.lane.runs

    def is_due(self, keys: Int64s, sequences: Int64s) -> Mask:
        """Which of these entries of the order index are alive: scheduled, for that time, and not
        ready, as what was moved to other groups may have two, of which one was taken over."""
        table = self.table
        if sequences.size == 1 and self.ready is None:  # as each step asks of the first entry
            place = sequences.item() - table.base
            is_due = 0 <= place < table.row_count and table.states.item(place) == SCHEDULED
            return np.array([is_due and table.dues_ms.item(place) == keys.item()])
        places = table.places(sequences)
        mask: Mask = (table.dues_ms[places] == keys) & (table.states[places] == SCHEDULED)
        if self.ready is not None:
            mask &= ~self.is_reached(keys, sequences)
        return mask

    def is_live(self, sequences: Int64s) -> Mask:
        """Which of these messages are not done."""
        mask: Mask = self.table.states[self.table.places(sequences)] != DONE
        return mask

    def is_ready(self, sequences: Int64s) -> Mask:
        """Which of these messages are ready, that is in `ready`."""
        table = self.table
        places = table.places(sequences)
        mask: Mask = table.states[places] == SCHEDULED
        mask &= self.is_reached(table.dues_ms[places], sequences)
        return mask

    def is_reached(self, dues_ms: Int64s, sequences: Int64s) -> Mask:
        """Which of these are in `ready` if they are scheduled for these times."""
        mask: Mask = dues_ms <= self.ready_until_ms
        if self.is_taking_over:
            mask &= (dues_ms < self.ready_until_ms) | (sequences <= self.ready_until_sequence)
        return mask

    @property
    def is_taking_over(self) -> bool:
        """True if the last piece of what is due was a whole one: there may be more."""
        return self.ready_until_sequence < limits.SEQUENCE_MAX

    def dies_then(self, keys: Int64s, sequences: Int64s) -> Mask:
        """Which of these entries of `expiries` are alive: scheduled, to die at that time."""
        table = self.table
        places = table.places(sequences)
        mask: Mask = (table.expires_ms[places] == keys) & (table.states[places] == SCHEDULED)
        return mask

    def matching(self, wanted: TagFilter) -> Matches:
        """Tells which messages a filter takes. Cost: O(new sets of tags), then O(1) a message."""
        takes = self._takes(wanted)

        def matches(sequences: Int64s) -> Mask:
            table = self.table
            if "tag_sets" not in table.uses:
                return np.full(sequences.size, takes[0], dtype=np.bool_)
            mask: Mask = takes[table.tag_sets[table.places(sequences)]]
            return mask

        return matches

    def _takes(self, wanted: TagFilter) -> Mask:
        version, takes = self.filter_takes.get(wanted, (-1, _NO_MASK))
        if version != self.tag_sets.version:
            any_of, all_of, none_of = map(frozenset, (wanted.any_of, wanted.all_of, wanted.none_of))
            sets = [frozenset(name.split(TAG_SEPARATOR)) for name in self.tag_sets.names]
            takes = np.array(
                [
                    (not any_of or bool(any_of & tags)) and all_of <= tags and not none_of & tags
                    for tags in sets
                ],
                dtype=np.bool_,
            )
            # All go, not the oldest: it is a cache, and finding one again costs what it did before.
            if len(self.filter_takes) >= _FILTERS_MAX:
                self.filter_takes.clear()
            self.filter_takes[wanted] = self.tag_sets.version, takes
        return takes

    def priorities(self, places: Int64s) -> UInt16s | None:
        """The priority of each row; None = all have the default."""
        if "urgencies" not in self.table.uses:
            return None
        urgencies: UInt16s = self.table.urgencies[places]
        return urgencies ^ URGENCY_FLIP

    def groups_of(self, places: Int64s) -> Words:
        """The group of each row."""
        if "groups" not in self.table.uses:
            return Words(("",), np.zeros(places.size, dtype=np.int32))
        codes, indices = np.unique(self.table.groups[places], return_inverse=True)
        names = tuple(self.groups.names[code] for code in codes.tolist())
        return Words(names, indices.astype(np.int32))

    def sender_codes(self, names: tuple[str, ...]) -> Int32s:
        """The code of each of these senders.

        Not how many messages each has is counted, as of groups: that would be paid with each
        message, and be good for something once in a thousand new names.
        """
        return self.senders.codes_of(names, self._without_messages)

    def forget_texts(self) -> None:
        """Forget texts that no live message has; of groups also what nobody is owed for."""
        self.groups.sweep(self.ready.forget if isinstance(self.ready, FairReady) else None)
        self.tag_sets.sweep()
        self.senders.sweep(self._without_messages)

    def _without_messages(self, codes: Int64s) -> Int64s:
        """Those of these codes of senders that no live message has. Cost: O(live messages)."""
        has_some = np.zeros(len(self.senders), dtype=np.bool_)
        if "senders" in self.table.uses:
            for places in self.table.live_places():
                has_some[self.table.senders[places]] = True
        return codes[~has_some[codes]]

    def senders_of(self, places: Int64s) -> Words | None:
        """Who sent each row; None = nobody sent any."""
        if "senders" not in self.table.uses:
            return None
        codes, indices = np.unique(self.table.senders[places], return_inverse=True)
        names = tuple(self.senders.names[code] for code in codes.tolist())
        return Words(names, indices.astype(np.int32))

    def sent_by(self, places: Int64s, sender: str) -> Mask:
        """Which of these rows are live messages of this sender; nobody has none."""
        table, code = self.table, self.senders.code(sender)
        if code <= 0 or "senders" not in table.uses:
            return np.zeros(places.size, dtype=np.bool_)
        mask: Mask = (table.senders[places] == code) & (table.states[places] != DONE)
        return mask

    # --- what is noted of a command

    def note(
        self,
        kind: ChangeKind,
        places: Int64s,
        reason: str = "",
        *,
        has_due: bool = True,
        named: tuple[Int64s, UInt16s] | None = None,
    ) -> None:
        """Note a change of these rows, as the table has them now. `changes` must not be None.

        Args:
            named: their sequences and attempts, if the caller has them at hand.
        """
        assert self.changes is not None
        if not places.size:
            return
        table = self.table
        sequences, attempts = named or (places + table.base, table.attempts[places])
        self.changes.append(
            Change(
                kind,
                sequences,
                table.dues_ms[places] if has_due else None,
                attempts,
                self.priorities(places),
                self.groups_of(places) if "groups" in table.uses else None,
                reason,
            )
        )

    # --- in and out of the indexes; the caller writes states, dues and counts

    def configure(self, rules: Rules) -> None:
        """Use these rules. What is ready is found again at the next lease."""
        self.rules = rules
        if self.ready is None and rules.kind in (TopicKind.PRIORITY, TopicKind.FAIR):
            self.lane.runs.draw_less()  # what is due moves on in pieces
        if self.ready is None and rules.kind is TopicKind.PRIORITY:
            self.ready = PriorityReady(self.table, self.layout, rules.ageing_ms)
        if self.ready is None and rules.kind is TopicKind.FAIR:
            parts = self.table, self.layout, self.groups
            if rules.group_order is GroupOrder.PRIORITY_FIRST:
                self.ready = PriorityFirstReady(*parts)
            else:
                by_priority = rules.group_order is GroupOrder.PRIORITY
                self.ready = FairReady(*parts, by_priority=by_priority)
        if isinstance(self.ready, FairReady):
            cap = rules.group_in_flight_max
            self.ready.configure(rules.weights, cap, by_runs=rules.group_runs)

    def schedule(self, places: Int64s, dues_ms: Int64s) -> None:
        """These rows are scheduled now. `dues_ms` is kept and must not be changed any more."""
        if self.rules.keeps:
            return
        sequences = places + self.table.base
        if self.ready is not None:
            ready_mask = self.is_reached(dues_ms, sequences)
            if ready_mask.any():
                self.ready.add(places[ready_mask])
                dues_ms, sequences = dues_ms[~ready_mask], sequences[~ready_mask]
        self.lane.insert(dues_ms, sequences)

    def unschedule(self, places: Int64s) -> None:
        """These rows are scheduled and will not be, but for a lease. Before it is written."""
        if self.ready is not None:
            dues_ms = self.table.dues_ms[places]
            self.ready.remove(places[self.is_reached(dues_ms, places + self.table.base)])

    def unlease(self, places: Int64s) -> None:
        """These rows are not leased any more."""
        if self.ready is not None:
            self.ready.returned(places)

    def starts(self) -> Starts:
        """The part of the turn order that decides the next turns."""
        return self.ready.starts() if isinstance(self.ready, FairReady) else []

    def stage(self, stage: Stage) -> Staged:
        """The record of what that transaction staged here; a new one if it staged nothing yet."""
        staged = self.staged.setdefault(stage.transaction, Staged(stage.until_ms))
        staged.until_ms = max(staged.until_ms, stage.until_ms)
        return staged

    def promote(self, now_ms: int) -> bool:
        """Make ready what is due by now, or a piece of it, as the rules say: by (due, sequence).

        Returns:
            True if anything became ready by it, or if that was the end of several pieces.
        """
        assert self.ready is not None
        count = self.rules.take_over_rows_max or self.counts.scheduled + 1
        is_exact = self.order.entry_count + self.ready.count == self.counts.scheduled
        alive = all_alive if is_exact else self.is_due
        dues_ms, sequences = self.order.pop(count, now_ms, alive)
        if sequences.size == count:
            self.ready_until_ms, self.ready_until_sequence = int(dues_ms[-1]), int(sequences[-1])
        elif sequences.size or self.is_taking_over:
            self.ready_until_ms, self.ready_until_sequence = now_ms, limits.SEQUENCE_MAX
        else:
            return False
        if sequences.size:
            self.ready.add(self.table.places(sequences))
        return True

    def fill_ready(self, until_ms: int, until_sequence: int) -> None:
        """Make ready what was when `ready_until_ms` and `ready_until_sequence` were these."""
        assert self.ready is not None
        until = until_ms, until_sequence
        self.ready_until_ms, self.ready_until_sequence = until
        count = self.counts.scheduled + 1
        if self.is_taking_over:
            count = self.ready_places().size
        # Until they are taken out of it, they are what the index says.
        self.ready_until_ms, self.ready_until_sequence = -1, limits.SEQUENCE_MAX
        _, sequences = self.order.pop(count, until_ms, self.is_due)
        self.ready_until_ms, self.ready_until_sequence = until
        if sequences.size:
            self.ready.add(self.table.places(sequences))

    def finish(self, places: Int64s) -> Int64s:
        """These rows, each named once, are done; returns their locators."""
        table = self.table
        if "groups" in table.uses:
            self.groups.go(table.groups[places])
        if "tag_sets" in table.uses:
            self.tag_sets.go(table.tag_sets[places])
        if self.sized_count:
            self.count_sizes(places, -1)
        freed = table.locators[places]
        if self.finished is not None:
            self.finished.append(places + table.base)
        table.finish(places)
        return freed

    def count_sizes(self, places: Int64s, sign: int) -> None:
        """The payloads of these rows are live from now on, or are not any more."""
        sizes = self.table.payload_sizes[places]
        known = sizes[sizes > 0]
        self.sized_count += sign * known.size
        self.payload_bytes += sign * (int(known.sum(dtype=np.int64)) - known.size)

    def group_codes(self, groups: Words) -> Int32s:
        """Codes of these groups, by row."""
        if not isinstance(self.ready, FairReady):
            return self.groups.codes(groups)
        self.groups.fresh.clear()
        codes = self.groups.codes(groups, self.ready.forget)
        for code in self.groups.fresh:
            self.ready.name(code)
        return codes

    def sweep_order(self) -> None:
        """Drop dead entries of the order indexes if they have become too many."""
        scheduled = self.counts.scheduled
        self.order.sweep(self.is_due, scheduled)
        if self.expiries.entry_count:
            self.expiries.sweep(self.dies_then, scheduled)
        if self.ready is not None:
            self.ready.sweep(scheduled, self.is_ready)

    def ready_places(self) -> Int64s:
        """All rows that are in `ready`. Cost: O(live messages)."""
        table = self.table
        found = [places[self.is_ready(places + table.base)] for places in table.live_places()]
        return np.concatenate([_NONE, *found])


_NONE = np.zeros(0, dtype=np.int64)
_NO_MASK = np.zeros(0, dtype=np.bool_)
_FILTERS_MAX = 64
TAG_SEPARATOR = "\x1f"
"""Between the tags of a set, as schema/packing.py joins them."""


def new_sequences(first_sequence: int, count: int) -> Int64s:
    """The sequences from `first_sequence` on."""
    return np.arange(first_sequence, first_sequence + count, dtype=np.int64)
