"""GroupRuns: what comes out of groups, and that nothing comes out twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dejaqueue.engine.group_runs import GroupRuns
from dejaqueue.engine.layout import STANDARD, TINY

entries = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), min_size=1, max_size=20), max_size=6
)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


@settings(deadline=None)
@given(entries, st.lists(st.integers(1, 4), max_size=12), st.sampled_from([TINY, STANDARD]))
def test_groups_give_what_lives__in_order__each_once(
    batches: list[list[tuple[int, int]]], counts: list[int], layout: object
) -> None:
    """Entries may be there more than once: their message left its group and came back."""
    runs = GroupRuns(layout)
    left: set[tuple[int, int]] = set()

    def is_ready(codes: np.ndarray, sequences: np.ndarray) -> np.ndarray:
        pairs = zip(codes.tolist(), sequences.tolist(), strict=True)
        return np.array([pair in left for pair in pairs], dtype=np.bool_)

    for batch, count in zip(batches, [*counts, *[2] * len(batches)], strict=False):
        left |= {pair for pair in batch if pair[1] % 5}  # the others are dead
        runs.insert(*columns(batch))
        groups = np.array(sorted({pair[0] for pair in left}), dtype=np.int64)
        wanted = np.full(groups.size, count, dtype=np.int64)
        found = runs.take(groups, wanted, is_ready)
        expected = [
            pair
            for group in groups.tolist()
            for pair in sorted(pair for pair in left if pair[0] == group)[:count]
        ]
        assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
        left -= set(expected)
        runs.sweep(is_ready, len(left))


def test_an_entry_that_is_there_twice_comes_out_once__also_in_pieces() -> None:
    runs = GroupRuns(STANDARD)
    for _ in range(2):
        runs.insert(*columns([(1, 5), (1, 6), (1, 7), (1, 8)]))
    runs.insert(*columns([(1, 1), (1, 2), (1, 3), (1, 4)]))

    def is_ready(_: np.ndarray, sequences: np.ndarray) -> np.ndarray:
        return sequences > 4

    found = runs.take(np.array([1]), np.array([3]), is_ready)
    assert found[1].tolist() == [5, 6, 7]
