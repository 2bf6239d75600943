"""arq on Redis: `python -m bench.workers.arq_app` is a worker. See notes.py.

It looks for jobs at intervals, half a second unless told otherwise: here as often as pays.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from arq import create_pool, func, run_worker
from arq.connections import RedisSettings

from bench.workers.notes import note

SETTINGS = RedisSettings.from_dsn(os.environ.get("BENCH_URL", "redis://localhost"))
JOBS_MAX = 100
POLL_SECONDS = 0.01
SENDERS = 8


async def noop(_context: dict[str, Any], number: int) -> None:
    note(number)


async def wait(_context: dict[str, Any], number: int) -> None:
    await asyncio.sleep(0.01)
    note(number)


class WorkerSettings:
    """What the worker is told."""

    functions = (
        func(noop, name="noop_async", keep_result=0),
        func(wait, name="wait_async", keep_result=0),
    )
    redis_settings = SETTINGS
    max_jobs = JOBS_MAX
    queue_read_limit = 5 * JOBS_MAX
    poll_delay = POLL_SECONDS


def send_all(name: str, rows: int, seconds: float, senders: int) -> int:
    """Send calls until the time is up; how many were sent."""

    async def run() -> int:
        pool = await create_pool(SETTINGS)
        loop = asyncio.get_running_loop()
        numbers, end = iter(range(rows)), loop.time() + seconds
        sent = 0

        async def one_after_another() -> None:
            nonlocal sent
            for number in numbers:
                await pool.enqueue_job(name, number)
                sent += 1
                if loop.time() > end:
                    return

        await asyncio.gather(*(one_after_another() for _ in range(senders)))
        await pool.aclose()
        return sent

    return asyncio.run(run())


if __name__ == "__main__":
    asyncio.set_event_loop(asyncio.new_event_loop())
    run_worker(WorkerSettings)
