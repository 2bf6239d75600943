"""Huey on Redis. See notes.py."""

from __future__ import annotations

import os
import time
from typing import Any

from huey import RedisHuey

from bench.workers.notes import note

app = RedisHuey("bench", url=os.environ.get("BENCH_URL", "redis://localhost"), results=False)


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
    TASKS[name](number)
