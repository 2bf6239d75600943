"""RQ on Redis: `python -m bench.workers.rq_app` is a worker that forks for no job. See notes.py."""

from __future__ import annotations

import os
import time
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker

from bench.workers.notes import note

connection = Redis.from_url(os.environ.get("BENCH_URL", "redis://localhost"))
queue = Queue("bench", connection=connection)


def noop(number: int) -> None:
    note(number)


def wait(number: int) -> None:
    time.sleep(0.01)
    note(number)


TASKS: dict[str, Any] = {"noop": "bench.workers.rq_app.noop", "wait": "bench.workers.rq_app.wait"}


def send(name: str, number: int, due_ms: int | None = None) -> None:
    """Send one call, as a program does."""
    queue.enqueue(TASKS[name], number, result_ttl=0)


if __name__ == "__main__":
    SimpleWorker([queue], connection=connection).work(logging_level="WARNING")
