"""Covers: what the rows of streamed payloads compare, and a run of seconds on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import streamed_payloads
from bench.streamed_payloads import MEMORY, rows_of
from bench.systems.system import Plan
from bench.targets import TARGETS


def test_rates_are_compared_with_the_own_client_of_the_same_store() -> None:
    medians = {
        ("up", "directory", "own"): 200.0,
        ("up", "directory", "dejaq"): 150.0,
        ("up", "directory", "file"): 1_000.0,
        ("up", "s3", "own"): 50.0,
        ("up", "s3", "dejaq"): 25.0,
        ("memory_client", "s3", "dejaq"): 30.0,
    }
    rows = {row.case: row for row in rows_of("bytes", medians)}
    assert rows["streamed_up_directory"].ratio == 0.75
    assert rows["streamed_up_s3"].ratio == 0.5
    assert rows["streamed_up_s3"].ratio_to == "own"
    assert rows["streamed_up_directory_own"].ratio is None
    assert rows["streamed_up_directory_file"].ratio is None
    assert rows["streamed_memory_client_s3"].unit == MEMORY


@pytest.mark.slow
def test_all_cases_are_measured(tmp_path: Path) -> None:
    plan = Plan(2_000, 0.3, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    rows, left_out = streamed_payloads.streamed_rows("bytes", plan, lambda _: None)
    cases = {row.case for row in rows}
    wanted = {one.case for one in TARGETS if one.case.startswith("streamed_")}
    if left_out:
        wanted = {case for case in wanted if not case.endswith("_s3")}
    assert wanted <= cases
    assert all(row.value > 0 for row in rows if row.unit != MEMORY)
