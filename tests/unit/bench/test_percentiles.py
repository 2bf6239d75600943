"""Covers: percentiles of what was measured, the spread of rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.percentiles import percentile, spread


def test_a_percentile_is_a_measured_value__nearest_rank() -> None:
    values = [15, 20, 35, 40, 50]
    assert [percentile(values, p) for p in (5, 30, 40, 50, 100)] == [15, 20, 20, 35, 50]


def test_p99_9_of_a_thousand_is_the_second_largest() -> None:
    assert percentile(np.arange(1, 1_001), 99.9) == 999


def test_order_does_not_matter() -> None:
    assert percentile([3, 1, 2], 50) == percentile([1, 2, 3], 50) == 2


@given(st.lists(st.integers(-1000, 1000), min_size=1), st.floats(0.1, 100))
def test_enough_values_are_within_the_percentile_and_too_few_below(
    values: list[int], percent: float
) -> None:
    found = percentile(values, percent)
    need = percent / 100 * len(values) - 1e-6
    assert sum(value <= found for value in values) >= need
    assert sum(value < found for value in values) < need + 1e-5


@pytest.mark.parametrize("percent", [0, -1, 100.1])
def test_a_percent_out_of_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percent"):
        percentile([1], percent)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 50)


def test_the_spread_keeps_every_round_in_order() -> None:
    assert spread([3.0, 1.0, 2.0]) == {
        "median": 2.0,
        "low": 1.0,
        "high": 3.0,
        "rounds": [3.0, 1.0, 2.0],
    }
