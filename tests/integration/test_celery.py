"""Celery on DejaQ: real workers as processes against a real broker in a process.

Covers: pools, canvas, retries, times, revoke, remote control, two queues, a worker and a broker
that are killed, children of a pool that were forked late. Not covered: gevent, which is not locked;
solo, which takes the way of threads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from kombu import Queue

from dejaqueue.celery.choice import close_all
from dejaqueue.client import Client
from dejaqueue.clock import SystemClock
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("celery")
    made = BrokerProcess(folder / "data", folder / "log")
    made.start()
    yield made
    close_all()
    made.stop()


@pytest.fixture(scope="module")
def tasks(broker: BrokerProcess) -> Iterator[ModuleType]:
    os.environ["CELERY_TEST_URL"] = broker.url
    from tests.integration import celery_tasks

    yield celery_tasks
    del os.environ["CELERY_TEST_URL"]


@pytest.fixture(scope="module")
def app(tasks: ModuleType) -> Celery:
    return tasks.app


class Worker:
    """`celery worker` in a process of its own."""

    def __init__(self, broker: BrokerProcess, log: Path, *options: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A"]
        command += ["tests.integration.celery_tasks:app", "worker", "-l", "INFO", *options]
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": paths, "CELERY_TEST_URL": broker.url},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        """With its pool."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def worker(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    made = Worker(broker, tmp_path_factory.mktemp("worker") / "log", "-c", "2", "-n", "one@%h")
    yield made
    assert made.stop() == 0


def task(app: Celery, name: str) -> Any:
    return app.tasks[f"{__package__}.celery_tasks.{name}"]


def test_canvas(app: Celery, worker: Worker) -> None:
    add, total = task(app, "add"), task(app, "total")
    assert chain(add.s(1, 2), add.s(3))().get(timeout=PATIENCE_SECONDS) == 6
    found = group(add.s(n, n) for n in range(5))().get(timeout=PATIENCE_SECONDS)
    assert found == [0, 2, 4, 6, 8]
    done = chord([add.s(n, n) for n in range(5)], total.s())()
    assert done.get(timeout=PATIENCE_SECONDS) == 20


def test_a_task_retries_at_its_time(app: Celery, worker: Worker) -> None:
    assert task(app, "third_time").delay().get(timeout=PATIENCE_SECONDS) == 2


def test_a_countdown_is_never_early(app: Celery, worker: Worker) -> None:
    sent = []
    for _ in range(50):
        due_ms = CLOCK.now_us() // 1_000 + 500
        sent.append(task(app, "late_ms").apply_async((due_ms,), countdown=0.5))
    late = [one.get(timeout=PATIENCE_SECONDS) for one in sent]
    assert min(late) >= -1  # the due time was taken a moment before the countdown was


def test_remote_control_reaches_the_worker(app: Celery, worker: Worker) -> None:
    answers: list[dict[str, Any]] = []

    def is_answered() -> bool:
        answers[:] = app.control.ping(timeout=1)
        return bool(answers)

    until(is_answered, "the worker's answer")
    assert [list(answer.values()) for answer in answers] == [[{"ok": "pong"}]]


def test_two_queues_have_one_worker(app: Celery, worker: Worker, broker: BrokerProcess) -> None:
    sent = [
        task(app, "add").apply_async((1, n), queue=q) for n, q in enumerate(["celery", "second"])
    ]
    assert [one.get(timeout=PATIENCE_SECONDS) for one in sent] == [1, 2]


def test_a_revoked_task_never_runs__whether_or_not_a_worker_is_up(
    app: Celery, worker: Worker, broker: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    kept = task(app, "note").apply_async((str(file), "kept"), countdown=1)
    revoked = task(app, "note").apply_async((str(file), "revoked"), countdown=60)
    app.control.revoke(revoked.id)
    with Client(broker.url) as client:
        assert client.get("celery", key=revoked.id) is None
    kept.get(timeout=PATIENCE_SECONDS)
    assert file.read_text() == "kept\n"


@pytest.mark.parametrize(
    "options",
    [["-P", "threads", "-c", "2"], ["-c", "1", "--max-tasks-per-child", "1"]],
    ids=["threads", "children"],
)
def test_every_pool_publishes_from_its_tasks(
    app: Celery, worker: Worker, broker: BrokerProcess, tmp_path: Path, options: list[str]
) -> None:
    queue = f"pool-{CLOCK.now_us()}"
    other = Worker(broker, tmp_path / "log", "-Q", queue, "-n", f"{queue}@%h", *options)
    with app.connection_for_write() as connection:
        Queue(queue, routing_key=queue)(connection.default_channel).declare()
    add, publish = task(app, "add"), task(app, "publish")
    # What they publish is run elsewhere: a pool looks every five seconds for children that ended.
    found = [publish.apply_async(("second",), queue=queue) for _ in range(2)]
    pids = set()
    for one in found:
        pid, task_id = one.get(timeout=PATIENCE_SECONDS)
        pids.add(pid)
        assert add.AsyncResult(task_id).get(timeout=PATIENCE_SECONDS) == 5
    assert len(pids) == (2 if "--max-tasks-per-child" in options else 1)
    assert other.stop() == 0


def test_nothing_is_lost__when_workers_and_the_broker_are_killed(
    app: Celery, broker: BrokerProcess, tmp_path: Path
) -> None:
    queue, file = f"killed-{CLOCK.now_us()}", tmp_path / "notes"
    with Client(broker.url) as client:
        client.create_topic(queue, lease_ms=2_000)
    sent = [f"line {n}" for n in range(300)]

    def worker() -> Worker:
        return Worker(broker, tmp_path / "log", "-Q", queue, "-c", "2", "-n", f"{queue}@%h")

    def lines() -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    def is_past(count: int) -> bool:
        return len(lines()) > count

    running = worker()
    for line in sent:
        task(app, "note").apply_async((str(file), line), queue=queue, ignore_result=True)
    for round_number in range(2):
        until(partial(is_past, 40 * round_number), "some tasks to be done")
        running.kill()
        running = worker()
    until(lambda: len(lines()) > 80, "some tasks to be done")
    broker.kill()
    broker.start()
    until(lambda: set(lines()) == set(sent), "every task to be done")
    assert running.stop() == 0
    assert len(lines()) - len(sent) <= 50  # those at work at a kill ran twice
