"""`dejaq demo-spark`: what its options ask for, what it prints, its status. Runs: tests/spark."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from dejaqueue.cli.demo import spark_page, spark_run
from dejaqueue.cli.demo.spark_run import Options
from tests.cli.conftest import invoke

FIGURES = {"sent": 5, "lateness_p50_ms": 1.23456, "sockets_beyond_loopback": None}


class Runs:
    """Stands for the run and for the page; notes what was asked of them."""

    def __init__(self) -> None:
        self.options: list[Options] = []
        self.pages: list[tuple[Path, Any]] = []
        self.is_good = True
        self.sockets: list[str] | None = None

    def run_demo(self, options: Options) -> Any:
        self.options.append(options)
        told = {"is_good": self.is_good, "sockets": self.sockets}
        return SimpleNamespace(figures=lambda: FIGURES, **told)

    def write_page(self, path: Path, result: Any, figures: Any) -> None:
        self.pages.append((path, figures))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(spark_run, "run_demo", runs.run_demo)
    monkeypatch.setattr(spark_page, "write_page", runs.write_page)
    return runs


def test_options_become_what_is_run(runs: Runs, tmp_path: Path) -> None:
    words = ("--seconds", "2.5", "--rate", "7", "--date", "2013-07-01", "--out", str(tmp_path))
    invoke("demo-spark", *words)
    invoke("demo-spark")
    usual = Options(15_000, 25_000, None, Path("demo-out/spark"))
    assert runs.options == [Options(2_500, 7, date(2013, 7, 1), tmp_path), usual]


def test_figures_are_lines__and_the_page_has_them_too(runs: Runs, tmp_path: Path) -> None:
    found = invoke("demo-spark", "--out", str(tmp_path))
    page = tmp_path / "report.html"
    assert found.stdout.splitlines() == [
        "sent 5",
        "lateness_p50_ms 1.235",
        "sockets_beyond_loopback -",
        f"report {page}",
    ]
    assert found.stderr == ""
    assert (found.exit_code, runs.pages) == (0, [(page, FIGURES)])


def test_what_is_open_to_the_world_is_named__and_the_status_says_that_it_is_wrong(
    runs: Runs, tmp_path: Path
) -> None:
    runs.is_good, runs.sockets = False, ["0.0.0.0:80"]
    found = invoke("demo-spark", "--out", str(tmp_path))
    assert (found.exit_code, found.stderr) == (1, "open beyond loopback: 0.0.0.0:80\n")
    assert len(runs.pages) == 1
