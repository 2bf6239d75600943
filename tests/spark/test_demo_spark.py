"""Covers: `dejaq demo-spark` in short: a day of flights, every key checked, nothing open to others.

Its Spark is the one of these tests; `make demo-spark` starts its own (test_pipelines.py has one).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from tests.unit.report.test_page import check_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = ("lost", "twice", "early", "unknown", "wrong_payload", "over_rate", "late", "not_stopped")


@pytest.mark.slow
def test_a_day_of_flights_is_scheduled_drained_and_checked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dejaqueue.cli.main import main

    monkeypatch.chdir(tmp_path)
    words = ["demo-spark", "--date", "2013-07-01", "--seconds", "3", "--rate", "300"]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == 0, found.output
    figures = dict(line.split(" ", 1) for line in found.stdout.splitlines())
    assert figures["sent"] == figures["delivered"] == "966"
    assert [figures[name] for name in GOOD] == ["0"] * len(GOOD)
    assert figures["sockets_beyond_loopback"] == "0"
    assert figures["peak_per_second"] == "300"
    assert (figures["audit_messages"], figures["audit_lost"]) == ("966", "0")
    page = tmp_path / figures["report"]
    text = page.read_text(encoding="utf-8")
    check_page(text)
    assert "Every message came once" in text
    assert parquet.read_table(page.parent / "arrived").num_rows == 966
    assert spark.range(3).count() == 3
