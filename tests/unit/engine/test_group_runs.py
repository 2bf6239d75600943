"""Runs of groups against the obvious: a sorted set of what is ready, by group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dejaqueue.engine import group_merge, group_runs
from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.group_run import sort_entries
from dejaqueue.engine.group_runs import GroupRuns
from dejaqueue.engine.layout import STANDARD, TINY, Layout

GROUPS = 4
pairs = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, 30)), max_size=25)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), pairs),
        st.tuples(st.just("remove"), pairs),
        st.tuples(
            st.just("take"),
            st.dictionaries(st.integers(0, GROUPS - 1), st.integers(1, 6), min_size=1),
        ),
        st.tuples(st.just("sweep"), st.just(None)),
    ),
    max_size=25,
)


def arrays(rows: list[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    both = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


@settings(deadline=None, max_examples=300)
@given(todo=steps, layout=st.sampled_from([TINY, STANDARD]))
def test_the_first_of_each_group_come_once_and_in_order(
    todo: list[tuple[str, object]], layout: Layout
) -> None:
    runs, ready = GroupRuns(layout), set[tuple[int, int]]()

    def is_ready(groups: Int64s, sequences: Int64s) -> Mask:
        rows = zip(groups.tolist(), sequences.tolist(), strict=True)
        return np.array([row in ready for row in rows], dtype=np.bool_)

    for name, argument in todo:
        match name, argument:
            case "insert", list(rows):  # also what is there already, and what came back
                ready.update(rows)
                runs.insert(*arrays(rows))
            case "remove", list(rows):
                ready.difference_update(rows)
            case "take", dict(counts):
                wanted = sorted(counts)
                expected = []
                for group in wanted:
                    expected += sorted(row for row in ready if row[0] == group)[: counts[group]]
                limits = np.array([counts[group] for group in wanted], dtype=np.int64)
                found = runs.take(np.array(wanted, dtype=np.int64), limits, is_ready)
                pairs_found = zip(*(column.tolist() for column in found), strict=True)
                assert list(pairs_found) == expected
                ready.difference_update(expected)
            case _:
                runs.sweep(is_ready, len(ready))
                assert runs.entry_count <= 2 * len(ready) + layout.sweep_rows_min


def test_taking_of_few_groups_leaves_the_others_where_they_are() -> None:
    runs = GroupRuns(STANDARD)
    runs.insert(*arrays([(group, group * 10 + place) for group in range(5) for place in range(9)]))
    asked: list[int] = []

    def is_ready(groups: Int64s, sequences: Int64s) -> Mask:
        asked.extend(groups.tolist())
        return np.ones(groups.size, dtype=np.bool_)

    groups, sequences = runs.take(np.array([1, 3]), np.array([2, 1]), is_ready)
    assert groups.tolist() == [1, 1, 3]
    assert sequences.tolist() == [10, 11, 30]
    assert set(asked) == {1, 3}
    assert len(asked) <= 7  # two more than wanted of each, at most
    assert runs.entry_count == 42


def test_an_entry_that_is_there_twice_comes_out_once__also_in_pieces() -> None:
    runs = GroupRuns(STANDARD)
    for _ in range(2):
        runs.insert(*arrays([(1, 5), (1, 6), (1, 7), (1, 8)]))
    runs.insert(*arrays([(1, 1), (1, 2), (1, 3), (1, 4)]))

    def is_ready(_: Int64s, sequences: Int64s) -> Mask:
        mask: Mask = sequences > 4
        return mask

    found = runs.take(np.array([1]), np.array([3]), is_ready)
    assert found[1].tolist() == [5, 6, 7]


def test_no_step_sorts_much_more_than_came__however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sorted_rows: list[int] = []

    def noted(codes: Int64s, ranks: Int64s, *, are_runs: bool = False) -> tuple[Int64s, Int64s]:
        sorted_rows.append(codes.size)
        return sort_entries(codes, ranks, are_runs=are_runs)

    monkeypatch.setattr(group_runs, "sort_entries", noted)
    monkeypatch.setattr(group_merge, "sort_entries", noted)
    runs, piece, count = GroupRuns(replace(STANDARD, seal_rows=1_600)), 25, 20_000
    ranks = np.random.default_rng(1).permutation(count)
    wanted, ones = np.arange(5), np.ones(5, dtype=np.int64)
    taken: list[list[int]] = [[] for _ in wanted]

    def take() -> None:
        groups, found = runs.take(wanted, ones, lambda groups, _: groups >= 0, 0)
        for group, rank in zip(groups.tolist(), found.tolist(), strict=True):
            taken[group].append(rank)

    for at in range(0, count, piece):
        part = np.sort(ranks[at : at + piece])
        runs.insert(part % 5, part)
        if at % 100 == 0:
            take()
    assert max(sorted_rows) <= 1_000
    assert len(runs._runs) <= 32  # of two hundred that came in
    begun = [len(one) for one in taken]
    while runs.entry_count:
        take()
    assert sorted(rank for one in taken for rank in one) == list(range(count))
    assert all(one[at:] == sorted(one[at:]) for one, at in zip(taken, begun, strict=True))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 20),
            st.sampled_from([0, 1, 32_768, 65_535]),
            st.one_of(st.integers(0, 1_000), st.integers(0, (1 << 47) - 2)),
        )
    )
)
def test_entries_are_sorted_by_group_and_rank__also_where_they_do_not_fit_into_one_integer(
    rows: list[tuple[int, int, int]],
) -> None:
    entries = [(group, priority << 47 | sequence) for group, priority, sequence in rows]
    found = sort_entries(*arrays(entries))
    assert list(zip(*(column.tolist() for column in found), strict=True)) == sorted(entries)
