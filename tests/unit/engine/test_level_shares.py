"""Groups within groups: the columns give the turns of the tree, whatever happens between.

Covered: names that come and are forgotten, weights at each level, few and many turns, filters,
nodes with so many children that they have a heap, times that begin anew, what a snapshot stores.
What a dispatch takes at these turns is in tests/model/test_fair_against_model.py.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dejaqueue.engine import level_shares
from dejaqueue.engine.level_shares import LevelShares
from dejaqueue.engine.shares import SCALE, NestedShares

NAMES = ("a", "a.x", "a.y", "a.x.1", "b.x", "c", "a.z.1.2", "", "b", "d.x", "b.xx", "d.y")
WEIGHED = ("a", "a.x", "a.y", "a.z", "b", "c", "d.x")

codes = st.integers(0, len(NAMES) - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("give"), st.lists(codes, unique=True, min_size=1), st.integers(0, 9)),
        st.tuples(st.just("share"), st.integers(1, 12), st.none()),
        st.tuples(st.just("among"), st.lists(codes, unique=True, min_size=1), st.integers(1, 6)),
        st.tuples(
            st.just("weigh"),
            st.dictionaries(st.sampled_from(WEIGHED), st.integers(1, 9)),
            st.none(),
        ),
        st.tuples(st.just("forget"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    max_size=40,
)


class Pair:
    """The tree and the columns, told the same, and what each group has to give."""

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self.tree, self.columns = NestedShares({}), LevelShares({})
        self.counts = np.zeros(16, dtype=np.int64)
        self.named: set[int] = set()

    @property
    def both(self) -> tuple[NestedShares, LevelShares]:
        return self.tree, self.columns

    def name(self, chosen: list[int]) -> None:
        for code in chosen:
            if code not in self.named:
                self.named.add(code)
                for shares in self.both:
                    shares.name(code, NAMES[code], 1)

    def give(self, chosen: list[int], count: int) -> None:
        """Either as many more to each of them, or (0) nothing any more."""
        self.name(chosen)
        array = np.array(chosen, dtype=np.int64)
        self.counts[array] = self.counts[array] + count if count else 0
        for shares in self.both:
            shares.changed(array, self.counts[array])

    def took(self, turns: np.ndarray) -> None:
        np.subtract.at(self.counts, turns, 1)
        assert (self.counts >= 0).all()

    def share(self, count: int) -> list[int]:
        first, second = (shares.share(count, self.counts) for shares in self.both)
        assert first.tolist() == second.tolist()
        self.took(second)
        turns: list[int] = second.tolist()
        return turns

    def among(self, chosen: list[int], count: int) -> None:
        self.name(chosen)
        array = np.array(chosen, dtype=np.int64)
        limits = np.full(array.size, 3, dtype=np.int64)
        first, second = (
            shares.share_among(array, limits, count, self.counts) for shares in self.both
        )
        assert first.tolist() == second.tolist()
        self.took(second)

    def weigh(self, weights: dict[str, int]) -> None:
        self.weights = weights
        for shares in self.both:
            shares.reweigh(weights)

    def forget(self) -> None:
        array = np.array([c for c in sorted(self.named) if not self.counts[c]], dtype=np.int64)
        first, second = (shares.forget(array) for shares in self.both)
        assert first.tolist() == second.tolist()
        self.named -= set(second.tolist())

    def restart(self) -> None:
        """Both from what the other stores."""
        starts = [shares.starts() for shares in self.both]
        array = np.array(sorted(self.named), dtype=np.int64)
        self.tree, self.columns = NestedShares(self.weights), LevelShares(self.weights)
        for shares in self.both:
            for code in array.tolist():
                shares.name(code, NAMES[code], 1)
            shares.changed(array, self.counts[array])
            shares.restore(starts.pop(), {})

    def do(self, name: str, first: object, second: object) -> None:
        match name, first, second:
            case "give", list(chosen), int(count):
                self.give(chosen, count)
            case "share", int(count), None:
                self.share(count)
            case "among", list(chosen), int(count):
                self.among(chosen, count)
            case "weigh", dict(weights), None:
                self.weigh(weights)
            case "forget", None, None:
                self.forget()
            case "restart", None, None:
                self.restart()
        assert self.tree.starts() == self.columns.starts()


@pytest.mark.parametrize("few", [0, 5, 100])
@pytest.mark.parametrize("children_min", [0, 2_048])
@pytest.mark.parametrize("time_max", [3 * SCALE, 1 << 60])
@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(todo=steps)
def test_columns_and_tree_agree(
    few: int, children_min: int, time_max: int, todo: list[tuple[str, object, object]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_shares, "_FEW", few)
        patch.setattr(level_shares, "_CHILDREN_MIN", children_min)
        patch.setattr(level_shares, "_CHILDREN_PER_TURN", 0 if children_min == 0 else 32)
        patch.setattr(level_shares, "_TIME_MAX", time_max)
        pair = Pair()
        for name, first, second in todo:
            pair.do(name, first, second)
        while pair.counts.sum():
            pair.share(200)
        assert pair.tree.starts() == pair.columns.starts()


@pytest.mark.parametrize("weights", [{}, {"t1": 5, "t2.g3": 1 << 20, "t2": 3, "t0.g0": 7}])
@pytest.mark.parametrize(("tenants", "users"), [(3, 2_000), (400, 5), (1, 3_000), (40, 100)])
def test_columns_and_tree_agree__many_groups(
    weights: dict[str, int], tenants: int, users: int
) -> None:
    """Dispatches of all sizes, in which nodes go from heaps to columns and back."""
    rng = np.random.default_rng(tenants)
    tree, columns = NestedShares(weights), LevelShares(weights)
    both: tuple[NestedShares, LevelShares] = (tree, columns)
    size = tenants * users
    counts = np.zeros(size, dtype=np.int64)
    named: set[int] = set()
    for round_number in range(12):
        chosen = np.unique(rng.integers(0, size, size // 6))
        counts[chosen] += rng.integers(1, 4, chosen.size)
        for code in sorted(set(chosen.tolist()) - named):
            for shares in both:
                shares.name(code, f"t{code % tenants}.g{code // tenants}", 1)
        named |= set(chosen.tolist())
        for shares in both:
            shares.changed(chosen, counts[chosen])
        for count in rng.permutation([1, 7, 40, 300, 1_000]).tolist():
            first, second = (shares.share(count, counts) for shares in both)
            assert first.tolist() == second.tolist()
            np.subtract.at(counts, second, 1)
        assert tree.starts() == columns.starts()
        if round_number % 4 == 3:
            empty = np.array([code for code in sorted(named) if not counts[code]], dtype=np.int64)
            forgotten = [shares.forget(empty).tolist() for shares in both]
            assert forgotten[0] == forgotten[1]
            named -= set(forgotten[1])


def test_two_groups_of_a_tenant_have_as_much_together_as_another() -> None:
    pair = Pair()
    pair.give([1, 2, 5], 90)  # a.x, a.y, c
    turns = pair.share(120)
    assert turns.count(5) == 60
    assert turns.count(1) == turns.count(2) == 30
    assert all(first != second for first, second in pairwise(turns))


def test_what_was_owed_by_a_name_without_messages_is_kept() -> None:
    """A tree with runs may be ahead of its time where no group is left; a restart knows it."""
    starts = [["a", 3 * SCALE], ["b.x\0", SCALE]]
    for shares in (NestedShares({}), LevelShares({})):
        shares.restore(starts, {})
        assert shares.starts() == starts
