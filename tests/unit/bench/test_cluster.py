"""Covers: the figures of the question `cluster`, and an outage of real brokers, small.

The rest of it takes minutes: `make bench-cluster`.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from bench import outages
from bench.outage import longest_gap
from bench.questions import cluster
from bench.systems.system import Plan
from dev.services import missing


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    rates = {
        "enqueue_segments": [1_000.0, 2_000.0, 500.0],
        "enqueue_jetstream": [500.0, 500.0, 400.0],
        "through_postgresql": [60.0],
        "through_skip_locked": [10.0],
        "failover_postgresql": [5.8044],
    }
    rows = {row.case: row for row in cluster.rows_of(rates)}
    assert (rows["enqueue_jetstream"].value, rows["enqueue_jetstream"].ratio) == (500.0, 0.5)
    assert rows["through_postgresql"].ratio == 6.0
    assert rows["through_postgresql"].ratio_to == "skip_locked"
    assert rows["through_skip_locked"].system == "postgresql"
    assert (rows["failover_postgresql"].value, rows["failover_postgresql"].unit) == (5.804, "s")
    assert rows["enqueue_segments"].ratio is None


def test_a_gap_counts_from_the_moment_that_is_asked_about() -> None:
    assert longest_gap([1.0, 2.0, 5.0, 6.0], 2.5) == 2.5
    assert longest_gap([1.0, 2.0, 5.0, 9.0], 2.5) == 4.0
    assert math.isinf(longest_gap([1.0, 2.0], 2.5))


@pytest.mark.slow
@pytest.mark.timing
def test_brokers_that_leave_and_die_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = [text for name in ("postgresql", "etcd") if (text := missing(name))]
    if lacking:
        pytest.skip(f"not installed: {'; '.join(lacking)}")
    monkeypatch.setenv("DEJAQ_SERVICES_ROOT", str(tmp_path))  # so that it is as before afterwards
    plan = Plan(2_000, 1.0, 1, 1, tmp_path, ("dejaq",), 0, quick=True)
    rates: outages.Rates = {}
    told: list[str] = []
    outages.outages_postgresql(rates, outages.Size(4, 2_000, 2, 2_000), plan, told.append)
    assert sorted(rates) == ["failover_postgresql", "hand_over_postgresql", "rolling_postgresql"]
    assert all(0 < one < outages.SERVED_SECONDS_MAX for (one,) in rates.values()), told
    # Where the time goes is read from what brokers log. A slot that moves on is read once more.
    (killed,) = [line for line in told if "is killed" in line]
    found = re.search(r"seen as gone .* slots taken .* (\d+) partitions read", killed)
    assert found, killed
    assert int(found[1]) >= 4, killed
    assert list(tmp_path.glob("cluster-*")) == [], told
