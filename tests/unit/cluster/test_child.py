import os
import queue
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dejaqueue.clock import SystemClock
from dejaqueue.cluster import child as module
from dejaqueue.cluster.child import Child, end_left_behind

SAYS = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SAYS
PROGRAM = os.path.realpath(sys.executable)


@contextmanager
def child(folder: Path, code: str = SAYS) -> Iterator[tuple[Child, "queue.Queue[str]"]]:
    lines: queue.Queue[str] = queue.Queue()
    made = Child("test", lambda: [PROGRAM, "-c", code], folder / "pid", lines.put, SystemClock())
    made.start()
    try:
        yield made, lines
    finally:
        made.stop()


def check_ends(pid: int) -> None:
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = select.select([watched], [], [], 10)[0]
    os.close(watched)
    assert ended, f"process {pid} goes on"


def test_it_runs_and_stops(tmp_path: Path) -> None:
    with child(tmp_path) as (one, lines):
        pid = int(lines.get(timeout=10))
        assert one.pid == pid == int((tmp_path / "pid").read_text())
        assert one.running_ms() >= 0
        one.stop()
        check_ends(pid)
        assert one.pid is None
        assert not (tmp_path / "pid").exists()


def test_one_whose_number_cannot_be_noted_is_watched_and_ended_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "pid").mkdir()  # neither written nor removed, as on a disk that takes no writes
    with child(tmp_path) as (one, lines):
        pid = int(lines.get(timeout=10))
        assert one.starts == 1
        one.stop()
        check_ends(pid)


def test_one_that_does_not_want_to_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.2)
    with child(tmp_path, STUBBORN) as (one, lines):
        pid = int(lines.get(timeout=10))
        one.stop()
        check_ends(pid)
        assert one.pid is None


def test_it_is_started_again_when_it_dies(tmp_path: Path) -> None:
    with child(tmp_path) as (one, lines):
        first = int(lines.get(timeout=10))
        os.kill(first, signal.SIGKILL)
        second = int(lines.get(timeout=10))
        assert second != first
        assert one.starts == 2


def test_it_ends_when_who_started_it_is_killed(tmp_path: Path) -> None:
    starter = f"""
import sys, threading
from pathlib import Path
from dejaqueue.clock import SystemClock
from dejaqueue.cluster.child import Child
say = lambda line: print(line, flush=True)
Child("x", lambda: [{PROGRAM!r}, "-c", {SAYS!r}], Path(sys.argv[1]), say, SystemClock()).start()
threading.Event().wait()
"""
    source = str(Path(__file__).parents[3] / "src")
    with subprocess.Popen(
        [sys.executable, "-c", starter, str(tmp_path / "pid")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source},
    ) as broker:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        broker.kill()
        check_ends(pid)


def test_one_that_was_left_behind_is_ended_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.cluster.child.STOP_S", 0.3)
    with subprocess.Popen([PROGRAM, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as old:
        assert old.stdout is not None
        assert int(old.stdout.readline()) == old.pid
        (tmp_path / "pid").write_text(str(old.pid))
        end_left_behind(tmp_path / "pid", "/another/program")
        assert old.poll() is None
        end_left_behind(tmp_path / "pid", PROGRAM)
        assert old.wait(10) < 0
    end_left_behind(tmp_path / "pid", PROGRAM)  # nobody is there any more
