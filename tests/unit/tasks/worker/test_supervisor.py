"""Covers: processes are started, replaced and ended; what one that dies had at work is given back.

Not covered: kills again and again under load (tests/integration/test_workers.py).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dejaqueue.tasks import TaskFailed, Tasks
from dejaqueue.tasks.worker.board import AtWork
from dejaqueue.tasks.worker.supervisor import Supervisor, WorkerOptions
from tests.patience import until
from tests.unit.tasks.worker import applications
from tests.unit.tasks.worker.worker_stage import process_options, served, supervised

OPTIONS = WorkerOptions(process_options())


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    with served(monkeypatch) as app:
        yield app


def takes_nothing(app: Tasks) -> bool:
    consumers = app.client.stats("work").consumers
    return all(one.credit == 0 for one in consumers)


def pids(path: Path) -> list[int]:
    note = Path(f"{path}.begun")
    return [int(line) for line in note.read_text().split()] if note.exists() else []


def test_a_task_that_was_at_work_when_its_process_was_killed_is_run_again_and_says_why(
    app: Tasks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "note"
    with supervised(OPTIONS, app) as supervisor:
        handle = applications.waits.send(str(path))
        until(lambda: pids(path), "it is at work")
        os.kill(pids(path)[0], signal.SIGKILL)
        until(lambda: len(pids(path)) == 2, "another process has it")
        Path(f"{path}.end").touch()
        assert handle.result() == 2
        assert sum(supervisor.lost.values()) == 1
        assert supervisor.replaced == 1
    text = (
        f"attempt 1: WorkerLost: worker process {pids(path)[0]} was killed by SIGKILL; given back"
    )
    assert text in caplog.text


def test_a_task_that_kills_its_processes_is_given_back_each_time(
    app: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.tasks.worker.supervisor.YOUNG_US", 0)  # no pauses
    handle = applications.dies.send()
    with supervised(OPTIONS, app):
        until(lambda: app.client.stats("work").nacked >= 2, "it was given back again and again")
        handle.cancel()
    assert app.client.stats("work").dead == 0


def test_a_hard_time_limit_ends_the_process__and_the_task_after_its_retries(app: Tasks) -> None:
    with supervised(OPTIONS, app) as supervisor:
        with pytest.raises(TaskFailed, match="TimeLimitExceeded: worker process .* hard limit is"):
            applications.hangs.send().result(120)
        assert sum(supervisor.lost.values()) == 2
        assert applications.double.send(4).result() == 8


def test_stopping_finishes_what_is_at_work(app: Tasks, tmp_path: Path) -> None:
    path = tmp_path / "note"
    with supervised(OPTIONS, app) as supervisor:
        handle = applications.waits.send(str(path))
        until(lambda: pids(path), "it is at work")
        assert not takes_nothing(app)
        supervisor.stop()
        until(lambda: takes_nothing(app), "its processes have heard of it")
        later = applications.double.send(1)
        Path(f"{path}.end").touch()
        assert handle.result() == 1
    assert later.state() == "ready"
    assert len(pids(path)) == 1


@pytest.mark.parametrize("grace_s", [0.1, 3_600])
def test_after_its_grace_or_a_second_word_it_is_given_back_at_once(
    app: Tasks, tmp_path: Path, grace_s: float
) -> None:
    path = tmp_path / "note"
    with supervised(replace(OPTIONS, grace_s=grace_s), app) as supervisor:
        handle = applications.waits.send(str(path))
        until(lambda: pids(path), "it is at work")
        supervisor.stop()
        if grace_s > 60:
            supervisor.stop()
    assert handle.state() == "ready"


def test_a_process_is_replaced_after_so_many_tasks__and_for_its_memory(app: Tasks) -> None:
    with supervised(replace(OPTIONS, tasks_max=5), app) as supervisor:
        for handle in [applications.double.send(n) for n in range(12)]:
            handle.result()
        until(lambda: supervisor.replaced >= 1, "replaced after five")
        assert supervisor.lost == {}
    with supervised(replace(OPTIONS, memory_bytes_max=1 << 20), app) as supervisor:
        until(lambda: supervisor.replaced >= 1, "replaced as it has more than a megabyte")


def test_a_changed_program_runs_in_new_processes(app: Tasks) -> None:
    with supervised(OPTIONS, app) as supervisor:
        until(lambda: supervisor.is_ready, "ready")
        supervisor.reload()
        until(lambda: supervisor.replaced == 1 and supervisor.is_ready, "replaced")
        assert applications.double.send(2).result() == 4
        until(lambda: supervisor.tally().done == 1, "its process has said so")


def test_a_process_that_cannot_start_is_tried_again_after_a_pause(app: Tasks) -> None:
    wrong = replace(OPTIONS, child=replace(OPTIONS.child, app="no_such_module:app"))
    with supervised(wrong, app) as supervisor:
        until(lambda: supervisor.replaced >= 1, "it has ended")
        assert supervisor._pause_us >= 500_000
        assert not supervisor.is_ready


def test_one_that_was_lost_too_often_is_dead() -> None:
    supervisor = Supervisor(Tasks(), OPTIONS)
    child = SimpleNamespace(popen=SimpleNamespace(pid=7, returncode=-9), killed_for="")
    often = AtWork("t", 1, 12, 0, 0, -1, 0, True)
    end = supervisor._end_of(child, often, 0)  # type: ignore[arg-type]
    assert (end.is_dead, end.reason) == (True, "WorkerLost: worker process 7 was killed by SIGKILL")
    child.killed_for = "the worker was stopped at once"
    assert not supervisor._end_of(child, often, 0).is_dead  # type: ignore[arg-type]
    seldom = replace(often, is_lost=False)
    assert not supervisor._end_of(child, seldom, 0).is_dead  # type: ignore[arg-type]
