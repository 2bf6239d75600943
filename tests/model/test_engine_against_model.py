"""The engine against the reference model: all commands, any order, tiny layouts.

Covered: every command by lease and by row, stale hands, lease ends, moves there and back, keys,
producers, senders, relocation, priorities with and without ageing, tag filters, groups, lives that
end, attempts that are used up, waits, transactions, cron entries; snapshots restored in the middle
and at the end; replay (rules 3 to 13, 17). Not covered: attempts at their limit (unit tests), real
sizes (bench).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dejaqueue.broker.consumers.gathering import text_of
from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.snapshot import (
    PlannedFile,
    SnapshotPlan,
    abandon_snapshot,
    begin_snapshot,
    plan_snapshot,
    restore,
)
from dejaqueue.model import GroupOrder, MessageState, TagFilter, TopicKind
from dejaqueue.testing.reference_model import ReferenceModel

EXAMPLES = int(os.environ.get("DEJAQ_MODEL_EXAMPLES", "1000"))
STEPS = 25

# So small that sealing, drawing, sweeping and rebasing all happen within a few commands.
SMALLEST = Layout(
    slab_bits=1,
    rebase_slabs_min=1,
    seal_rows=3,
    draw_rows=1,
    young_batches_max=1,
    key_bucket_bits=0,
    sweep_rows_min=0,
    sweep_groups_min=0,
)
LAYOUTS = (TINY, SMALLEST, STANDARD)

dues = st.integers(-6, 20)  # from now
rows_st = st.lists(st.integers(0, 40), max_size=6)  # sequences counted back from the newest
small = st.integers(0, 12)
ENTRIES = ("x", "y", "z")
firings_st = st.tuples(st.sampled_from(ENTRIES), st.integers(-1, 20), st.integers(-1, 6))
TAGS = ("", "red", "red\x1fblue", "green")
GROUPS = ("", "a", "b", "c")
NESTED = ("a", "a.x", "b", "a.y")
SENDERS = ("", "a", "b", "", "c")
filters = st.none() | st.builds(
    TagFilter,
    any_of=st.sampled_from([(), ("red",), ("green", "blue")]),
    all_of=st.sampled_from([(), ("red", "blue")]),
    none_of=st.sampled_from([(), ("green",)]),
)
rules_st = st.builds(
    Rules,
    kind=st.sampled_from([TopicKind.TIMELINE, TopicKind.PRIORITY, TopicKind.FAIR]),
    weights=st.sampled_from([{}, {}, {"a": 3}, {"a": 2, "b": 5, "a.x": 2}]),
    group_in_flight_max=st.sampled_from([0, 0, 1, 2]),
    group_order=st.sampled_from(list(GroupOrder)),
    group_runs=st.booleans(),
    ageing_ms=st.sampled_from([0, 0, 3]),
    max_attempts=st.sampled_from([0, 0, 1, 2]),
    backoff_ms=st.sampled_from([0, 0, 5]),
    take_over_rows_max=st.sampled_from([0, 0, 1, 3]),
).filter(lambda rules: not (rules.group_runs and rules.group_order is GroupOrder.PRIORITY_FIRST))
stages = st.none() | st.builds(commands.Stage, st.sampled_from(["t", "u"]), st.integers(0, 9))


def words(names: tuple[str, ...], picks: list[int]) -> Words:
    """The names picked, as a dictionary in the order of first use."""
    texts = [names[pick % len(names)] for pick in picks]
    unique = tuple(dict.fromkeys(texts))
    indices = np.array([unique.index(text) for text in texts], dtype=np.int32)
    return Words(unique, indices)


def int64s(values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        layout=st.sampled_from(LAYOUTS),
        other=st.sampled_from(LAYOUTS),
        rules=st.none() | rules_st,
        groups=st.sampled_from([GROUPS, NESTED, GROUPS + NESTED]),
    )
    def start(
        self, layout: Layout, other: Layout, rules: Rules | None, groups: tuple[str, ...]
    ) -> None:
        self.groups = groups
        self.layout, self.other_layout = layout, other
        self.engine = Engine(0, layout)
        self.model = ReferenceModel()
        self.now_ms = 1_000
        self.position = 0
        self.journal: list[commands.Command] = []
        self.files: dict[str, bytes] = {}
        self.snapshot: tuple[str, int] | None = None  # meta, commands before it
        self.plan: SnapshotPlan | None = None
        self.planned_at = 0
        self.handed_out: list[tuple[int, int]] = []  # (sequence, attempt), newest last
        self.lease_ids: list[int] = []
        self.numbers: list[tuple[str, int]] = []
        if rules is not None:
            self.apply(commands.Configure(self.now_ms, rules.to_text()))

    def apply(self, command: commands.Command) -> Effects:
        effects = self.engine.apply(command)
        outcome = self.model.apply(command)
        statuses = effects.statuses
        if outcome.statuses is not None:
            expected = outcome.statuses
            assert (statuses.tolist() if statuses is not None else [0] * len(expected)) == expected
        assert effects.first_sequence == outcome.first_sequence
        assert sorted(effects.freed_locators.tolist()) == (outcome.freed or [])
        leased = effects.leased
        if leased is None:
            assert outcome.leased is None
        else:
            columns = (leased.sequences, leased.attempts, leased.dues_ms, leased.locators)
            rows = list(zip(*(column.tolist() for column in columns), strict=True))
            assert rows == outcome.leased
        assert effects.is_void == outcome.is_void
        if isinstance(command, commands.Lease):
            count = 0 if leased is None else leased.sequences.size
            command = replace(command, count_expected=count)
        if not effects.is_void:
            self.journal.append(command)
        return effects

    def pick(self, back: list[int]) -> np.ndarray:
        """Sequences, mostly real ones; some before the first and after the last."""
        return int64s([max(-1, self.engine.next_sequence + 2 - b) for b in back])

    # --- commands

    @rule(step=st.integers(1, 15))
    def time_goes_on(self, step: int) -> None:
        self.now_ms += step

    @rule(by=st.integers(-40, 40))
    def the_clock_is_put_right(self, by: int) -> None:
        self.now_ms = max(1, self.now_ms - by)
        self.apply(commands.SetTime(self.now_ms, by))

    @rule(
        after=st.lists(dues, max_size=7),
        keys=st.none() | st.lists(st.integers(0, 4), min_size=7, max_size=7),
        producer=st.sampled_from(["", "a", "b"]),
        split=small,
        more=st.none() | st.lists(st.integers(0, 7), min_size=7, max_size=7),
        lives=st.none() | st.lists(st.integers(-3, 30), min_size=7, max_size=7),
        stage=stages,
        replaced=st.none() | rows_st,
        fired=st.lists(firings_st, max_size=3),
        sent_by=st.none() | st.lists(st.integers(0, 4), min_size=7, max_size=7),
    )
    def enqueue(
        self,
        after: list[int],
        keys: list[int] | None,
        producer: str,
        split: int,
        more: list[int] | None,
        lives: list[int] | None,
        stage: commands.Stage | None,
        replaced: list[int] | None,
        fired: list[tuple[str, int, int]],
        sent_by: list[int] | None,
    ) -> None:
        self.position += 1
        split = min(split, len(after))
        batches = (
            commands.SubBatch(producer, self.position, split),
            commands.SubBatch("c", self.position % 3, len(after) - split, (1,), (7,), (4,)),
        )
        if producer:
            self.numbers.append((producer, self.position))
        self.numbers.append(("c", self.position % 3))
        dues_ms = int64s([self.now_ms + ms for ms in after])
        hashes = None if keys is None else int64s(keys[: len(after)])
        picks = None if more is None else more[: len(after)]
        command = commands.Enqueue(
            self.now_ms,
            self.position,
            dues_ms,
            batches,
            hashes,
            priorities=None if picks is None else np.array(picks, dtype=np.uint16),
            groups=None if picks is None else words(self.groups, picks),
            tags=None if picks is None else words(TAGS, picks[::-1]),
            expires_ms=None
            if lives is None
            else int64s([max(0, ms and self.now_ms + ms) for ms in lives[: len(after)]]),
            replaced=None if replaced is None else self.pick(replaced),
            payload_sizes=None if split % 3 else np.arange(len(after), dtype=np.uint32),
            stage=stage,
            firings=tuple(
                commands.Firing(
                    name, self.now_ms + ms, self.now_ms + ms - 1, min(row, len(after) - 1)
                )
                if ms >= 0
                else commands.Firing(name, -1, -1, -1)
                for name, ms, row in fired
            ),
            senders=None if sent_by is None else words(SENDERS, sent_by[: len(after)]),
        )
        self.apply(command)

    @rule(put=st.lists(firings_st, max_size=4))
    def put_entries(self, put: list[tuple[str, int, int]]) -> None:
        times = [(name, self.now_ms + ms if ms >= 0 else -1, row) for name, ms, row in put]
        rows = tuple(
            (name, f"{row}", next_ms, max(-1, next_ms - 2)) for name, next_ms, row in times
        )
        self.apply(commands.PutEntries(self.now_ms, rows))

    @rule(names=st.lists(st.sampled_from(ENTRIES), max_size=2, unique=True))
    def drop_entries(self, names: list[str]) -> None:
        self.apply(commands.DropEntries(self.now_ms, tuple(names)))

    @rule(ahead=st.integers(0, 20), limit=st.integers(0, 4))
    def look_at_entries(self, ahead: int, limit: int) -> None:
        until_ms = self.now_ms + ahead
        wakes = {name: entry[2] for name, entry in self.model.entries.items() if entry[2] >= 0}
        first = min(wakes.values(), default=None)
        assert self.engine.schedule.next_wake_ms() == first
        due = self.engine.schedule.due(until_ms, limit)
        times = sorted(wake for wake in wakes.values() if wake <= until_ms)
        assert [wakes[name] for name in due] == times[:limit]

    @rule(
        count=st.integers(0, 8),
        ahead=st.integers(-8, 10),
        lease_ms=st.integers(1, 20),
        wanted=filters,
    )
    def lease(self, count: int, ahead: int, lease_ms: int, wanted: TagFilter | None) -> None:
        command = commands.Lease(
            now_ms=self.now_ms,
            lease_id=self.position + 1,
            until_ms=self.now_ms + ahead,
            count=count,
            lease_end_ms=self.now_ms + lease_ms,
            filter=wanted,
        )
        hash_before = self.engine.state_hash()
        effects = self.apply(command)
        leased = effects.leased
        if leased is None:
            assert not effects.is_void or self.engine.state_hash() == hash_before
            return
        self.position += 1
        self.lease_ids.append(leased.lease_id)
        self.handed_out += zip(leased.sequences.tolist(), leased.attempts.tolist(), strict=True)

    @precondition(lambda self: self.handed_out)
    @rule(
        kind=st.sampled_from(["ack", "nack", "extend"]),
        back=st.lists(st.integers(1, 10), max_size=5),
        stale=st.booleans(),
        after=dues,
        stage=stages,
        fate=st.sampled_from(["", "bury", "release", "wait"]),
    )
    def settle_rows(
        self,
        kind: str,
        back: list[int],
        stale: bool,
        after: int,
        stage: commands.Stage | None,
        fate: str,
    ) -> None:
        rows = [self.handed_out[-min(b, len(self.handed_out))] for b in back]
        sequences = int64s([row[0] for row in rows])
        attempts = np.array([row[1] - stale for row in rows], dtype=np.uint16)
        if kind == "ack":
            self.apply(commands.Ack(self.now_ms, -1, sequences, attempts, stage))
        elif kind == "nack":
            due_ms = -1 if fate == "wait" else self.now_ms + after
            bury, release = fate == "bury", fate == "release"
            self.apply(
                commands.Nack(self.now_ms, due_ms, -1, sequences, attempts, "why", bury, release)
            )
        else:
            end_ms = self.now_ms + after
            self.apply(commands.Extend(self.now_ms, end_ms, -1, sequences, attempts))

    @rule(kind=st.sampled_from(["ack", "nack", "extend"]), back=st.integers(0, 4), after=dues)
    def settle_lease(self, kind: str, back: int, after: int) -> None:
        ids = [99_999, *self.lease_ids]
        lease_id = ids[-min(back + 1, len(ids))]
        if kind == "ack":
            self.apply(commands.Ack(self.now_ms, lease_id))
        elif kind == "nack":
            self.apply(commands.Nack(self.now_ms, self.now_ms + after, lease_id))
        else:
            self.apply(commands.Extend(self.now_ms, self.now_ms + after, lease_id))

    @rule(back=rows_st, after=st.lists(dues, min_size=6, max_size=6))
    def move(self, back: list[int], after: list[int]) -> None:
        dues_ms = int64s([self.now_ms + ms for ms in after[: len(back)]])
        self.apply(commands.Move(self.now_ms, self.pick(back), dues_ms))

    @rule(back=rows_st, after=dues, times=st.integers(1, 3))
    def move_away_and_back(self, back: list[int], after: int, times: int) -> None:
        sequences = self.pick(back)
        before = self.engine.dues(sequences)
        for _ in range(times):
            there = np.full(sequences.size, self.now_ms + after)
            self.apply(commands.Move(self.now_ms, sequences, there))
            self.apply(commands.Move(self.now_ms, sequences, before))

    @rule(back=rows_st, picks=st.lists(st.integers(0, 3), min_size=6, max_size=6), group=small)
    def move_up(self, back: list[int], picks: list[int], group: int) -> None:
        sequences, picks = self.pick(back), picks[: len(back)]
        priorities = np.array(picks, dtype=np.uint16)
        groups = words(self.groups, picks[::-1]) if group < 4 else None
        self.apply(commands.Move(self.now_ms, sequences, None, priorities, groups))

    @rule(transaction=st.sampled_from(["t", "u"]), commit=st.booleans())
    def decide(self, transaction: str, commit: bool) -> None:
        self.apply(commands.Decide(self.now_ms, transaction, commit))

    @rule(transaction=st.sampled_from(["t", "u"]), commit=st.none() | st.booleans())
    def remember(self, transaction: str, commit: bool | None) -> None:
        self.apply(commands.Remember(self.now_ms, transaction, commit, "who"))

    @rule(group=st.integers(0, 4))
    def bury(self, group: int) -> None:
        self.apply(commands.Bury(self.now_ms, group))

    @rule(back=rows_st)
    def depart(self, back: list[int]) -> None:
        self.apply(commands.Depart(self.now_ms, self.pick(back), "elsewhere"))

    @rule(rules=rules_st)
    def configure(self, rules: Rules) -> None:
        old = self.engine.rules
        if self.engine.next_sequence:
            fixed = {name: getattr(old, name) for name in ("kind", "ageing_ms", "group_order")}
            rules = replace(rules, **fixed)
            self.apply(commands.Configure(self.now_ms, rules.to_text()))

    @rule(back=rows_st)
    def cancel(self, back: list[int]) -> None:
        self.apply(commands.Cancel(self.now_ms, self.pick(back)))

    @rule(back=rows_st, owner=st.sampled_from(["", "a", "b", "never"]))
    def cancel_own(self, back: list[int], owner: str) -> None:
        """What the broker does for a caller who reaches its own messages alone."""
        sequences = self.pick(back)
        own = self.engine.sent_by(sequences, owner)
        live = self.model.live
        whose = [live[s].sender if s in live else "" for s in sequences.tolist()]
        assert own.tolist() == [bool(sender) and sender == owner for sender in whose]
        self.apply(commands.Cancel(self.now_ms, np.where(own, sequences, -1)))

    @rule(owner=st.sampled_from(["a", "b", "never"]), limit=st.integers(1, 4))
    def find_own(self, owner: str, limit: int) -> None:
        for state in MessageState:
            if state is MessageState.DONE:
                continue
            wanted = Selection((state,), sender=owner)
            found: list[int] = []
            first: int | None = 0
            while first is not None:
                part, first = self.engine.find(
                    wanted, first=first, end=1 << 40, limit=limit, rows_max=limit
                )
                found += part.tolist()
            messages = [m for m in self.model.in_state(state) if m.sender == owner]
            assert found == sorted(message.sequence for message in messages)
            count = self.engine.tally(
                wanted, first=0, rows_max=1 << 40, bucket_ms=1, bucket_count=1
            )
            assert count[0].tolist() == [len(messages)]

    @rule(back=rows_st)
    def relocate(self, back: list[int]) -> None:
        self.position += 1
        self.apply(commands.Relocate(self.now_ms, self.position, self.pick(back)))

    @rule()
    def open_epoch(self) -> None:
        self.apply(commands.OpenEpoch(self.now_ms, self.engine.epoch + 1))

    # --- questions

    @rule()
    def what_it_waits_for(self) -> None:
        due_ms, expected_ms = self.engine.next_due_ms(), self.model.next_due_ms()
        if self.engine.rules.kind is TopicKind.TIMELINE:
            assert due_ms == expected_ms
        elif due_ms is not None:
            ready_ms = self.model.next_ready_ms()
            assert ready_ms is not None
            assert max(due_ms, self.now_ms) == max(ready_ms, self.now_ms)
        else:
            assert self.model.next_ready_ms() is None
        assert self.engine.next_expiry_ms() == self.model.next_expiry_ms()

    @rule(after=st.tuples(dues, small), until=dues, limit=st.integers(1, 20))
    def peek(self, after: tuple[int, int], until: int, limit: int) -> None:
        """By due time where that is the order, by sequence otherwise; page by page to the end."""
        until_ms = self.now_ms + until
        start = (self.now_ms + after[0], after[1])
        for state in (MessageState.SCHEDULED, MessageState.LEASED):
            wanted = Selection((state,), due_to_ms=until_ms + 1)
            messages = [m for m in self.model.in_state(state) if m.due_ms <= until_ms]
            found: list[int] = []
            if self.engine.rules.kind is TopicKind.TIMELINE:
                pair: tuple[int, int] | None = start
                while pair is not None:
                    part, pair = self.engine.page(wanted, after=pair, limit=limit, rows_max=limit)
                    assert part.size <= limit
                    found += part.tolist()
                messages = [m for m in messages if (m.due_ms, m.sequence) > start]
                assert found == [m.sequence for m in messages]
                continue
            first: int | None = 0
            while first is not None:
                part, first = self.engine.find(
                    wanted, first=first, end=1 << 40, limit=limit, rows_max=limit
                )
                assert part.size <= limit
                found += part.tolist()
            assert found == sorted(m.sequence for m in messages)
        scheduled = self.model.in_state(MessageState.SCHEDULED)
        due_count = sum(message.due_ms <= until_ms for message in scheduled)
        assert self.engine.due_count(until_ms) == due_count

    @rule(hashes=st.lists(st.integers(0, 5), max_size=5))
    def find_keys(self, hashes: list[int]) -> None:
        places, sequences = self.engine.find_keys(int64s(hashes))
        expected = [
            (place, sequence)
            for place, key_hash in enumerate(hashes)
            for sequence in self.model.with_key(key_hash)
        ]
        assert list(zip(places.tolist(), sequences.tolist(), strict=True)) == expected

    @rule(first=small, more=small, limit=small)
    def live_in(self, first: int, more: int, limit: int) -> None:
        found = self.engine.live_in(first, first + more, limit)
        live = sorted(self.model.live.values(), key=lambda m: (m.due_ms, m.sequence))
        inside = [m.sequence for m in live if first <= m.locator >> 20 <= first + more]
        assert found.tolist() == inside[:limit]

    @rule()
    def answers_are_remembered(self) -> None:
        for name, number in self.numbers:
            answer = self.engine.answer(name, number)
            assert answer is not None
            found = (answer.first_sequence, answer.count)
            assert found == self.model.answer(name, number)

    # --- snapshots and replay

    def take_snapshot(self) -> None:
        if self.plan is not None:
            abandon_snapshot(self.engine)
            self.plan = None
        self.planned_at = len(self.journal)
        self.store_snapshot(*plan_snapshot(self.engine))

    def store_snapshot(self, meta: str, files: list[PlannedFile]) -> None:
        kept = {}
        for name, content in files:
            assert name not in kept
            if content is None:
                kept[name] = self.files[name]
            else:
                assert name not in self.files
                kept[name] = bytes(content)
        self.files = kept
        self.snapshot = (meta, self.planned_at)

    def restored(self) -> Engine:
        assert self.snapshot is not None
        engine = restore(self.snapshot[0], lambda name: memoryview(self.files[name]), self.layout)
        for command in self.journal[self.snapshot[1] :]:
            engine.apply(command)
        return engine

    @precondition(lambda self: self.plan is None)
    @rule()
    def snapshot_is_taken(self) -> None:
        self.take_snapshot()

    @precondition(lambda self: self.plan is None)
    @rule()
    def snapshot_fails(self) -> None:
        plan_snapshot(self.engine)
        abandon_snapshot(self.engine)

    @precondition(lambda self: self.plan is None)
    @rule()
    def snapshot_begins(self) -> None:
        self.planned_at = len(self.journal)
        self.plan = begin_snapshot(self.engine)

    @precondition(lambda self: self.plan is not None)
    @rule(slabs=st.integers(0, 3))
    def snapshot_goes_on(self, slabs: int) -> None:
        """What is stored is the state of its beginning, whatever was done meanwhile."""
        assert self.plan is not None
        if self.plan.copy_some(slabs):
            self.store_snapshot(self.plan.meta, self.plan.files())
            self.plan = None

    @precondition(lambda self: self.plan is not None)
    @rule()
    def snapshot_breaks_off(self) -> None:
        self.plan = None
        abandon_snapshot(self.engine)

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def broker_restarts(self) -> None:
        before = self.engine.state_hash()
        self.plan = None
        self.engine = self.restored()
        assert self.engine.state_hash() == before
        self.open_epoch()

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.check()
        live = sorted(self.model.live.values(), key=lambda message: message.sequence)
        sequences = int64s([message.sequence for message in live])
        engine = self.engine
        assert engine.states(sequences).tolist() == [message.state for message in live]
        timed = [m for m in live if m.state in (MessageState.SCHEDULED, MessageState.LEASED)]
        dues_ms = engine.dues(int64s([message.sequence for message in timed]))
        assert dues_ms.tolist() == [message.due_ms for message in timed]
        assert engine.attempts(sequences).tolist() == [message.attempts for message in live]
        assert engine.locators(sequences).tolist() == [message.locator for message in live]
        senders = engine.senders(sequences)
        names = [""] * len(live) if senders is None else text_of(senders).fill_null("").to_pylist()
        assert names == [message.sender for message in live]
        assert [s for part in engine.live_sequences() for s in part.tolist()] == sequences.tolist()
        assert engine.counts.live == len(live)
        priorities = engine.priorities(sequences)
        if priorities is not None:
            assert priorities.tolist() == [message.priority for message in live]
        dead = [(group.reason, group.sequences.tolist()) for group in engine.state.dead.values()]
        assert dead == list(self.model.dead.values())
        assert engine.next_sequence == self.model.next_sequence
        entries = {name: tuple(rest) for name, *rest in engine.schedule.to_values()}
        assert list(entries.items()) == list(self.model.entries.items())

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        replayed = Engine(0, self.other_layout)
        for command in self.journal:
            replayed.apply(command)
        state_hash = self.engine.state_hash()
        assert replayed.state_hash() == state_hash
        if self.snapshot is not None:
            assert self.restored().state_hash() == state_hash
        self.take_snapshot()
        assert self.restored().state_hash() == state_hash
        self.restored().check()


@pytest.mark.slow
def test_engine_agrees_with_the_model() -> None:
    run_state_machine_as_test(
        EngineMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
