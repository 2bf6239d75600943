"""Forecast: partitions' reports are added up by the second, and a raise is asked for once."""

from __future__ import annotations

import numpy as np

from dejaqueue.broker.topic.forecast import HORIZON_S, Forecast
from dejaqueue.settings import DispatchSettings

SETTINGS = DispatchSettings(partition_rows_per_s=100, auto_partitions_max=8)


def counts(**at: int) -> np.ndarray:
    found = np.zeros(HORIZON_S, dtype=np.int64)
    for second, count in at.items():
        found[int(second[1:])] = count
    return found


def test_reports_of_different_seconds_are_laid_over_each_other() -> None:
    asked: list[int] = []
    forecast = Forecast(SETTINGS, asked.append)
    forecast.report(0, 1_000, counts(s10=90), 2)
    forecast.report(1, 1_004, counts(s6=150), 2)  # the same second, 1010
    assert asked == [3]
    forecast.report(1, 1_005, counts(s6=150), 2)  # another one now
    assert asked == [3]


def test_it_asks_once_for_each_size_and_not_beyond_the_limit() -> None:
    asked: list[int] = []
    forecast = Forecast(SETTINGS, asked.append)
    for hottest in (100, 150, 150, 350, 9_999, 9_999):
        forecast.report(0, 0, counts(s0=hottest), 1)
    assert asked == [2, 4, 8]


def test_what_one_shard_wants_all_get__and_a_spread_is_kept_to() -> None:
    asked: list[int] = []
    forecast = Forecast(SETTINGS, asked.append, shards=3, spread=3)
    for hottest in (100, 150, 9_999):
        forecast.report(1, 0, counts(s0=hottest), 3)
    assert asked == [6]  # 8 at most, in threes
    alone: list[int] = []
    forecast = Forecast(SETTINGS, alone.append, spread=3)
    forecast.report(0, 0, counts(s0=350), 3)
    assert alone == [6]
