"""Histograms and counters: the same numbers as counting one by one gives.

Covered: bounds, order of values, one value, none, negative ones, threads; the fine scale. Not
covered here: who counts what (tests/unit/broker/test_counting.py).
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dejaqueue.metrics import (
    DURATION_BOUNDS_US,
    FINE_BUCKETS,
    Counter,
    Histogram,
    Tallies,
    coarsen,
    fine_bucket,
    fine_end_us,
)

BOUNDS = (1, 10, 100)


def counted_slowly(values: list[int], bounds: tuple[int, ...]) -> list[int]:
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[next((at for at, end in enumerate(bounds) if value <= end), len(bounds))] += 1
    return counts


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0],
        [1, 1, 1],
        [1, 2],
        [2, 1],
        [10, 11, 100, 101],
        [101, 100, 11, 10, 0],
        [5, 500, 5, 50, 1, 0],
        [-7, 3],
        [3, -7, 2_000],
    ],
)
def test_values_fall_into_the_buckets_whose_bounds_they_do_not_exceed(values: list[int]) -> None:
    histogram = Histogram(BOUNDS)
    histogram.add_many(np.array(values, dtype=np.int64))
    one_by_one = Histogram(BOUNDS)
    for value in values:
        one_by_one.add(value)
    found = histogram.read()
    assert found.counts.tolist() == counted_slowly(values, BOUNDS)
    assert (found.count, found.sum) == (len(values), sum(max(value, 0) for value in values))
    assert one_by_one.read().counts.tolist() == found.counts.tolist()
    assert one_by_one.read().sum == found.sum


def test_random_durations_are_counted_as_one_by_one() -> None:
    random = np.random.default_rng(3)
    histogram = Histogram()
    everything: list[int] = []
    for size in (1, 2, 3, 100, 1_000):
        for scale in (1e2, 1e4, 1e9):
            values = random.exponential(scale, size).astype(np.int64)
            histogram.add_many(values)
            everything += values.tolist()
    found = histogram.read()
    assert found.counts.tolist() == counted_slowly(everything, DURATION_BOUNDS_US)
    assert found.sum == sum(everything)


@pytest.mark.parametrize("spread_ms", [1, 3, 60, 4_000_000])
def test_how_long_ago_instants_were_is_counted_as_one_by_one(spread_ms: int) -> None:
    random = np.random.default_rng(5)
    histogram, everything = Histogram(), []
    now_us = 1_700_000_000_123_456
    for size in (0, 1, 2, 3, 100, 1_000):
        for ahead_ms in (-spread_ms, 0, spread_ms // 2, 2 * spread_ms):
            since_ms = now_us // 1_000 + ahead_ms
            instants_ms = np.sort(random.integers(since_ms - spread_ms, since_ms + 2, size))
            histogram.add_since(now_us, instants_ms)
            everything += [now_us - 1_000 * instant for instant in instants_ms.tolist()]
    for bound in DURATION_BOUNDS_US[3:]:  # exactly a bound ago, and a little less or more
        for now_us in (bound + 4_000, bound + 4_001, bound + 3_999):
            histogram.add_since(now_us, np.array([3, 4, 5]))
            everything += [now_us - 1_000 * instant for instant in (3, 4, 5)]
    found = histogram.read()
    assert found.counts.tolist() == counted_slowly(everything, DURATION_BOUNDS_US)
    assert found.sum == sum(max(value, 0) for value in everything)


def test_a_few_values_may_stand_for_more() -> None:
    histogram = Histogram(BOUNDS)
    histogram.add_each([5, -3, 50], 10, 4)
    found = histogram.read()
    assert found.counts.tolist() == [10, 10, 4, 0]
    assert (found.count, found.sum) == (24, 50 + 200)


def test_values_that_are_counted_are_left_alone() -> None:
    values = np.array([5, 3, 9])
    Histogram(BOUNDS).add_many(values)
    assert values.tolist() == [5, 3, 9]


def test_what_was_read_does_not_change_any_more() -> None:
    histogram = Histogram(BOUNDS)
    before = histogram.read()
    histogram.add(1)
    assert before.count == 0
    assert (before + histogram.read()).counts.tolist() == [1, 0, 0, 0]


def test_nothing_is_lost_when_threads_count_at_once() -> None:
    histogram, counter, tallies = Histogram(BOUNDS), Counter(), Tallies()

    def count() -> None:
        for _ in range(2_000):
            histogram.add(5)
            counter.add()
            tallies.add(("a",), 2)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert histogram.read().counts.tolist() == [0, 8_000, 0, 0]
    assert (counter.value, tallies.read()) == (8_000, {("a",): 16_000})


def test_fine_buckets_end_where_the_next_begins() -> None:
    for value in (0, 1, 99, 100, 1_234_567):
        at = fine_bucket(value)
        assert value <= fine_end_us(at)
        assert at == 0 or value >= fine_end_us(at - 1) - 1e-6
    assert fine_bucket(-5) == 0
    assert fine_bucket(1 << 62) == FINE_BUCKETS - 1


def test_fine_counts_come_within_their_width_of_the_coarse_bounds() -> None:
    for value in (0, 90, 120, 950, 1_100, 9_000, 12_000, 999_999_999_999):
        coarse = coarsen(np.array([fine_bucket(value)]), np.array([3]))
        assert coarse.tolist() == [3 * n for n in counted_slowly([value], DURATION_BOUNDS_US)]
    both = coarsen(np.array([0, 0]), np.array([1, 2]))
    assert both[0] == 3
