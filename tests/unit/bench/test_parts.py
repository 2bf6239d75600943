"""Covers: a run of seconds of each part; what is measured by hand has the same functions."""

from __future__ import annotations

from pathlib import Path

from bench.questions import parts
from bench.systems.system import Plan


def test_every_part_is_measured(tmp_path: Path) -> None:
    plan = Plan(2_000, 0.3, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    said: list[str] = []
    outcome = parts.measure(plan, said.append)
    assert outcome.left_out == []
    assert all(row.value > 0 for row in outcome.rows)
    assert {row.case.partition("_")[0] for row in outcome.rows} == {"engine", "groups", "journal"}
    assert len(said) == len(outcome.rows)
    assert list(tmp_path.iterdir()) == []
