"""Covers: a call on its way is asked, moved, cancelled and awaited; a schedule paused and ended.

Not covered: workers in processes of their own (tests/integration/test_workers.py).
"""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

import dejaqueue
from dejaqueue.model import RowStatus
from dejaqueue.tasks import ResultMissing, TaskFailed, Tasks
from dejaqueue.tasks.execution import Execution
from dejaqueue.tasks.handle import ResultPending
from tests.unit.tasks.stage import stage


def double(n: int) -> int:
    if n < 0:
        raise ValueError("negative")
    return 2 * n


def test_it_is_moved_and_cancelled() -> None:
    with stage() as on:
        task = on.app.add(double, "double", {"result": 60})
        worker = on.rehearse()
        handle = task.in_(60).send(4)
        assert handle.state() == "scheduled"
        assert handle.move(by=60) is RowStatus.OK
        assert worker.advance(timedelta(seconds=119)) == 0
        assert handle.move(in_=2) is RowStatus.OK
        assert handle.move(at=on.clock.now_ms()) is RowStatus.OK
        assert handle.state() == "ready"
        assert worker.run_due() == 1
        assert handle.cancel() is RowStatus.NOT_FOUND
        other = task.in_(60).send(4)
        assert other.cancel() is RowStatus.OK
        assert worker.advance(timedelta(hours=1)) == 0
        with pytest.raises(ResultMissing):
            other.result()


def test_results_and_errors_are_kept_for_their_life() -> None:
    with stage() as on:
        task = on.app.add(double, "double", {"result": 60})
        worker = on.rehearse()
        good, bad = task.send(4), task.send(-1)
        worker.run_due()
        assert (good.state(), bad.state()) == ("done", "failed")
        assert good.result() == 8
        with pytest.raises(TaskFailed, match="ValueError: negative") as failed:
            bad.result()
        assert failed.value.kind == "ValueError"
        assert "in double" in failed.value.traceback
        worker.advance(timedelta(seconds=60))
        assert (good.state(), bad.state()) == ("gone", "gone")
        with pytest.raises(ResultMissing, match="result's life is over"):
            good.result()


def test_waiting_has_an_end() -> None:
    with dejaqueue.open("memory:") as client:
        handle = Tasks(client=client).add(double, "double", {"result": 60}).in_(3_600).send(1)
        with pytest.raises(ResultPending, match="has not ended in"):
            handle.result(timeout=0.02)


def test_it_is_awaited__while_another_thread_runs_it() -> None:
    with dejaqueue.open("memory:") as client:
        app = Tasks(client=client)
        task = app.add(double, "double", {"result": 60})
        app.create_all()
        execution = Execution(app)
        worker = threading.Thread(
            target=client.run,
            args=("tasks", lambda message: execution.run("tasks", message)),
            kwargs={"max_messages": 2},
        )
        worker.start()

        async def main() -> int:
            handle = await task.send_async(4)
            value: int = await handle
            return value

        assert asyncio.run(main()) == 8
        assert task.send(5).result() == 10
        worker.join()


def test_a_schedule_is_paused_resumed_and_ended() -> None:
    calls = []
    with stage() as on:
        task = on.app.add(lambda: calls.append(1), "tick", {})
        worker = on.rehearse()
        schedule = task.every(timedelta(hours=1)).send()
        worker.advance(timedelta(hours=3))
        assert len(calls) == 3
        schedule.pause()
        worker.advance(timedelta(hours=3))
        assert len(calls) == 3
        schedule.resume()
        worker.advance(timedelta(hours=1))
        assert len(calls) == 4
        schedule.cancel()
        assert worker.advance(timedelta(hours=3)) == 0
