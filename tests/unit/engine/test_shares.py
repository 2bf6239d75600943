"""Whose turn it is: the columns of one level and the tree of several give the same turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dejaqueue.engine import shares
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.shares import FlatShares, NestedShares

Shares = FlatShares | NestedShares
CODES = 5


class Groups:
    """Shares of groups "0", "1", … and what each has to give."""

    def __init__(self, shares_of_them: Shares) -> None:
        self.shares = shares_of_them
        self.counts = np.zeros(16, dtype=np.int64)
        for code in range(CODES):
            self.shares.name(code, str(code), 1)

    def change(self, code: int, count: int) -> None:
        self.counts[code] = count
        self.shares.changed(np.array([code]), np.array([count]))

    def weigh(self, weights: list[int]) -> None:
        if isinstance(self.shares, NestedShares):
            self.shares.reweigh({str(code): weight for code, weight in enumerate(weights)})
        else:
            self.shares.weigh(np.arange(CODES), np.array(weights))

    def serve(self, count: int) -> list[int]:
        turns = self.shares.share(count, self.counts)
        np.subtract.at(self.counts, turns, 1)
        taken: list[int] = turns.tolist()
        return taken

    def serve_among(self, codes: list[int], count: int) -> list[int]:
        chosen = np.array(codes, dtype=np.int64)
        limits = np.full(chosen.size, 3, dtype=np.int64)
        turns = self.shares.share_among(chosen, limits, count, self.counts)
        np.subtract.at(self.counts, turns, 1)
        taken: list[int] = turns.tolist()
        return taken


steps = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, CODES - 1), st.integers(0, 9)),
        st.tuples(st.just("serve"), st.integers(1, 12), st.none()),
        st.tuples(
            st.just("among"),
            st.lists(st.integers(0, CODES - 1), unique=True, min_size=1),
            st.integers(1, 6),
        ),
        st.tuples(
            st.just("weigh"),
            st.lists(st.integers(1, 9), min_size=CODES, max_size=CODES),
            st.none(),
        ),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=200)
@given(todo=steps)
def test_columns_and_tree_agree(todo: list[tuple[str, object, object]]) -> None:
    flat, nested = Groups(FlatShares(TINY)), Groups(NestedShares({}))
    for name, first, second in todo:
        match name, first, second:
            case "change", int(code), int(count):
                flat.change(code, count)
                nested.change(code, count)
            case "serve", int(count), None:
                assert flat.serve(count) == nested.serve(count)
            case "among", list(codes), int(count):
                assert flat.serve_among(sorted(codes), count) == nested.serve_among(codes, count)
            case "weigh", list(weights), None:
                flat.weigh(weights)
                nested.weigh(weights)
        assert flat.shares.starts() == [
            [name.removesuffix("\0"), time]
            for name, time in nested.shares.starts()
            if not name.endswith("\0")
        ]


@pytest.mark.parametrize("kind", [FlatShares, NestedShares])
def test_equal_groups_take_turns_by_code(kind: type[Shares]) -> None:
    groups = Groups(FlatShares(TINY) if kind is FlatShares else NestedShares({}))
    for code in (3, 0, 2):
        groups.change(code, 2)
    assert groups.serve(4) == [0, 2, 3, 0]
    assert groups.serve(9) == [2, 3]
    assert groups.serve(9) == []


def test_the_greatest_weight_beside_the_least() -> None:
    groups = Groups(FlatShares(TINY))
    groups.weigh([1 << 20, 1, 1, 1, 1])
    groups.change(0, 50_000)
    groups.change(1, 5)
    turns = groups.serve(8_192)
    assert turns == [0] * 8_192


def test_a_group_is_forgotten_when_it_owes_nothing() -> None:
    groups = Groups(FlatShares(TINY))
    groups.change(0, 1)
    groups.change(1, 5)
    assert groups.serve(2) == [0, 1]
    assert groups.shares.forget(np.array([0])).tolist() == [0]
    groups.weigh([1, 1, 9, 1, 1])
    groups.change(3, 1)
    groups.change(2, 9)
    assert groups.serve(3) == [2, 2, 2]
    groups.change(3, 0)
    assert groups.shares.forget(np.array([3])).tolist() == [3]


def test_times_begin_anew_and_nobody_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_TIME_MAX", 2 * shares.SCALE)
    flat, nested = Groups(FlatShares(TINY)), Groups(NestedShares({}))
    for groups in (flat, nested):
        groups.weigh([1, 2, 3, 1, 1])
        for code in range(3):
            groups.change(code, 40)
    assert [flat.serve(7) for _ in range(9)] == [nested.serve(7) for _ in range(9)]


def test_a_group_that_is_named_again_may_meet_what_was_listed_of_it_before() -> None:
    tree = NestedShares({})
    for code, name in enumerate(("a.x", "a.y")):
        tree.name(code, name, 1)
    for turn in range(3):
        for code, name in enumerate(("a.x", "a.y")):
            tree.changed(np.array([code]), np.array([1]))
            tree.changed(np.array([code]), np.array([0]))
            assert tree.forget(np.array([code])).tolist() == [code], turn
            tree.name(code, name, 1)
    tree.changed(np.array([0, 1]), np.array([1, 1]))
    assert tree.share(2, np.array([1, 1])).tolist() == [0, 1]
