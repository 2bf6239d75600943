"""What a test run has started ends with it, however the run ends.

Covered: a real pytest that is killed, or ended by Ctrl-C, with brokers, a JVM and every server that
is installed (scene.py); programs that do not listen, are paused, have children. Not covered: mounts
and folders that a killed run leaves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dejaqueue.clock import SystemClock, Wake
from dev.reaper import marks
from dev.services import NAMES
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
"""Three until who does not stop is killed, and patience for a machine with other work."""


class Run:
    """A pytest of the scene in a process of its own."""

    def __init__(self, folder: Path, starts: str, *options: str) -> None:
        self.result, self.log = folder / "running", folder / "log"
        scene = str(Path(__file__).with_name("scene.py"))
        command = [
            "env",
            "--default-signal=INT",  # ignored by all that a shell starts in the background
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--basetemp={folder / 'of_run'}", "--timeout=300", *options, scene],
                env=unmarked() | {"SCENE_STARTS": starts, "SCENE_RESULT": str(self.result)},
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        self.running: dict[int, str] = {}

    def wait_until_all_run(self) -> None:
        """Until the scene has said who runs."""
        while not self.result.exists():
            assert self.process.poll() is None, self.log.read_text()
            wait_a_moment()
        found = json.loads(self.result.read_text())
        self.running = {int(pid): command for pid, command in found.items()}

    def left(self) -> dict[int, str]:
        """Those that still run, once all are gone or the time is over."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (left := self._alive()) and time.monotonic() < deadline:
            wait_a_moment()
        return left

    def _alive(self) -> dict[int, str]:
        return {pid: command for pid, command in self.running.items() if is_alive(pid)}

    def end(self) -> None:
        """End what a reaper that does not work has left."""
        for pid in [self.process.pid, *self._alive()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def unmarked() -> dict[str, str]:
    """This environment; the marks of this run must not be what the scene's are judged by."""
    return {name: value for name, value in os.environ.items() if name not in marks()}


def wait_a_moment() -> None:
    clock = SystemClock()
    clock.wait_until(clock.now_us() + 50_000, Wake())


def is_alive(pid: int) -> bool:
    """True unless it is gone, or waits only for its parent to hear of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    """Whoever is put in is ended."""
    found: list[Run] = []
    yield found
    for run in found:
        run.end()


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one_process", "xdist"])
def test_what_a_killed_run_started_ends__brokers_and_servers(
    runs: list[Run], tmp_path: Path, options: tuple[str, ...]
) -> None:
    starts = "broker,shell,paused,redis" if options else ",".join(["broker", "jvm", *NAMES])
    run = Run(tmp_path, starts, *options)
    runs.append(run)
    run.wait_until_all_run()
    assert len(run.running) > (4 if options else 2)
    os.killpg(run.process.pid, signal.SIGKILL)
    run.process.wait()
    assert run.left() == {}


def test_what_a_run_started_ends_with_it__ctrl_c(runs: list[Run], tmp_path: Path) -> None:
    run = Run(tmp_path, "broker,shell,paused")
    runs.append(run)
    run.wait_until_all_run()
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.process.wait() == pytest.ExitCode.INTERRUPTED
    assert run.left() == {}


def test_others_are_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "100"], env={"PATH": os.environ["PATH"]})
    program = "import dev.reaper, subprocess; dev.reaper.start_reaper();"
    program += "print(subprocess.Popen(['sleep', '100']).pid)"
    try:
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while is_alive(int(found.stdout)) and time.monotonic() < deadline:
            wait_a_moment()
        assert not is_alive(int(found.stdout))
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_program_has_one_mark__asked_twice() -> None:
    program = "import dev.reaper as r; r.start_reaper(); r.start_reaper(); print(r.marks())"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.count("ENDS_WITH") == 1
    assert found.stderr == ""
