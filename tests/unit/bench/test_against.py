"""Two trees in turns: which figures are compared, what a ratio is, which commits can be asked for.

Not covered: whether a figure is right (test_quick_run.py runs the questions).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import against
from bench.against import PROCESSOR, checked_out, figures_of, ratios_of

ROOT = Path(__file__).resolve().parents[3]
PER_SECOND = "messages/s"


def test_figures_are_by_case__with_processor_time_where_it_was_measured() -> None:
    run: dict[str, object] = {
        "spreads": {
            "dejaq/enqueue": {"median": 5.0, "low": 5.0, "high": 5.0, PROCESSOR: [1.0, 3.0]},
            "dejaq/p99": {"median": 7.0, "low": 7.0, "high": 7.0},
        }
    }
    assert figures_of(run, {"enqueue": PER_SECOND, "p99": "ms"}) == {
        ("enqueue", PER_SECOND): 5.0,
        ("enqueue", PROCESSOR): 2.0,
        ("p99", "ms"): 7.0,
    }


def test_a_ratio_is_made_within_each_round__so_a_slow_round_of_both_does_not_show() -> None:
    key = ("enqueue", PER_SECOND)
    (one,) = ratios_of([({key: 90.0}, {key: 100.0}), ({key: 9.0}, {key: 10.0})])
    assert one.rounds == (0.9, 0.9)
    assert one.middle == 0.9
    assert (one.ours, one.theirs) == (49.5, 55.0)


def test_a_case_that_one_tree_lacks_is_left_out() -> None:
    both, new = ("enqueue", PER_SECOND), ("new", PER_SECOND)
    assert [one.case for one in ratios_of([({both: 1.0, new: 1.0}, {both: 1.0})])] == ["enqueue"]


def test_an_unknown_commit_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a commit of this repository, got: no-such-commit"):
        checked_out("no-such-commit", tmp_path)


def test_a_commit_is_taken_from_git_once(tmp_path: Path) -> None:
    source = checked_out("HEAD", tmp_path)
    assert (source / "dejaqueue" / "version.py").is_file()
    mark = source / "mark"
    mark.touch()
    assert checked_out("HEAD", tmp_path) == source
    assert mark.exists()


def test_the_other_tree_is_what_runs(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "dejaqueue").mkdir(parents=True)
    (source / "dejaqueue" / "__init__.py").write_text('raise SystemExit("the other tree")')
    with pytest.raises(RuntimeError, match="the other tree"):
        against.turn("throughput", source, tmp_path / "out", ["--quick"])


@pytest.mark.slow
def test_the_command_prints_ratios(tmp_path: Path) -> None:
    arguments = ["throughput", "--against", "HEAD", "--rounds", "1", "--rows", "2000"]
    arguments += ["--seconds", "0.3", "--senders", "4", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this tree against HEAD" in done.stdout
    assert "lease_ack" in done.stdout
    runs = json.loads((tmp_path / "turn" / "results" / "runs.json").read_text())
    assert runs["throughput"]["spreads"]["dejaq/enqueue"][PROCESSOR]
