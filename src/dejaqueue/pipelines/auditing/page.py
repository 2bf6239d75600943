"""The page of an audit: what was wrong, when, to whom, and how late deliveries were.

Room: pipelines. Text, through dejaqueue.report; no Spark.
Holds: the page loads nothing from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dejaqueue.pipelines.auditing.faults import FAULTS
from dejaqueue.pipelines.auditing.figures import BUCKETS_PER_OCTAVE, HOUR_MS, QUANTILES
from dejaqueue.pipelines.auditing.findings import Findings
from dejaqueue.report import Chart, Mark, Page, Tile, figure, section, show, table, time_ticks
from dejaqueue.times import show_instant

HOURS_MAX = 24 * 366
"""Hours that are drawn one by one; an audit of more shows the last ones."""
_STYLES = {"lost": "red", "early": "violet", "duplicate": "amber", "late": "blue"}


def write_report(path: Path, found: Findings, summary: str, figures: Mapping[str, Any]) -> None:
    """Write the page, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page_of(found, summary, figures).html(), encoding="utf-8")


def page_of(found: Findings, summary: str, figures: Mapping[str, Any]) -> Page:
    """The page."""
    tiles = [Tile("messages", show(found.messages)), Tile("deliveries", show(found.deliveries))]
    tiles += [
        Tile(name, show(count), "bad" if count else "good") for name, count in found.faults.items()
    ]
    tiles.append(Tile("gaps", show(found.gaps), "bad" if found.gaps else "good"))
    if found.quantiles:
        tiles.append(Tile("lateness p99, ms", show(found.quantiles["p99_ms"])))
    sections = [*_hours(found), *_spread(found), *_groups(found), *_examples(found), *_gaps(found)]
    sections.append(table("Every figure", [(name, str(value)) for name, value in figures.items()]))
    return Page(
        title="Audit",
        headline=found.headline,
        summary=summary,
        good=found.is_good,
        tiles=tiles,
        sections=sections,
    )


def by_hour(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    first_ms: int,
    count: int,
    *,
    highest: bool = False,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A figure for each hour, all topics together; NaN where there is none, if `highest`."""
    values = np.full(count, np.nan if highest else 0.0)
    for row in rows:
        place = (int(row["hour_ms"]) - first_ms) // HOUR_MS
        value = row[name]
        if value is None or not 0 <= place < count:
            continue
        values[place] = np.fmax(values[place], value) if highest else values[place] + value
    return values


def _hours(found: Findings) -> list[str]:
    if not found.figures:
        return []
    hours = [int(row["hour_ms"]) for row in found.figures]
    last_ms = max(hours)
    first_ms = max(min(hours), last_ms - (HOURS_MAX - 1) * HOUR_MS)
    count = (last_ms - first_ms) // HOUR_MS + 1
    axis: dict[str, Any] = {
        "x_labels": time_ticks(first_ms, last_ms + HOUR_MS),
        "x_name": f"UTC, from {show_instant(first_ms)[:16].replace('T', ' ')}",
        "height": 220,
    }

    def summed(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return by_hour(found.figures, name, first_ms, count)

    flow = Chart(
        title="Messages that came in and that were acked, by hour",
        marks=[
            Mark("bars", "blue", "enqueued", summed("enqueued")),
            Mark("line", "green", "acked", summed("acked")),
        ],
        y_name="messages",
        **axis,
    )
    wrong = Chart(
        title="Faults by hour",
        marks=[Mark("line", _STYLES[name], name, summed(name)) for name in FAULTS],
        y_name="messages",
        **axis,
    )
    late = Chart(
        title="Lateness by hour: the highest of all topics",
        marks=[
            Mark("line", style, name.removesuffix("_ms"), by_hour(
                found.figures, name, first_ms, count, highest=True))
            for name, style in (("p50_ms", "green"), ("p99_ms", "amber"), ("max_ms", "red"))
        ],
        y_name="milliseconds",
        **axis,
    )  # fmt: skip
    sections = [section("Messages by hour", "", figure(flow))]
    if found.fault_count:
        note = "Lost messages are in the hour in which they were due, the others when it happened."
        sections.append(section("Faults by hour", note, figure(wrong)))
    if found.deliveries:
        note = "From when a message was due, or came in if that was later, until it was sent."
        sections.append(section("Lateness by hour", note, figure(late)))
    return sections


def _spread(found: Findings) -> list[str]:
    """How many deliveries were how late."""
    if not found.spread:
        return []
    last = max(bucket for bucket, _ in found.spread)
    counts = np.zeros(max(last + 1, 2))
    for bucket, count in found.spread:
        counts[bucket] += count
    ends = [
        (place / len(counts), show(round(2 ** ((place - 1) / BUCKETS_PER_OCTAVE))))
        for place in range(1, len(counts), 2 * BUCKETS_PER_OCTAVE)
    ]
    chart = Chart(
        title="Deliveries by their lateness",
        marks=[Mark("bars", "blue", "deliveries", counts)],
        x_labels=ends,
        x_name="lateness in milliseconds; the first bar was on time",
        y_name="deliveries",
        height=220,
    )
    values = [(name.removesuffix("_ms"), f"{found.quantiles[name]:,} ms") for name in QUANTILES]
    values.append(("most", f"{found.max_ms:,} ms"))
    return [section("How late deliveries were", "", figure(chart, values))]


def _groups(found: Findings) -> list[str]:
    if not found.groups:
        return []
    names = ("enqueued", "acked", *FAULTS, "p99_ms", "max_ms")
    rows = [
        (f"{row['topic']} · {row['group'] or 'no group'}", *(_cell(row[name]) for name in names))
        for row in found.groups
    ]
    head = ("topic and group", *names)
    return [table("Groups, those with most faults first", rows, head)]


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:,}"


def _examples(found: Findings) -> list[str]:
    if not found.examples:
        return []
    rows = [
        (
            f"{row['fault']}: {row['topic']}/{row['partition']} {row['id']}",
            row["key"] or "",
            row["group"] or "",
            show_instant(int(row["at_ms"])),
            row["detail"] or "",
        )
        for row in found.examples
    ]
    return [table("Faults, some of each kind", rows, ("message", "key", "group", "when", "what"))]


def _gaps(found: Findings) -> list[str]:
    if not found.gap_rows:
        return []
    rows = [
        (
            f"{row['topic']}/{row['partition']}",
            show_instant(int(row["at_ms"])),
            _cell(row["missed"]),
            row["reason"] or "",
        )
        for row in found.gap_rows
    ]
    head = ("topic and partition", "until", "changes that are missing", "why")
    return [table("Gaps: across them nothing is concluded", rows, head)]
