"""The order of fair topics against the reference model: few commands, many groups.

Covered: weights and their changes, caps, runs, levels, cancels and moves between dispatches,
messages that come and come back, filters, priorities within groups, restarts (rules 7, 8, 13).
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.snapshot import plan_snapshot, restore
from dejaqueue.model import GroupOrder, TagFilter, TopicKind
from dejaqueue.testing.reference_model import ReferenceModel

EXAMPLES = int(os.environ.get("DEJAQ_MODEL_EXAMPLES", "400"))
FLAT = ("a", "b", "c", "d", "")
NESTED = ("a.x", "a.y", "b", "a", "c.x.y")
WEIGHTS: tuple[dict[str, int], ...] = ({}, {"a": 2}, {"a": 5, "b": 3}, {"a.x": 3, "c": 2, "b": 7})

PRIORITIES = np.array([0, 3, 32_768, 65_535], dtype=np.uint16)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.integers(0, 4), min_size=1, max_size=12)),
        st.tuples(st.just("send later"), st.lists(st.integers(0, 4), min_size=1, max_size=4)),
        st.tuples(st.just("lease"), st.integers(1, 9)),
        st.tuples(st.just("lease"), st.integers(0, 9)),
        st.tuples(st.just("lease red"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(1, 6)),
        st.tuples(st.just("nack"), st.integers(1, 4)),
        st.tuples(st.just("cancel"), st.lists(st.integers(0, 30), max_size=4)),
        st.tuples(st.just("regroup"), st.lists(st.integers(0, 30), max_size=4)),
        st.tuples(st.just("delay"), st.lists(st.integers(0, 30), max_size=4)),
        st.tuples(st.just("reprioritize"), st.lists(st.integers(0, 30), max_size=4)),
        st.tuples(st.just("weigh"), st.sampled_from(WEIGHTS)),
        st.tuples(st.just("cap"), st.integers(0, 2)),
        st.tuples(st.just("runs"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("wait"), st.integers(1, 9)),
    ),
    min_size=15,
    max_size=45,
)


class Both:
    """An engine and the model, told the same."""

    def __init__(self, groups: tuple[str, ...], rules: Rules, layout: Layout) -> None:
        self.groups, self.rules, self.layout = groups, rules, layout
        self.engine = Engine(0, layout)
        self.model = ReferenceModel()
        self.journal: list[commands.Command] = []
        self.now_ms, self.position = 1_000, 0
        self.held: list[tuple[int, int]] = []
        self.files: dict[str, bytes] = {}
        self.apply(commands.Configure(self.now_ms, rules.to_text()))

    def apply(self, command: commands.Command) -> Effects:
        effects, outcome = self.engine.apply(command), self.model.apply(command)
        leased = effects.leased
        found = None if leased is None else leased.sequences.tolist()
        assert found == (None if outcome.leased is None else [row[0] for row in outcome.leased])
        assert effects.is_void == outcome.is_void
        if isinstance(command, commands.Lease):
            command = replace(command, count_expected=len(found or ()))
        if not effects.is_void:
            self.journal.append(command)
        return effects

    def words(self, picks: list[int]) -> Words:
        texts = [self.groups[pick] for pick in picks]
        names = tuple(dict.fromkeys(texts))
        return Words(names, np.array([names.index(t) for t in texts], dtype=np.int32))

    def do(self, name: str, argument: object) -> None:
        now_ms = self.now_ms
        match name, argument:
            case (("send" | "send later"), list(picks)):
                self.position += 1
                due_ms = now_ms + (5 if name == "send later" else 0)
                tags = Words(("", "red"), np.array(picks, dtype=np.int32) % 2)
                dues_ms = np.full(len(picks), due_ms, dtype=np.int64)
                groups = self.words(picks)
                priorities = None  # now and then: all have the default one
                if self.position % 3:
                    priorities = PRIORITIES[(np.arange(len(picks)) + self.position) % 4]
                self.apply(
                    commands.Enqueue(
                        now_ms,
                        self.position,
                        dues_ms,
                        (),
                        priorities=priorities,
                        groups=groups,
                        tags=tags,
                    )
                )
            case (("lease" | "lease red"), int(count)):
                self.position += 1
                wanted = TagFilter(any_of=("red",)) if name == "lease red" else None
                lease = commands.Lease(
                    now_ms, self.position, now_ms, count, now_ms + 40, filter=wanted
                )
                leased = self.apply(lease).leased
                if leased is not None:
                    pairs = zip(leased.sequences.tolist(), leased.attempts.tolist(), strict=True)
                    self.held += list(pairs)
            case (("ack" | "nack"), int(count)):
                rows, self.held = self.held[:count], self.held[count:]
                sequences = np.array([row[0] for row in rows], dtype=np.int64)
                attempts = np.array([row[1] for row in rows], dtype=np.uint16)
                if name == "ack":
                    self.apply(commands.Ack(now_ms, -1, sequences, attempts))
                else:
                    self.apply(commands.Nack(now_ms, now_ms, -1, sequences, attempts))
            case (("cancel" | "regroup" | "delay" | "reprioritize"), list(backs)):
                last = self.engine.next_sequence
                sequences = np.unique(np.array([last - 1 - back for back in backs], dtype=np.int64))
                if name == "cancel":
                    self.apply(commands.Cancel(now_ms, sequences))
                elif name == "delay":
                    self.apply(commands.Move(now_ms, sequences, sequences * 0 + now_ms + 4))
                elif name == "reprioritize":
                    priorities = PRIORITIES[(sequences + self.now_ms) % 4]
                    self.apply(commands.Move(now_ms, sequences, priorities=priorities))
                else:
                    groups = self.words((sequences % 5).tolist())
                    self.apply(commands.Move(now_ms, sequences, groups=groups))
            case "weigh", dict(weights):
                self.rules = replace(self.rules, weights=weights)
                self.apply(commands.Configure(now_ms, self.rules.to_text()))
            case "cap", int(cap):
                self.rules = replace(self.rules, group_in_flight_max=cap)
                self.apply(commands.Configure(now_ms, self.rules.to_text()))
            case "runs", int(by_runs):
                if self.rules.group_order is GroupOrder.PRIORITY_FIRST:
                    return  # refused (Topic.check)
                self.rules = replace(self.rules, group_runs=bool(by_runs))
                self.apply(commands.Configure(now_ms, self.rules.to_text()))
            case "restart", None:
                meta, files = plan_snapshot(self.engine)
                self.files |= {file: bytes(part) for file, part in files if part is not None}
                restored = restore(meta, lambda file: memoryview(self.files[file]), self.layout)
                assert restored.state_hash() == self.engine.state_hash()
                self.engine = restored
            case "wait", int(ms):
                self.now_ms += ms
        self.engine.check()


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps,
    st.sampled_from([FLAT, NESTED, FLAT[:2], NESTED[:3]]),
    st.sampled_from(WEIGHTS),
    st.sampled_from([0, 0, 1, 2, 3]),
    st.booleans(),
    st.sampled_from([TINY, STANDARD]),
    st.sampled_from(list(GroupOrder)),
    st.sampled_from([0, 0, 1, 4]),
)
def test_fair_topics_agree_with_the_model(
    todo: list[tuple[str, object]],
    groups: tuple[str, ...],
    weights: dict[str, int],
    cap: int,
    by_runs: bool,
    layout: Layout,
    group_order: GroupOrder,
    piece: int,
) -> None:
    groups = (groups * 5)[:5]
    rules = Rules(
        TopicKind.FAIR,
        weights=weights,
        group_in_flight_max=cap,
        group_order=group_order,
        group_runs=by_runs and group_order is not GroupOrder.PRIORITY_FIRST,
        take_over_rows_max=piece,
    )
    both = Both(groups, rules, layout)
    for name, argument in todo:
        both.do(name, argument)
    replayed = Engine(0, TINY)
    for command in both.journal:
        replayed.apply(command)
    assert replayed.state_hash() == both.engine.state_hash()
