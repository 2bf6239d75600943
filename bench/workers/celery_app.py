"""Celery, on the broker that BENCH_URL names. See notes.py."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any

from celery import Celery

from bench.workers.notes import note

URL = os.environ.get("BENCH_URL", "")
if URL.startswith("dejaq"):
    import dejaqueue.celery  # noqa: F401 - kombu is to know the scheme

app = Celery("bench", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True} if URL.startswith("amqp") else {},
)


@app.task(name="noop")
def noop(number: int) -> None:
    note(number)


@app.task(name="wait")
def wait(number: int) -> None:
    time.sleep(0.01)
    note(number)


TASKS: dict[str, Any] = {"noop": noop, "wait": wait}


def send(name: str, number: int, due_ms: int | None = None) -> None:
    """Send one call, as a program does."""
    if due_ms is None:
        TASKS[name].delay(number)
    else:
        TASKS[name].apply_async((number,), eta=datetime.fromtimestamp(due_ms / 1_000, UTC))
