"""The page of the demo on Spark.

Room: cli. Text, through dejaqueue.report.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dejaqueue.report import Chart, Mark, Page, Tile, draw, legend, section, show, table, time_ticks

if TYPE_CHECKING:
    # tidy: allow type-import, because it loads what only a run needs
    from dejaqueue.cli.demo.spark_run import Result

BUCKETS = 200


def write_page(path: Path, result: Result, figures: Mapping[str, Any]) -> None:
    """Write the page."""
    found = result.check
    headline = "Every message came once, at its time" if result.is_good else "Something went wrong"
    wrong = [(name, getattr(found, name)) for name in ("lost", "early", "twice")]
    page = Page(
        title="DejaQ demo on Spark",
        headline=headline,
        summary=f"{found.sent:,} flights were scheduled by a campaign, each at a local time of its "
        "destination, drained by a streaming query, and compared by key.",
        good=result.is_good,
        tiles=[
            Tile("delivered", show(found.delivered)),
            *(Tile(name, show(count), "bad" if count else "good") for name, count in wrong),
            Tile("lateness p50", f"{figures['lateness_p50_ms']:,.0f} ms"),
            Tile("lateness p99", f"{figures['lateness_p99_ms']:,.0f} ms"),
        ],
        sections=[
            *_charts(result),
            table("Every figure", [(name, str(value)) for name, value in figures.items()]),
        ],
    )
    path.write_text(page.html(), encoding="utf-8")


def _charts(result: Result) -> list[str]:
    dues_ms, late_ms = result.check.dues_ms, result.check.latenesses_ms
    if not len(dues_ms):
        return []
    first_ms = int(dues_ms.min())
    last_ms = int((dues_ms + late_ms).max()) + 1
    edges = np.linspace(first_ms, last_ms, BUCKETS + 1)
    marks = [
        Mark("area", "blue", "arrived", np.histogram(dues_ms + late_ms, edges)[0].astype(float)),
        Mark("line", "amber", "due", np.histogram(dues_ms, edges)[0].astype(float)),
    ]
    each_ms = (last_ms - first_ms) / BUCKETS
    load = Chart(
        title="Messages due and arrived along the timeline",
        marks=marks,
        x_labels=time_ticks(first_ms, last_ms),
        x_name="UTC",
        y_name=f"messages in {each_ms:,.0f} ms",
    )
    edges = np.linspace(0, max(float(late_ms.max()), 1.0), 61)
    bars = Chart(
        title="Messages by lateness",
        marks=[Mark("bars", "blue", "messages", np.histogram(late_ms, edges)[0].astype(float))],
        x_labels=[(i / 6, f"{edges[10 * i]:,.0f} ms") for i in range(7)],
        x_name="from the due time to Spark's worker",
        y_name="messages",
        height=200,
    )
    note = "A micro-batch of Spark's takes its time: for the millisecond there are consumers."
    return [
        section("The load", "", legend(marks) + draw(load)),
        section("Lateness", note, draw(bars)),
    ]
