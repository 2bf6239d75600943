"""Covers: a worker process runs tasks in each pool, and ends in order when it is told, or orphaned.

Not covered: what its supervisor does (test_supervisor.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dejaqueue.tasks import Tasks
from dejaqueue.tasks.worker.board import Board
from dejaqueue.tasks.worker.worker_process import ProcessOptions
from tests.patience import PATIENCE_SECONDS, until
from tests.unit.tasks.worker import applications
from tests.unit.tasks.worker.worker_stage import process_options, served


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    with served(monkeypatch) as app:
        yield app


def test_options_survive_the_command_line() -> None:
    options = replace(process_options(), topics=("a", "b"))
    assert ProcessOptions.from_json(options.command()[-1]) == options


@pytest.mark.parametrize("pool", ["threads", "asyncio"])
@pytest.mark.parametrize("ends_by", ["SIGTERM", "orphanhood"])
def test_it_runs_tasks_until_it_is_told_to_end(
    app: Tasks, tmp_path: Path, pool: str, ends_by: str
) -> None:
    path = tmp_path / "board"
    board = Board(path, 2)
    options = replace(process_options(pool), board=str(path))
    process = subprocess.Popen(options.command(), stdin=subprocess.PIPE)
    try:
        until(lambda: board.is_ready, "it takes tasks")
        handles = [applications.double.send(n) for n in range(10)]
        handles += [applications.double_async.send(n) for n in range(10)]
        assert [one.result() for one in handles] == [2 * n for n in (*range(10), *range(10))]
        until(lambda: board.tally().done == 20)
        until(lambda: board.tally().rss_bytes > 1 << 20)
        if ends_by == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            assert process.stdin is not None
            process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
    assert board.at_work() == []
    board.close()


def test_without_a_broker_it_ends_with_the_status_of_that(
    app: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKS_URL", "dejaq://127.0.0.1:1")
    options = replace(process_options(), board=str(tmp_path / "board"))
    code = (
        "import sys; from tests.unit.tasks.worker import applications as a;"
        "a.app._given = __import__('dejaqueue').Client(a.app.url, retry_ms_max=100);"
        "from dejaqueue.tasks.worker import worker_process as p;"
        "sys.exit(p.WorkerProcess(p.ProcessOptions.from_json(sys.argv[1]), a.app).run())"
    )
    command = [options.command()[0], "-c", code, options.command()[-1]]
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode != 0
    assert os.path.exists(options.board)
