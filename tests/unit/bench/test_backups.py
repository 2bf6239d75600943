"""Covers: every figure of backups that has a target, in a run of seconds on real stores.

Not covered: what is in a backup (tests/unit/broker/backup, tests/integration/test_backup.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import backups
from bench.systems.system import Plan
from bench.targets import TARGETS

BEGINNINGS = ("backup_", "restore")


@pytest.mark.slow
def test_all_cases_are_measured(tmp_path: Path) -> None:
    plan = Plan(2_000, 0.3, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    rows, left_out = backups.backup_rows("bytes", plan, lambda _: None)
    found = {row.case: row for row in rows}
    wanted = {one.case for one in TARGETS if one.case.startswith(BEGINNINGS)}
    if left_out:
        wanted = {case for case in wanted if not case.endswith("_s3")}
    assert wanted <= found.keys()
    assert all(row.value > 0 for row in rows)
    assert found["backup_incremental_bytes"].ratio_to == "full"
    assert not list((tmp_path).glob("backups-*"))  # they are large
