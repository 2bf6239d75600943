"""Dramatiq on Redis. See notes.py."""

from __future__ import annotations

import os
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.workers.notes import note

dramatiq.set_broker(RedisBroker(url=os.environ.get("BENCH_URL", "redis://localhost")))


@dramatiq.actor(actor_name="noop")
def noop(number: int) -> None:
    note(number)


@dramatiq.actor(actor_name="wait")
def wait(number: int) -> None:
    time.sleep(0.01)
    note(number)


TASKS: dict[str, Any] = {"noop": noop, "wait": wait}


def send(name: str, number: int, due_ms: int | None = None) -> None:
    """Send one call, as a program does."""
    TASKS[name].send(number)
