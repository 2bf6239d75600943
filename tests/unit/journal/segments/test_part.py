"""Covers: what a log has of one partition: rows that are live, what a replay needs."""

from __future__ import annotations

import numpy as np

from dejaqueue.journal.segments.part import Part
from dejaqueue.journal.segments.runs import SegmentRuns


def test_rows_are_live_until_they_are_taken__and_never_fewer_than_none() -> None:
    part = Part(7)
    part.add(1, 1, 2, 10, 500)
    part.tail = 2
    assert (part.take(1, 4), part.take(1, 9), part.take(1, 1), part.take(5, 1)) == (4, 6, 0, 0)
    assert (part.set_live(1, 3), part.set_live(9, 3), part.byte_count) == (3, 0, 500)
    part.forget_segments([1], 3)
    assert part.byte_count == 0


def test_a_replay_needs_what_no_snapshot_has_and_what_is_behind_the_floor() -> None:
    part, runs = Part(7), SegmentRuns()
    for local in range(1, 5):
        runs.add(7, local, 1, 100)
        runs.add(8, local, 1, 100)
    table = runs.table()
    positions = 11 + np.arange(8, dtype=np.int64)
    mine = table["number"] == 7
    assert part.add_stored(11, table[mine], positions[mine], 18) == 4
    assert (part.tail, part.append_end) == (4, 0)
    assert [part.needed_behind(floor) for floor in (0, 11, 12, 16, 17, 30)] == [
        11,
        13,
        13,
        17,
        0,
        0,
    ]
    part.replayed = 2
    assert [part.needed_behind(floor) for floor in (0, 15)] == [15, 17]
    part.replayed = 4
    assert part.needed_behind(0) == 0
