"""Covers: what the rows of streamed payloads compare, and a run of seconds on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import streamed_payloads
from bench.streamed_payloads import MEMORY, rows_of
from bench.systems.system import Plan
from bench.targets import TARGETS


def test_rates_are_compared_with_the_store_alone() -> None:
    medians = {("up", "alone"): 200.0, ("up", "dejaq"): 150.0, ("memory_client", "dejaq"): 30.0}
    rows = {row.case: row for row in rows_of("bytes", medians)}
    assert rows["streamed_up_dejaq"].ratio == 0.75
    assert rows["streamed_up_dejaq"].ratio_to == "alone"
    assert rows["streamed_up_alone"].ratio is None
    assert rows["streamed_memory_client_dejaq"].unit == MEMORY


@pytest.mark.slow
def test_all_cases_are_measured(tmp_path: Path) -> None:
    plan = Plan(2_000, 0.3, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    rows = streamed_payloads.streamed_rows("bytes", plan, lambda _: None)
    cases = {row.case for row in rows}
    wanted = {one.case for one in TARGETS if one.case.startswith("streamed_")}
    assert wanted <= cases
    assert all(row.value > 0 for row in rows if row.unit != MEMORY)
