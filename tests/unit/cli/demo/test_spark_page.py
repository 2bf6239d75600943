"""The page of the demo on Spark: its verdict and figures. Charts themselves: tests/unit/report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from dejaqueue.cli.demo.spark_check import Check
from dejaqueue.cli.demo.spark_page import write_page
from dejaqueue.cli.demo.spark_run import Result
from dejaqueue.pipelines.frame import Outcome

DUES_MS = np.array([1_000, 2_000, 2_000], dtype=np.int64)
CHECK = Check(3, 3, 0, 0, 0, 0, 0, 0, np.array([10, 20, 4_000], dtype=np.int64), DUES_MS)
PLANNED = {"peak_per_second": 2, "late": 0, "first": "a", "last": "b"}
GOOD = Result(CHECK, PLANNED, 0, [], Outcome({"lost": 0}))


def page(tmp_path: Path, result: Result) -> str:
    path = tmp_path / "page.html"
    write_page(path, result, result.figures())
    return path.read_text(encoding="utf-8")


def test_a_good_run_says_so__with_every_figure(tmp_path: Path) -> None:
    text = page(tmp_path, GOOD)
    assert "Every message came once, at its time" in text
    assert "3 flights were scheduled by a campaign" in text
    for name in GOOD.figures():
        assert f">{name}<" in text
    assert "4,000 ms" in text, "the axis of lateness ends at the latest one"


def test_a_bad_run_says_so__and_marks_what_was_bad(tmp_path: Path) -> None:
    good, bad = page(tmp_path, GOOD), page(tmp_path, replace(GOOD, check=replace(CHECK, lost=7)))
    assert "Something went wrong" in bad
    assert "Every message came once" not in bad
    assert bad.count('class="tile bad"') == good.count('class="tile bad"') + 1


def test_where_nothing_came_there_are_no_charts(tmp_path: Path) -> None:
    nothing = np.zeros(0, dtype=np.int64)
    text = page(
        tmp_path, replace(GOOD, check=replace(CHECK, latenesses_ms=nothing, dues_ms=nothing))
    )
    assert "<svg" not in text
    assert "<svg" in page(tmp_path, GOOD)
