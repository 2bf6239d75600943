"""Charts of a load.

Room: pipelines. Text, through dejaqueue.report.
"""

from __future__ import annotations

import numpy as np

from dejaqueue.pipelines.load.series import HOUR_MS, MINUTE_MS, SECOND_MS, Floats, Load
from dejaqueue.report import Chart, Mark, figure, section, show, time_ticks
from dejaqueue.times import show_instant

COLUMNS_MAX = 480
UNITS = {"second": SECOND_MS, "minute": MINUTE_MS, "hour": HOUR_MS}


def load_sections(load: Load, first_ms: int, last_ms: int) -> list[str]:
    """The load by second, minute and hour between two instants, as sections of a page."""
    return [
        _load_section(load, name, unit_ms, first_ms, last_ms)
        for name, unit_ms in UNITS.items()
        if last_ms - first_ms >= 2 * unit_ms or unit_ms == SECOND_MS
    ]


def _load_section(load: Load, name: str, unit_ms: int, first_ms: int, last_ms: int) -> str:
    first_ms = first_ms // unit_ms * unit_ms
    count = max(-(-(last_ms - first_ms) // unit_ms), 1)
    # More stretches than columns: each column shows the fullest of its stretches.
    together = -(-count // COLUMNS_MAX)
    columns = highest(load, unit_ms, first_ms, count, together)
    end_ms = first_ms + len(columns) * together * unit_ms
    peak_ms, peak = load.peak(unit_ms)
    note = f"The fullest {name} is {show_instant(peak_ms)} with {peak:,} messages."
    if together > 1:
        note += f" Each column is the fullest of {together:,} {name}s."
    chart = Chart(
        title=f"Messages due in each {name}. {note}",
        marks=[Mark("bars" if len(columns) <= 120 else "area", "blue", "messages", columns)],
        x_labels=time_ticks(first_ms, end_ms),
        x_name=f"UTC, from {show_instant(first_ms)[:16].replace('T', ' ')}",
        y_name=f"messages a {name}",
        height=220,
    )
    starts_ms, counts = load.buckets(unit_ms)
    order = np.argsort(-counts, kind="stable")[:10]
    values = [(show_instant(int(starts_ms[i])), show(int(counts[i]))) for i in np.sort(order)]
    return section(f"By {name}", note, figure(chart, values))


def highest(load: Load, unit_ms: int, first_ms: int, count: int, together: int) -> Floats:
    """The most messages of a unit, in each column of so many units together."""
    columns = np.zeros(-(-count // together), dtype=np.float64)
    starts_ms, counts = load.buckets(unit_ms)
    places = (starts_ms - first_ms) // unit_ms // together
    inside = (places >= 0) & (places < len(columns))
    np.maximum.at(columns, places[inside], counts[inside])
    return columns
