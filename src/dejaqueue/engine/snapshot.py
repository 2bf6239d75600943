"""Placeholder until the snapshots land."""

from __future__ import annotations

from collections.abc import Callable

from dejaqueue.engine.engine import Engine
from dejaqueue.errors import Unavailable


def plan_snapshot(engine: Engine) -> tuple[str, list[tuple[str, bytes | memoryview | None]]]:
    """Not yet."""
    raise Unavailable("snapshots are not there yet")


def restore(meta: str, read: Callable[[str], memoryview]) -> Engine:
    """Not yet."""
    raise Unavailable("snapshots are not there yet")
