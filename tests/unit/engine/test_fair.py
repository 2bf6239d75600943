"""Turns of groups: rule 8 stated directly, over every window, for backlogs of any shape.

Covered: weights, groups that come and go, dispatches of any size, cancels, levels, ten thousand
groups, times that grow too large, codes that are used again. Not covered: that each single turn is
the one it should be (tests/model/test_fair_against_model.py).
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fair_parts import fairness
from dejaqueue.engine import shares
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Ack, Cancel, Configure, Enqueue, Lease, Move
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.rules import Rules
from dejaqueue.model import TopicKind


class Partition:
    """An engine of a fair topic, and the group of everything that was sent to it."""

    def __init__(self, layout: Layout = TINY, cap: int = 0, **weights: int) -> None:
        self.engine = Engine(0, layout)
        rules = Rules(TopicKind.FAIR, weights=weights, group_in_flight_max=cap)
        self.engine.apply(Configure(0, rules.to_text()))
        self.groups: list[str] = []
        self.position = 0

    def send(self, groups: list[str]) -> None:
        self.position += 1
        self.groups += groups
        names = tuple(dict.fromkeys(groups))
        indices = np.array([names.index(group) for group in groups], dtype=np.int32)
        dues_ms = np.zeros(len(groups), dtype=np.int64)
        self.engine.apply(Enqueue(1, self.position, dues_ms, (), groups=Words(names, indices)))

    def serve(self, count: int, *, ack: bool = True) -> list[str]:
        """The groups of the next messages, in order."""
        self.position += 1
        leased = self.engine.apply(Lease(1, self.position, 1, count, 1 << 40)).leased
        self.engine.check()
        if leased is None:
            return []
        if ack:
            self.engine.apply(Ack(1, self.position))
        return [self.groups[sequence] for sequence in leased.sequences.tolist()]


def assert_shares(served: list[str], weights: dict[str, int]) -> None:
    """In every window there is a measure that each group's count is off by at most one message."""
    for first in range(len(served)):
        counts = dict.fromkeys(weights, 0)
        for group in served[first:]:
            counts[group] += 1
            least = max(Fraction(counts[g] - 1, weight) for g, weight in weights.items())
            most = min(Fraction(counts[g] + 1, weight) for g, weight in weights.items())
            assert least <= most, (first, counts)


@settings(deadline=None, max_examples=100)
@given(
    weights=st.lists(st.integers(1, 12), min_size=2, max_size=5),
    extra=st.lists(st.integers(0, 200), min_size=5, max_size=5),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    guests=st.lists(st.integers(0, 6), min_size=8, max_size=8),
    cancelled=st.lists(st.integers(0, 60), max_size=8, unique=True),
    layout=st.sampled_from([TINY, STANDARD]),
)
def test_every_window_has_its_shares(
    weights: list[int],
    extra: list[int],
    sizes: list[int],
    guests: list[int],
    cancelled: list[int],
    layout: Layout,
) -> None:
    shares_of = {f"g{number}": weight for number, weight in enumerate(weights)}
    partition = Partition(layout, **shares_of)
    for (group, _), more in zip(shares_of.items(), extra, strict=False):
        partition.send([group] * (sum(sizes) + len(cancelled) + more))
    sequences = np.array(sorted(cancelled), dtype=np.int64)
    partition.engine.apply(Cancel(1, sequences[sequences < len(partition.groups)]))
    served: list[str] = []
    for size, guest_count in zip(sizes, guests, strict=False):
        if guest_count:  # they come, have their turns, and are gone
            partition.send([f"guest{number % 3}" for number in range(guest_count)])
        served += partition.serve(size)
    assert len(served) == sum(sizes)
    assert_shares([group for group in served if group in shares_of], shares_of)


@settings(deadline=None, max_examples=50)
@given(
    weights=st.tuples(*[st.integers(1, 5)] * 4),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6),
)
def test_every_level_has_its_shares(weights: tuple[int, ...], sizes: list[int]) -> None:
    a, b, x, y = weights
    partition = Partition(TINY, **{"a": a, "b": b, "a.x": x, "a.y": y})
    for group in ("a.x", "a.y", "b"):
        partition.send([group] * sum(sizes))
    served = [group for size in sizes for group in partition.serve(size)]
    assert_shares([group[0] for group in served], {"a": a, "b": b})
    assert_shares([group for group in served if group != "b"], {"a.x": x, "a.y": y})


def test_a_group_beside_its_own_groups_is_one_of_them() -> None:
    partition = Partition(TINY)
    for group in ("a", "a.x", "b"):
        partition.send([group] * 20)
    counts = Counter(partition.serve(24))
    assert counts == {"b": 12, "a": 6, "a.x": 6}


@pytest.mark.parametrize("dispatch", [1_000, 7_777])
def test_ten_thousand_equal_groups_get_the_same(dispatch: int) -> None:
    assert fairness(10_000, 100_000, dispatch) >= 0.99


def test_what_a_group_leaves_is_shared_by_the_others() -> None:
    partition = Partition(TINY, a=2)
    partition.send(["a"] * 2 + ["b"] * 9 + ["c"] * 9)
    counts = Counter(partition.serve(12))
    assert counts == {"a": 2, "b": 5, "c": 5}


def test_a_cap_holds_within_one_dispatch_and_over_several() -> None:
    partition = Partition(TINY, cap=2)
    partition.send(["a"] * 5 + ["b"] * 3)
    assert Counter(partition.serve(100, ack=False)) == {"a": 2, "b": 2}
    assert partition.serve(100) == []
    assert partition.engine.apply(Ack(1, partition.position - 1)).statuses is None
    assert Counter(partition.serve(100)) == {"a": 2, "b": 1}


@settings(deadline=None, max_examples=25)
@given(
    sent=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=5),
    counts=st.lists(st.integers(1, 30), min_size=5, max_size=5),
)
def test_turns_are_the_same_whether_all_groups_are_looked_at_or_the_index(
    sent: list[list[int]], counts: list[int]
) -> None:
    def served(mostly: int) -> list[list[str]]:
        partition = Partition(TINY, 0, **{"1": 2, "2": 3})
        found: list[list[str]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shares, "_MOSTLY", mostly)
            for groups, count in zip(sent, counts, strict=False):
                partition.send([str(group) for group in groups])
                found.append(partition.serve(count))
        return found

    assert served(0) == served(1_000)


@pytest.mark.parametrize("nested", [False, True])
def test_times_that_grow_too_large_begin_anew(
    monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    """Turns are the same, wherever times begin."""

    def served() -> list[str]:
        partition = Partition(TINY, a=3)
        found: list[str] = []
        for number in range(12):
            partition.send(["a.x" if nested else "a"] * 4 + ["b"] * 3 + ["c"] * (number % 2))
            found += partition.serve(5)
        return found

    as_ever = served()
    monkeypatch.setattr(shares, "_TIME_MAX", 3 * shares.SCALE)
    assert served() == as_ever


def test_a_message_that_was_moved_away_and_back_often_comes_once() -> None:
    partition = Partition(STANDARD)
    partition.send(["b"])
    assert partition.serve(1) == ["b"]  # what is due by now is looked for, and ready
    partition.send(["a"])
    for _ in range(9):
        for due_ms in (50, 0):
            there = np.array([due_ms], dtype=np.int64)
            partition.engine.apply(Move(1, np.array([1]), there))
    partition.send(["a"])
    assert partition.serve(2) == ["a", "a"]
    assert partition.serve(2) == []


def test_codes_of_groups_that_are_gone_are_used_again() -> None:
    partition = Partition(STANDARD)
    for number in range(12):
        groups = [f"once{number}-{place}" for place in range(500)]
        partition.send(groups)
        assert Counter(partition.serve(500)) == Counter(groups)
    assert len(partition.engine.state.groups) < 3_000
