"""Covers: a run of seconds of two cases on a real broker: a call, and what is due at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.questions import beside
from bench.systems.system import Plan


@pytest.mark.slow
def test_the_other_topics_lateness_is_measured_while_something_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "CASES", ("cancel_keys", "fair"))
    plan = Plan(20_000, 1.0, 1, 4, tmp_path / "servers", ("dejaq",), 0, quick=True)
    plan.folder.mkdir()
    outcome = beside.measure(plan, lambda said: None)
    rows = {row.case: row.value for row in outcome.rows}
    figures = {f"{case}_{name}" for case in beside.CASES for name in ("p99", "max", "seconds")}
    assert rows.keys() == figures | {"fair_first"}
    assert all(value > 0 for value in rows.values())
    assert rows["fair_first"] <= rows["fair_seconds"]
