"""Covers: a run of seconds of the question on real brokers of one and two processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.questions import processes
from bench.systems.system import Plan
from bench.targets import TARGETS


@pytest.mark.slow
def test_all_cases_are_measured__and_compared_with_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "COUNTS", (1, 2))  # a broker alone has tests enough
    plan = Plan(2_000, 0.3, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    outcome = processes.measure(plan, lambda said: None)
    rows = {row.case: row for row in outcome.rows}
    assert {target.case for target in TARGETS if target.question == "processes"} <= rows.keys()
    assert rows["in_2"].ratio_to == "in_1"
    assert rows["out_2_us"].ratio_to == "out_1_us"
