"""Covers: which cron entries `dejaq repair clock` takes for late.

Not covered: the command against a broker (tests/cli/test_repair.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dejaqueue.cli.repair import LATER_MS, _late
from dejaqueue.schema.cron import CronEntry


def entry(name: str, next_ms: int, *, paused: bool = False) -> CronEntry:
    return CronEntry(name, cron="* * * * *", next_ms=next_ms, paused=paused)


def test_who_waits_for_later_than_it_should_is_late() -> None:
    entries = [
        entry("on-time", 1_000),
        entry("a-little", 1_000 + LATER_MS),
        entry("late", 1_001 + LATER_MS),
        entry("paused", 9_000_000, paused=True),
        entry("over", -1),
    ]
    cron = SimpleNamespace(entries=lambda: entries, preview_ms=lambda entry, count: [1_000])
    client: Any = SimpleNamespace(cron=lambda topic: cron)
    assert [(found.name, at_ms) for found, at_ms in _late(client, "c")] == [("late", 1_000)]
