"""Covers: what the rows of `many` compare, and a run of seconds of its cases on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.questions import many
from bench.systems.system import Plan
from bench.targets import TARGETS


def test_many_are_compared_with_one_of_the_same_round() -> None:
    found = {"in_1": [(8.0, 1.0), (4.0, 1.0)], "in_64": [(4.0, 3.0), (4.0, 2.0)]}
    rows = {row.case: row for row in many.rows_of(found)}
    assert (rows["in_64"].value, rows["in_64"].ratio, rows["in_64"].ratio_to) == (4.0, 0.75, "in_1")
    assert (rows["in_64_us"].value, rows["in_64_us"].ratio) == (2.5, 2.5)
    assert rows["in_64_us"].ratio_to == "in_1_us"
    assert rows["in_1"].ratio is None
    assert rows["in_1"].ratio_to is None


@pytest.mark.slow
def test_all_cases_are_measured(tmp_path: Path) -> None:
    plan = Plan(2_000, 0.3, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    said: list[str] = []
    outcome = many.measure(plan, said.append)
    cases = {row.case for row in outcome.rows}
    assert {target.case for target in TARGETS if target.question == "many"} <= cases
    assert all(row.value > 0 for row in outcome.rows if row.unit == many.RATE)
    assert set(outcome.spreads) == {
        f"dejaq/{row.case}" for row in outcome.rows if row.unit == many.RATE
    }
    assert list(tmp_path.iterdir()) == []
