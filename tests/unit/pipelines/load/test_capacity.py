"""What a load asks for, against a plain simulation of working it off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from dejaqueue.pipelines.load.capacity import advise, latenesses_seconds, needed_rate
from dejaqueue.pipelines.load.series import Load

loads = some.dictionaries(some.integers(0, 50), some.integers(1, 1_000), min_size=1).map(
    lambda counts: Load.of(np.array(list(counts)), np.array(list(counts.values())))
)


def worst(load: Load, rate: float) -> float:
    """How late the last message is: one server, in order."""
    free, most = 0.0, 0.0
    for second, count in zip(load.seconds.tolist(), load.counts.tolist(), strict=True):
        free = max(free, second) + count / rate
        most = max(most, free - second)
    return most


@given(loads, some.integers(1, 5_000))
def test_lateness_is_that_of_one_server(load: Load, rate: int) -> None:
    assert float(latenesses_seconds(load, rate).max()) == pytest.approx(worst(load, rate))


@given(loads, some.integers(1, 20_000))
def test_the_needed_rate_is_enough_and_a_little_less_is_not(load: Load, lateness_ms: int) -> None:
    rate = needed_rate(load, lateness_ms)
    assert worst(load, rate) <= lateness_ms / 1_000 * 1.001
    assert worst(load, rate * 0.99) > lateness_ms / 1_000


def test_a_hot_instant_may_be_spread_over_the_lateness_that_one_can_bear() -> None:
    load = Load.of(np.array([0]), np.array([10_000]))
    assert needed_rate(load, 1_000) == pytest.approx(10_000)
    assert needed_rate(load, 10_000) == pytest.approx(1_000)


def test_consumers_and_partitions_are_whole_ones() -> None:
    load = Load.of(np.array([0]), np.array([10_001]))
    found = advise(load, 1_000, 1_000, 4_000)
    assert (found.consumers, found.partitions) == (11, 3)
    nothing = advise(Load.of(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)), 1, 1, 1)
    assert (nothing.rate, nothing.consumers, nothing.partitions) == (0.0, 0, 1)
