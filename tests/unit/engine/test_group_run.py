"""One run of groups: what is where, what is left, and what is skipped.

Not covered: sorting of entries that do not fit into one integer (test_group_runs.py).
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.group_run import GroupRun, without_repeats

ENTRIES = [(1, 10), (1, 12), (4, 3), (4, 5), (4, 9), (7, 1)]
entries_st = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=1).map(sorted)


def arrays(rows: list[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    both = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


def pairs(found: tuple[Int64s, Int64s]) -> list[tuple[int, int]]:
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


def test_entries_that_are_left_are_told_by_group() -> None:
    run = GroupRun.of(*arrays(ENTRIES))
    assert pairs(run.left()) == ENTRIES
    assert len(run) == 6
    run.firsts[1] += 2
    assert pairs(run.left()) == [(1, 10), (1, 12), (4, 9), (7, 1)]


@given(entries_st, st.tuples(st.integers(-1, 6), st.integers(-1, 21)))
def test_places_are_those_of_the_sorted_entries(
    entries: list[tuple[int, int]], pair: tuple[int, int]
) -> None:
    run = GroupRun.of(*arrays(entries))
    assert [run.pair(place) for place in range(len(entries))] == entries
    assert run.place_after(pair) == sum(entry <= pair for entry in entries)


@given(entries_st, st.data())
def test_a_stretch_has_what_was_left_at_that_time(
    entries: list[tuple[int, int]], data: st.DataObject
) -> None:
    run = GroupRun.of(*arrays(entries))
    takens = [data.draw(st.integers(0, int(n))) for n in np.diff(run.starts)]
    firsts = run.firsts + np.array(takens, dtype=np.int64)
    run.firsts[:] = run.ends  # taken since
    first = data.draw(st.integers(0, len(entries) - 1))
    end = data.draw(st.integers(first + 1, len(entries)))
    row_of = {int(group): row for row, group in enumerate(run.groups)}
    expected = [
        entry
        for place, entry in enumerate(entries)
        if first <= place < end and place >= firsts[row_of[entry[0]]]
    ]
    assert pairs(run.between(first, end, firsts)) == expected


@given(entries_st, st.dictionaries(st.integers(0, 6), st.integers(-1, 21)))
def test_what_is_skipped_is_taken(entries: list[tuple[int, int]], upto: dict[int, int]) -> None:
    run = GroupRun.of(*arrays(entries))
    for _ in range(2):  # the second time there is nothing to skip
        run.skip(*arrays(sorted(upto.items())))
        expected = [entry for entry in entries if entry[1] > upto.get(entry[0], -1)]
        assert pairs(run.left()) == expected
        assert len(run) == len(expected)


def test_repeats_are_left_out() -> None:
    found = without_repeats(*arrays([(1, 2), (1, 2), (1, 3), (2, 3), (2, 3)]))
    assert pairs(found) == [(1, 2), (1, 3), (2, 3)]
