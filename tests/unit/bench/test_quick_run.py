"""Covers: a run of seconds against real servers, from the command to the kept rows.

A peer that is not installed is skipped here, and left out by name there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import registry
from dev.reaper import marks
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[3]
CASES = {"enqueue", "lease_ack", "single"}


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env=marks() | {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def quick(
    out: Path, question: str, system: str, rows: int = 2_000, seconds: float = 0.3
) -> list[dict[str, object]]:
    """Rows of a quick run; it must leave no server's files behind."""
    found = run_bench(
        question, "--quick", "--rows", str(rows), "--seconds", str(seconds), "--senders", "4",
        "--systems", system, "--no-keep", "--out", str(out),
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert list((out / "servers").iterdir()) == []
    kept: list[dict[str, object]] = json.loads((out / "results" / "latest.json").read_text())
    return kept


@pytest.mark.slow
@pytest.mark.may_skip
@pytest.mark.parametrize("system", ["redis", "beanstalkd"])
def test_a_peer_answers_throughput(tmp_path: Path, system: str) -> None:
    kinds, left_out = registry.available((system,))
    if not kinds:
        pytest.skip("; ".join(left_out))
    rows = quick(tmp_path, "throughput", system)
    assert {row["case"] for row in rows} >= CASES
    assert all(row["system"] == system and float(str(row["value"])) > 0 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "cases"),
    [
        ("sqs", {"send", "receive_delete", "delay_p99", "delay_early"}),
        ("doq", {"streams_enqueue", "streams_dequeue", "streams_both"}),
        ("fair", {"lease_ack", "lease_ack_priority", "jain"}),
        ("peers", {"deliver_p50", "send_1", "send_64", "take_1", "delay_p99", "delay_server_us"}),
        (
            "subscriptions",
            {
                *("enqueue_1", "enqueue_10", "deliver_10", "log_through", "queue_through"),
                *("replay", "replay_beside_p99", "start_usable", "start_whole", "memory_due"),
            },
        ),
    ],
)
def test_a_question_is_answered_from_the_command_to_the_rows(
    tmp_path: Path, question: str, cases: set[str]
) -> None:
    """Whatever peers are there are asked, too; here it is about what is ours."""
    rows = quick(tmp_path, question, "dejaq", rows=100, seconds=0.1)
    values = {
        str(row["case"]): float(str(row["value"])) for row in rows if row["system"] == "dejaq"
    }
    assert cases <= set(values)
    # Nothing, of a few messages; processor time is counted in ticks of 10 ms.
    small = ("delay_early", "memory_due", "memory_log", "start_held", "replay_beside_p99")
    counted = [case for case in values if case not in small and not case.endswith("_us")]
    assert all(values[case] > 0 for case in counted)
    assert values.get("delay_early", 0.0) == 0.0


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    kinds, left_out = registry.available(("beanstalkd",))
    assert kinds == []
    assert left_out == ["beanstalkd: the program beanstalkd is not installed"]


def test_an_unknown_question_is_refused_with_the_known_ones() -> None:
    found = run_bench("speed")
    assert found.returncode == 2
    assert "throughput" in found.stderr


def test_an_unknown_system_is_refused_with_the_known_ones() -> None:
    found = run_bench("throughput", "--systems", "rabbits")
    assert found.returncode == 2
    assert "beanstalkd" in found.stderr
