"""The page of a campaign: its load, and when each time zone has its turn.

Room: pipelines. Text, through dejaqueue.report.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dejaqueue.pipelines.load.drawing import load_sections
from dejaqueue.pipelines.load.series import SECOND_MS
from dejaqueue.pipelines.schedule.plan import Plan
from dejaqueue.report import Page, Tile, show, table
from dejaqueue.times import show_instant

ZONES_MAX = 100


def write_report(path: Path, campaign: str, plan: Plan, figures: Mapping[str, Any]) -> None:
    """Write the page, and the folders above it."""
    load = plan.load
    last_ms = load.last_ms + SECOND_MS
    zones = [
        (zone, show(count), show_instant(first_ms))
        for zone, count, first_ms in plan.by_zone[:ZONES_MAX]
    ]
    _, peak = load.peak(SECOND_MS)
    page = Page(
        title=f"Campaign {campaign}",
        headline=f"Campaign {campaign}: {load.total:,} messages",
        summary=f"In {len(plan.by_zone):,} time zones, from {show_instant(load.first_ms)} to "
        f"{show_instant(load.last_ms)}.",
        tiles=[
            Tile("messages", show(load.total)),
            Tile("time zones", show(len(plan.by_zone))),
            Tile("most in a second", show(peak)),
            Tile("late", show(plan.late_count), "bad" if plan.late_count else ""),
        ],
        sections=[
            *(load_sections(load, load.first_ms, last_ms) if load.total else []),
            table("Time zones", zones, ("time zone", "messages", "the first at")),
            table("Every figure", [(name, str(value)) for name, value in figures.items()]),
        ],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.html(), encoding="utf-8")
