"""Covers: what a second run forgives, by a real pytest; what it does not.

Not covered: the left-out tests of this project (conftest.py gives them a status of their own, and a
status that is not known has no second run here).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dev.second_run import TESTS_MAX, failed_tests
from tests.dev.test_reaper import is_alive, unmarked
from tests.patience import until

ROOT = Path(__file__).resolve().parents[2]
ONCE = """
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range({count}))
def test_it(number):
    with open("calls", "a") as calls:
        calls.write(f"{{number}}\\n")
    if number in {broken}:
        seen = Path(f"seen-{{number}}")
        assert not {{number}} & {always}
        if not seen.exists():
            seen.touch()
            raise AssertionError("a busy machine")
"""


WAITS = """
import os, pathlib, threading
def test_it():
    pathlib.Path("pid").write_text(str(os.getpid()))
    threading.Event().wait(300)
"""


def second_run(
    folder: Path, broken: set[int], always: set[int], *options: str, where: str = "tests/unit"
) -> tuple[int, str]:
    """(exit status, what was printed) of tests of which some fail once, and some always."""
    there = folder / where
    there.mkdir(parents=True)
    text = ONCE.format(count=TESTS_MAX + 2, broken=broken or "()", always=always or "set()")
    (there / "test_once.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "dev.second_run", "-n", "2", "--dist", "loadscope", *options, where],
        cwd=folder,
        env=unmarked() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout


def test_what_passes_alone_is_named_and_only_it_has_run_twice(tmp_path: Path) -> None:
    status, said = second_run(tmp_path, {2, 5}, set())
    assert status == 0
    assert "AssertionError: a busy machine" in said
    for number in (2, 5):
        told = "FAILED BESIDE OTHERS, passed alone; find out why"
        assert f"{told}: {Path('tests', 'unit', 'test_once.py')}::test_it[{number}]" in said
    calls = (tmp_path / "calls").read_text().split()
    assert sorted(calls, key=int) == sorted([*map(str, range(TESTS_MAX + 2)), "2", "5"], key=int)


def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    status, said = second_run(tmp_path, {2, 5}, {5})
    assert status == 1
    assert "1 failed, 1 passed" in said
    assert "BESIDE OTHERS" not in said


@pytest.mark.parametrize("where", ["tests/model", "tests/formal"])
def test_what_the_machine_cannot_disturb_has_no_second_run(tmp_path: Path, where: str) -> None:
    status, said = second_run(tmp_path, {2}, set(), where=where)
    assert status == 1
    assert "fails on a quiet machine, too" in said


def test_many_have_no_second_run(tmp_path: Path) -> None:
    status, said = second_run(tmp_path, set(range(TESTS_MAX + 1)), set())
    assert status == 1
    assert f"{TESTS_MAX + 1} tests failed" in said


def test_a_run_that_ended_otherwise_has_none(tmp_path: Path) -> None:
    status, said = second_run(tmp_path, {2}, set(), "--no-such-option")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "second run" not in said
    assert failed_tests(tmp_path / "build" / "second-run") == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_it_runs_ends_with_it(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "test_waits.py").write_text(WAITS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "dev.second_run", "-n", "0", "."],
        cwd=tmp_path,
        env=unmarked() | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    seen = tmp_path / "pid"
    until(lambda: seen.exists() and seen.read_text(), "the test has begun")
    if how is signal.SIGKILL:
        run.kill()
    else:
        os.killpg(run.pid, how)  # as a terminal does it
    said, _ = run.communicate(timeout=180)
    until(lambda: not is_alive(int(seen.read_text())), "pytest has ended")
    if how is signal.SIGINT:
        assert run.returncode == pytest.ExitCode.INTERRUPTED
        assert "KeyboardInterrupt" in said
