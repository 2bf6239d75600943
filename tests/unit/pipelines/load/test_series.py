"""Loads: counts by second, by any other stretch, and the fullest of them."""

from __future__ import annotations

import numpy as np

from dejaqueue.pipelines.load.series import MINUTE_MS, SECOND_MS, Load

LOAD = Load.of(np.array([120, 61, 60, 61, 5]), np.array([1, 2, 4, 3, 0]))
EMPTY = Load.of(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def test_seconds_are_put_together_and_in_order() -> None:
    assert LOAD.seconds.tolist() == [60, 61, 120]
    assert LOAD.counts.tolist() == [4, 5, 1]
    assert (LOAD.total, LOAD.first_ms, LOAD.last_ms) == (10, 60_000, 120_000)


def test_stretches_have_the_sum_of_their_seconds() -> None:
    starts_ms, counts = LOAD.buckets(MINUTE_MS)
    assert (starts_ms.tolist(), counts.tolist()) == ([60_000, 120_000], [9, 1])
    assert LOAD.peak(MINUTE_MS) == (60_000, 9)
    assert LOAD.peak(SECOND_MS) == (61_000, 5)


def test_the_hottest_come_first_and_of_equals_the_earlier() -> None:
    load = Load.of(np.array([3, 1, 2]), np.array([7, 7, 9]))
    assert load.hottest(2) == [(2_000, 9), (1_000, 7)]


def test_nothing_is_no_load() -> None:
    assert (EMPTY.total, EMPTY.first_ms, EMPTY.last_ms) == (0, 0, 0)
    assert EMPTY.peak(SECOND_MS) == (0, 0)
    assert EMPTY.hottest(3) == []
