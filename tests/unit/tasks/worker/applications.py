"""An application that worker processes of tests load; its broker is in the environment."""

from __future__ import annotations

import asyncio
import os
import threading

from dejaqueue.tasks import Tasks

app = Tasks(os.environ.get("TASKS_URL", "dejaq://127.0.0.1:9"), name="work")


@app.task(name="double", result=600)
def double(n: int) -> int:
    return 2 * n


@app.task(name="double_async", result=600)
async def double_async(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


@app.task(name="hangs", timeout_hard=0.5, retries=1, backoff=0.01, result=600)
def hangs() -> None:
    threading.Event().wait(3_600)


@app.task(name="waits", result=600)
def waits(path: str) -> int:
    """Say that it is at work, and wait for the word to end; gives the attempt."""
    from dejaqueue.tasks import current

    with open(f"{path}.begun", "a", encoding="ascii") as note:
        note.write(f"{os.getpid()}\n")
    pause = threading.Event()
    while not os.path.exists(f"{path}.end"):
        pause.wait(0.01)
    attempt = current()
    assert attempt is not None
    return attempt.number


@app.task(name="dies", result=600)
def dies() -> None:
    os.kill(os.getpid(), 9)
