"""The tasks of test_celery.py, for its workers."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from kombu import Queue

import dejaqueue.celery  # noqa: F401 - kombu is to know the scheme
from dejaqueue.clock import SystemClock

CLOCK = SystemClock()
URL = os.environ.get("CELERY_TEST_URL", "dejaq://localhost")
app = Celery("tests", broker=URL, backend=URL, set_as_current=False)
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    task_queues=[Queue("celery", routing_key="celery"), Queue("second", routing_key="second")],
    task_default_exchange="celery",
)


@app.task  # type: ignore[untyped-decorator]
def add(x: int, y: int) -> int:
    return x + y


@app.task  # type: ignore[untyped-decorator]
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task  # type: ignore[untyped-decorator]
def late_ms(due_ms: int) -> float:
    return CLOCK.now_us() / 1_000 - due_ms


@app.task  # type: ignore[untyped-decorator]
def publish(queue: str) -> tuple[int, str]:
    """Send a task from a process of the pool; its number and the task's id."""
    return os.getpid(), str(add.apply_async((2, 3), queue=queue).id)


@app.task(bind=True, max_retries=3)  # type: ignore[untyped-decorator]
def third_time(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)


@app.task(acks_late=True)  # type: ignore[untyped-decorator]
def note(path: str, line: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
