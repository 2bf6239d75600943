"""The page of a forecast: the load, its hot instants, and what it asks for.

Room: pipelines. Text, through dejaqueue.report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dejaqueue.pipelines.load.capacity import Advice
from dejaqueue.pipelines.load.drawing import load_sections
from dejaqueue.pipelines.load.series import HOUR_MS, SECOND_MS, Load
from dejaqueue.report import Chart, Mark, Page, Tile, figure, section, show, table
from dejaqueue.times import show_instant, show_span

DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Forecast:
    """What was found.

    Attributes:
        partitions: the topic has now.
        hot: (instant in ms, messages of its second, most of them in one millisecond).
        lateness_ms: that one can bear.
    """

    topic: str
    partitions: int
    load: Load
    hot: Sequence[tuple[int, int, int]]
    advice: Advice
    lateness_ms: int


def write_report(
    path: Path, found: Forecast, first_ms: int, last_ms: int, figures: Mapping[str, Any]
) -> None:
    """Write the page, and the folders above it."""
    load, advice = found.load, found.advice
    _, peak = load.peak(SECOND_MS)
    enough = advice.partitions <= found.partitions
    hot = [
        (show_instant(instant_ms), show(count), show(in_one_ms))
        for instant_ms, count, in_one_ms in found.hot
    ]
    page = Page(
        title=f"Forecast of {found.topic}",
        headline=f"{load.total:,} messages of {found.topic} are due",
        summary=f"From {show_instant(first_ms)} to {show_instant(last_ms)}.",
        tiles=[
            Tile("messages", show(load.total)),
            Tile("most in a second", show(peak)),
            Tile("consumers", show(advice.consumers)),
            Tile("partitions", show(advice.partitions), "good" if enough else "bad"),
        ],
        sections=[
            section("What it asks for", "", f"<p>{_advice_text(found)}</p>"),
            *load_sections(load, first_ms, last_ms),
            *_hours_section(load, first_ms, last_ms),
            table("Hot instants", hot, ("second", "messages", "most in one millisecond")),
            table("Every figure", [(name, str(value)) for name, value in figures.items()]),
        ],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.html(), encoding="utf-8")


def _advice_text(found: Forecast) -> str:
    """Figures only: nothing in it comes from outside."""
    advice = found.advice
    text = (
        f"So that no message is done later than {show_span(found.lateness_ms)} after its time, "
        f"{advice.rate:,.1f} messages a second must be worked off. At "
        f"{advice.consumer_rate:,.0f} a second each, that takes {advice.consumers:,} consumers; "
        f"at {advice.partition_rate:,.0f} a second each, {advice.partitions:,} partitions. "
        f"The topic has {found.partitions:,}."
    )
    if advice.consumers > found.partitions:
        text += (
            " Consumers share partitions, so there may be more of them than partitions; with "
            f"exclusive assignment {advice.consumers:,} partitions are needed."
        )
    return text


def _hours_section(load: Load, first_ms: int, last_ms: int) -> list[str]:
    """The hours of the day, one over the other, if there is more than a day."""
    if last_ms - first_ms <= DAY_MS:
        return []
    hours = load.seconds * SECOND_MS % DAY_MS // HOUR_MS
    counts = np.bincount(hours, weights=load.counts, minlength=24).astype(np.float64)
    chart = Chart(
        title="Messages by hour of the day in UTC, all days together",
        marks=[Mark("bars", "violet", "messages", counts)],
        x_labels=[(hour / 24, f"{hour:02d}:00") for hour in range(0, 24, 3)],
        x_name="hour of the day, UTC",
        y_name="messages",
        height=200,
    )
    values = [(f"{hour:02d}:00", show(int(count))) for hour, count in enumerate(counts)]
    return [section("By hour of the day", "All days together.", figure(chart, values))]
