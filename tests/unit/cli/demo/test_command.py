"""`dejaq demo`: what its options ask for, what it prints, its status. Runs: tests/cli."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.cli.demo import run as module
from dejaqueue.cli.demo.run import Options
from tests.cli.conftest import invoke


class Runs:
    """Stands for the run: notes what was asked for, and judges as the test says."""

    def __init__(self) -> None:
        self.options: list[Options] = []
        self.is_good = True

    def __call__(self, options: Options, progress: Any) -> Any:
        self.options.append(options)
        return SimpleNamespace(is_good=self.is_good, lines=lambda: ["scheduled 5", "lost 0"])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(module, "run_demo", runs)
    return runs


def test_options_become_what_is_run(runs: Runs, tmp_path: Path) -> None:
    page, data = tmp_path / "page.html", tmp_path / "data"
    invoke(
        *("demo", "--seconds", "1.5", "--date", "2013-07-01", "--notice-minutes", "7"),
        *("--notice-ms", "60", "--kill", "--data", str(data), "--html", str(page)),
    )
    assert runs.options == [Options(1_500, date(2013, 7, 1), 7, 60, data, page, kill=True)]
    invoke("demo")
    assert runs.options[1].length_ms == 60_000
    assert (runs.options[1].day, runs.options[1].has_faults) == (None, False)


def test_a_cluster_has_faults_of_its_own__and_is_not_killed_besides(runs: Runs) -> None:
    invoke("demo", "--cluster", "--kill")
    [asked] = runs.options
    assert (asked.cluster, asked.kill, asked.has_faults) == (True, False, True)


@pytest.mark.parametrize(("is_good", "status"), [(True, 0), (False, 1)])
def test_the_report_is_printed_whatever_it_says__and_the_status_says_the_same(
    runs: Runs, tmp_path: Path, is_good: bool, status: int
) -> None:
    runs.is_good = is_good
    found = invoke("demo", "--html", str(tmp_path / "page.html"))
    assert found.exit_code == status
    lines = found.stdout.splitlines()
    assert lines == ["scheduled 5", "lost 0", f"report {tmp_path / 'page.html'}"]
