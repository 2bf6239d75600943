"""Covers: where a partition's entries stand in a log: every position, gaps, what is forgotten."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue import limits
from dejaqueue.journal.segments.runs import RUN, Runs, SegmentRuns

STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=30
)
"""Entries given back before a run, positions of others before it, and its entries."""


def positions_of(steps: list[tuple[int, int, int]]) -> dict[int, int]:
    """The log's position of each entry that is there."""
    found: dict[int, int] = {}
    local = position = 1
    for gone, others, count in steps:
        local, position = local + gone, position + gone + others
        found.update({local + place: position + place for place in range(count)})
        local, position = local + count, position + count
    return found


@given(STEPS, st.booleans())
def test_each_position_is_found_and_no_other(
    steps: list[tuple[int, int, int]], stored: bool
) -> None:
    expected, runs = positions_of(steps), Runs()
    if stored:
        firsts = np.array(list(expected), dtype=np.int64)
        there = np.array(list(expected.values()), dtype=np.int64)
        half = len(firsts) // 2
        for part in (slice(0, half), slice(half, None)):
            if len(firsts[part]):
                runs.add_stored(firsts[part], there[part], np.ones_like(firsts[part]))
    else:
        for local, position in expected.items():
            runs.add(local, position, 1)
    tail = max(expected)
    asked = np.arange(0, tail + 3, dtype=np.int64)
    rows = asked % 5
    found = runs.locate(asked << limits.ROW_BITS | rows, tail)
    for local, row, locator in zip(asked.tolist(), rows.tolist(), found.tolist(), strict=True):
        position = expected.get(local, 0)
        assert locator == (position << limits.ROW_BITS | row if position else 0), local
        if 0 < local <= tail:
            assert runs.position_of(local) == position
    for local in range(1, tail + 1):
        told = [(one, at) for one, at, count in runs.since(local) for _ in range(1)]
        assert told[0][0] == local
        assert runs.has_all(local) == all(one in expected for one in range(local, tail + 1))
    for behind in range(max(expected.values()) + 2):
        later = [position for position in expected.values() if position > behind]
        assert runs.first_behind(behind) == min(later, default=0)


def test_a_partition_that_is_alone_has_one_run__and_a_crowd_as_many_as_appends() -> None:
    alone, one_of_two = Runs(), Runs()
    for number in range(100):
        alone.add(1 + 3 * number, 1 + 3 * number, 3)
        one_of_two.add(1 + 3 * number, 1 + 6 * number, 3)
    assert (len(alone), len(one_of_two)) == (2, 101)
    one_of_two.forget_before(301)
    assert len(one_of_two) == 51
    locators = np.array([150, 151, 300], dtype=np.int64) << limits.ROW_BITS
    found = one_of_two.locate(locators, 300) >> limits.ROW_BITS
    assert found.tolist() == [0, 301, 597]


def test_runs_of_a_segment_are_read_as_they_were_written() -> None:
    runs = SegmentRuns()
    for number, local, rows in ((7, 1, 2), (7, 2, 0), (9, 1, 5), (7, 3, 1), (7, 9, 1)):
        runs.add(number, local, rows, 100)
    table = runs.table()
    expected = [(7, 1, 2, 2, 200), (9, 1, 5, 1, 100), (7, 3, 1, 1, 100), (7, 9, 1, 1, 100)]
    assert table.tolist() == expected
    assert np.frombuffer(runs.encode(), RUN).tolist() == expected
    assert len(runs) == 4
