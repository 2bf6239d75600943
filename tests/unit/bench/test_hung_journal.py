"""Covers: one log of a real server hangs for a second, and others are measured meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import hung_journal
from bench.systems.system import Plan
from dev.services import missing


@pytest.mark.slow
def test_answers_of_others_are_measured_while_one_log_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = missing("postgresql")
    if lacking:
        pytest.skip(f"not installed: {lacking}")
    pytest.importorskip("psycopg")
    monkeypatch.setenv("DEJAQ_SERVICES_ROOT", str(tmp_path))  # so that it is as before afterwards
    plan = Plan(2_000, 1.0, 1, 1, tmp_path, ("dejaq",), 0, quick=True)
    told: list[str] = []
    found = hung_journal.hung_figures(plan, told.append)
    assert found.keys() == {"hung_idle_p99", "hung_beside_p99"}
    # Who waited for that log would have waited for the second.
    assert 0 < found["hung_beside_p99"] < 1_000 * hung_journal.QUICK_SECONDS
    assert len(told) == 1
