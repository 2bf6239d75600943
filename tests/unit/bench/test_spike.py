"""Covers: a run of seconds of the question on real brokers, with and without `spike_ahead_ms`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.questions import spike
from bench.systems.system import Plan


@pytest.mark.slow
def test_what_is_sent_ahead_and_what_is_not_are_measured(tmp_path: Path) -> None:
    messages = 30_000 * spike.PART_OF_MESSAGES
    plan = Plan(0, 1.0, 1, 4, tmp_path / "servers", ("dejaq",), messages, quick=True)
    plan.folder.mkdir()
    rows = {row.case: row.value for row in spike.measure(plan, lambda said: None).rows}
    assert rows.keys() == {
        f"{name}{case}"
        for name in ("delivered", "drained", "steady_p99", "early")
        for case in ("", "_ahead")
    }
    assert rows["early"] == rows["early_ahead"] == 0
    assert 0 < rows["delivered_ahead"] <= rows["drained_ahead"]
