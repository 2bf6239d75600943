"""Turns by priority first: each priority has the turns that a fair partition of its own would have,
and takes memory only for what is ready in it.

Not covered: that each single turn is the one it should be in a partition, over caps, filters and
restarts (tests/model/test_fair_against_model.py).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.priority_shares import PriorityShares
from dejaqueue.engine.shares import FlatShares, NestedShares

CODES = 5


def int64s(values: list[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


def shares_of(names: list[str]) -> PriorityShares:
    shares = PriorityShares(TINY)
    for code, name in enumerate(names):
        shares.name(code, name, None)
    return shares


def add(shares: PriorityShares, rows: list[tuple[int, int]], rooms: Int64s | None = None) -> None:
    """A message each of these groups and priorities."""
    shares.add(int64s([code for code, _ in rows]), int64s([level for _, level in rows]), rooms)


rows_st = st.lists(st.tuples(st.integers(0, CODES - 1), st.sampled_from([0, 7, 65_535])))


@pytest.mark.parametrize("prefix", ["", "x."])
@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(rows_st, st.integers(0, 8)), max_size=12))
def test_each_priority_has_turns_of_its_own(
    prefix: str, todo: list[tuple[list[tuple[int, int]], int]]
) -> None:
    names = [f"{prefix}{code}" for code in range(CODES)]
    shares = shares_of(names)
    alone: dict[int, FlatShares | NestedShares] = {}
    counts: dict[int, Int64s] = {}
    for rows, count in todo:
        add(shares, rows)
        for code, level in rows:
            if level not in alone:
                alone[level] = NestedShares({}) if prefix else FlatShares(TINY)
                counts[level] = np.zeros(16, dtype=np.int64)
                for each, name in enumerate(names):
                    alone[level].name(each, name, 1)
            counts[level][code] += 1
            alone[level].changed(int64s([code]), counts[level][[code]])
        expected: list[int] = []
        for level in sorted(alone):
            turns = alone[level].share(count - len(expected), counts[level])
            np.subtract.at(counts[level], turns, 1)
            expected += turns.tolist()
        assert shares.share(count, None).tolist() == expected


def test_what_was_served_in_one_priority_does_not_count_in_another() -> None:
    shares = shares_of(["a", "b"])
    add(shares, [(0, 1)] * 5 + [(0, 2), (1, 2)] * 2)
    assert shares.share(9, None).tolist() == [0] * 5 + [0, 1, 0, 1]


def test_room_is_for_all_priorities_together__and_what_is_taken_away_is_gone() -> None:
    shares = shares_of(["a", "b"])
    rooms = int64s([2, 9])
    add(shares, [(0, 1), (0, 2), (0, 3), (1, 3), (1, 3)], rooms)
    assert shares.share(9, rooms).tolist() == [0, 0, 1, 1]
    assert rooms.tolist() == [0, 7]
    rooms[0] = 1
    shares.refresh(int64s([0, 1]), rooms)
    add(shares, [(1, 3)], rooms)
    shares.remove(int64s([0]), int64s([3]), rooms)
    assert shares.share(9, rooms).tolist() == [1]


def test_of_some_groups_and_priorities_alone() -> None:
    shares = shares_of(["a", "b"])
    add(shares, [(0, 1), (1, 1), (0, 2), (1, 2)] * 2)
    some = int64s([1, 1, 0]), int64s([1, 2, 2])
    assert shares.share_among(*some, 9, None).tolist() == [1, 0, 1]
    assert shares.share(9, None).tolist() == [0, 0, 1, 0, 1]


def test_it_goes_on_with_the_same_turns_elsewhere() -> None:
    before = shares_of(["a", "b"])
    before.reweigh({"b": 3})
    add(before, [(code, level) for level in (4, 9) for code in (0, 1)] * 9)
    taken = Counter(before.share(7, None).tolist())
    starts = before.starts()
    assert all(name.startswith("4 ") for name, _ in starts)
    after = shares_of(["a", "b"])
    after.reweigh({"b": 3})
    rows = [(code, 4) for code in (0, 1) for _ in range(9 - taken[code])]
    add(after, rows + [(code, 9) for code in (0, 1)] * 9)
    after.restore(starts, {"a": 0, "b": 1})
    assert after.starts() == starts
    assert after.share(29, None).tolist() == before.share(29, None).tolist()


def test_what_has_nothing_ready_takes_no_memory() -> None:
    shares = shares_of([str(code) for code in range(1_000)])
    for level in range(300):
        add(shares, [(level, level), (999 - level, level)])
        assert shares.share(2, None).size == 2
    assert not shares._shares
    for code in range(999):  # one priority that is never empty, and groups that come and go
        add(shares, [(code, 5), (999, 5)])
        assert shares.share(1, None).size == 1
    [one] = shares._shares.values()
    assert one._codes_here.size < 300
