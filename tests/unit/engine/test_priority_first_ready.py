"""A partition by priority first, in sizes that the model does not have: many priorities and groups,
dispatches of any size, groups that are forgotten.

Not covered: single turns (tests/model/test_fair_against_model.py), settings (tests/rules).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Ack, Configure, Enqueue, Lease
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.snapshot import plan_snapshot, restore
from dejaqueue.model import GroupOrder, TopicKind


class Partition:
    def __init__(self, layout: Layout = STANDARD, cap: int = 0) -> None:
        self.engine = Engine(0, layout)
        rules = Rules(
            TopicKind.FAIR, group_in_flight_max=cap, group_order=GroupOrder.PRIORITY_FIRST
        )
        self.engine.apply(Configure(0, rules.to_text()))
        self.rows: list[tuple[str, int]] = []
        self.position = 0

    def send(self, rows: list[tuple[str, int]]) -> None:
        self.position += 1
        self.rows += rows
        names = tuple(dict.fromkeys(group for group, _ in rows))
        place_of = {name: place for place, name in enumerate(names)}
        groups = Words(names, np.array([place_of[group] for group, _ in rows], dtype=np.int32))
        priorities = np.array([priority for _, priority in rows], dtype=np.uint16)
        dues_ms = np.zeros(len(rows), dtype=np.int64)
        self.engine.apply(
            Enqueue(1, self.position, dues_ms, (), priorities=priorities, groups=groups)
        )

    def serve(self, count: int, *, ack: bool = True) -> list[tuple[str, int]]:
        self.position += 1
        leased = self.engine.apply(Lease(1, self.position, 1, count, 1 << 40)).leased
        self.engine.check()
        if leased is None:
            return []
        if ack:
            self.engine.apply(Ack(1, self.position))
        return [self.rows[sequence] for sequence in leased.sequences.tolist()]


@pytest.mark.parametrize("dispatch", [7, 1_000])
def test_many_groups_and_priorities_come_in_order__and_equally(dispatch: int) -> None:
    rows = [(str(number % 100), number * 7 % 5) for number in range(5_000)]
    partition = Partition()
    partition.send(rows)
    served: list[tuple[str, int]] = []
    while found := partition.serve(dispatch):
        served += found
    assert Counter(served) == Counter(rows)
    assert [priority for _, priority in served] == sorted(priority for _, priority in rows)
    for priority in range(5):
        groups = [group for group, level in served if level == priority]
        of_each = Counter(rows)
        rounds = min(n for (_, level), n in of_each.items() if level == priority)
        width = len(set(groups))
        for number in range(rounds):
            part = groups[number * width : (number + 1) * width]
            assert len(set(part)) == width, "nobody has two turns in a round"


def test_each_message_may_have_a_priority_of_its_own() -> None:
    partition = Partition()
    partition.send([(f"g{level % 3}", level) for level in reversed(range(2_000))])
    assert [level for _, level in partition.serve(1_500)] == list(range(1_500))
    assert partition.serve(1) == [("g0", 1_500)]


@pytest.mark.parametrize("cap", [0, 3])
def test_groups_that_are_used_once_are_forgotten(cap: int) -> None:
    partition = Partition(TINY, cap)
    partition.send([("stays", 9)])
    for number in range(20):
        rows = [(f"g{number}.{row}", row % 4) for row in range(200)]
        partition.send(rows)
        assert sorted(partition.serve(200)) == sorted(rows)
    assert len(partition.engine.state.groups) < 20 * 200
    assert partition.serve(2) == [("stays", 9)]


def test_a_snapshot_goes_on_with_the_same_turns() -> None:
    partition = Partition(TINY)
    partition.send([(group, level) for level in (1, 2) for group in "abc" for _ in range(9)])
    partition.serve(31)
    meta, files = plan_snapshot(partition.engine)
    kept = {file: bytes(part) for file, part in files if part is not None}
    other = Partition(TINY)
    other.engine = restore(meta, lambda file: memoryview(kept[file]), TINY)
    other.rows, other.position = partition.rows, partition.position
    assert other.engine.state_hash() == partition.engine.state_hash()
    assert other.serve(30) == partition.serve(30)
