"""Covers: consumers that are scaled by what is due soon, beside others, with few messages.

Not covered: the autoscaler's own rules (test_autoscaler.py).
"""

from __future__ import annotations

import numpy as np
import pytest

from bench.percentiles import percentile
from bench.questions.scaling import SCALERS, SPREADS, START_SECONDS, Figures, simulate

MESSAGES = 10_000


@pytest.fixture(scope="module", params=SPREADS)
def found(request: pytest.FixtureRequest) -> dict[str, Figures]:
    seconds = SPREADS[request.param]
    return {name: simulate(scaler, MESSAGES, seconds) for name, scaler in SCALERS.items()}


def p99(figures: Figures) -> float:
    return percentile(figures.late_seconds, 99)


def test_nothing_is_early__and_everything_is_done(found: dict[str, Figures]) -> None:
    for figures in found.values():
        assert len(figures.late_seconds) == MESSAGES
        assert np.all(figures.late_seconds > 0)


def test_whoever_looks_ahead_is_less_late_than_whoever_looks_at_the_backlog(
    found: dict[str, Figures],
) -> None:
    late = {name: p99(figures) for name, figures in found.items()}
    assert late["all_there"] <= late["due_5m"] < late["due_60s"] < late["backlog"]
    # A backlog is seen when it is there, and then a consumer has still to start.
    assert late["backlog"] > START_SECONDS + late["all_there"]
    assert late["due_60s_unbounded"] <= late["due_60s"]


def test_consumers_that_are_there_all_the_time_cost_most(found: dict[str, Figures]) -> None:
    cost = {name: figures.consumer_minutes for name, figures in found.items()}
    assert max(cost, key=lambda name: cost[name]) == "all_there"
