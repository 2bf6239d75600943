"""DejaQ's own tasks. See notes.py."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime

from bench.workers.notes import note
from dejaqueue.tasks import Tasks

app = Tasks(os.environ.get("BENCH_URL", "dejaq://localhost:7464"))
BATCH_ROWS = 1_000


@app.task(name="noop")
def noop(number: int) -> None:
    note(number)


@app.task(name="wait")
def wait(number: int) -> None:
    time.sleep(0.01)
    note(number)


@app.task(name="noop_async")
async def noop_async(number: int) -> None:
    note(number)


@app.task(name="wait_async")
async def wait_async(number: int) -> None:
    await asyncio.sleep(0.01)
    note(number)


def send(name: str, number: int, due_ms: int | None = None) -> None:
    """Send one call, as a program does."""
    task = app.find(name)
    assert task is not None
    if due_ms is None:
        task.send(number)
    else:
        task.at(datetime.fromtimestamp(due_ms / 1_000, UTC)).send(number)


def fill(name: str, rows: int, dues_ms: list[int] | None = None) -> None:
    """Send many calls, a thousand at a time."""
    task = app.find(name)
    assert task is not None
    app.create(task)
    for first in range(0, rows, BATCH_ROWS):
        numbers = range(first, min(first + BATCH_ROWS, rows))
        if dues_ms is None:
            task.send_many([(number,) for number in numbers])
            continue
        calls = [
            {"json": {"task": name, "args": {"number": n}}, "due": dues_ms[n]} for n in numbers
        ]
        app.client.send_batch("tasks", calls).raise_for_status()
