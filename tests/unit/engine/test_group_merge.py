"""Merging runs step by step, while entries are taken of them.

Not covered: when a merge begins, and takes from runs that are being merged (test_group_runs.py).
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.engine.group_merge import GroupMerge
from dejaqueue.engine.group_run import GroupRun
from tests.unit.engine.test_group_run import arrays, entries_st, pairs


def take(runs: list[GroupRun], group: int, rank: int) -> None:
    """As GroupRuns does: of all runs, what they have of the group up to the rank."""
    for run in runs:
        run.skip(*arrays([(group, rank)]))


@given(st.lists(entries_st, min_size=2, max_size=4), st.data())
def test_a_merge_has_what_is_left__each_entry_once(
    lists: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    runs = [GroupRun.of(*arrays(entries)) for entries in lists]
    takes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=2)
    # Before they were put together, runs may have been taken from further than others.
    for run in runs:
        for group, rank in data.draw(takes):
            take([run], group, rank)
    left = {pair for run in runs for pair in pairs(run.left())}
    merge = GroupMerge(runs)
    while True:
        for group, rank in data.draw(takes):
            take(runs, group, rank)
            left = {pair for pair in left if pair[0] != group or pair[1] > rank}
        if merge.step(data.draw(st.integers(1, 12))):
            break
    run = merge.run()
    assert pairs(run.left()) == sorted(left)
    assert len(run) == len(left)


@pytest.mark.parametrize("rows", [2, 8, 100])
def test_a_step_merges_no_more_than_it_was_asked_for(rows: int) -> None:
    lists = [[(group, 10 * rank + at) for group in range(5) for rank in range(9)] for at in (0, 1)]
    runs = [GroupRun.of(*arrays(entries)) for entries in lists]
    merge, counts = GroupMerge(runs), [0]
    while not merge.step(rows):
        counts.append(merge._count)
    counts.append(merge._count)
    assert counts[-1] == 90
    assert 0 < np.diff(counts).max() <= rows
