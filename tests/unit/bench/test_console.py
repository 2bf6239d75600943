"""Covers: a run of seconds of the question `console` on a real broker, with all its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.questions import console
from bench.systems.system import Plan
from bench.targets import TARGETS


@pytest.mark.slow
def test_all_that_is_asked_of_the_console_is_measured(tmp_path: Path) -> None:
    plan = Plan(2_000, 0.5, 1, 4, tmp_path, ("dejaq",), 20_000, quick=True)
    said: list[str] = []
    outcome = console.measure(plan, said.append)
    rows = {row.case: row.value for row in outcome.rows}
    assert {target.case for target in TARGETS if target.question == "console"} <= set(rows)
    assert outcome.series["cancelled"] == 5_000
    assert 0 < rows["transfer"] < 300
    assert rows["first_paint"] == max(rows[case] for case in rows if case.startswith("paint_")) > 0
    assert rows["page_p95"] == max(rows[case] for case in rows if case.startswith("page_"))
    assert list(tmp_path.iterdir()) == []
