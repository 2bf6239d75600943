"""Charts as inline SVG: columns in, markup out. Small on purpose: three kinds of marks, two axes.

Room: report. numpy and text only.
Holds: colours come from the page's style sheet alone, so that light and dark are one drawing; every
mark's value can be read as text (a title on it, or the table beside it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 14, 34


@dataclass(frozen=True, slots=True)
class Mark:
    """One series over the buckets of the x axis.

    Attributes:
        kind: `area`, `line` or `bars`.
        style: name of its colour class in the page's style sheet.
        values: one per bucket; NaN = nothing there.
    """

    kind: str
    style: str
    label: str
    values: Floats


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart over equal buckets.

    Attributes:
        title: for readers that cannot see it.
        x_labels: (place from 0 to 1, text) of each tick.
        y_max: top of the y axis; 0 = from the marks.
        is_log: the y axis counts in powers of ten (values below `y_min` lie on the axis).
    """

    title: str
    marks: Sequence[Mark]
    x_labels: Sequence[tuple[float, str]]
    x_name: str
    y_name: str
    y_max: float = 0.0
    y_min: float = 0.0
    is_log: bool = False
    height: int = HEIGHT
    lines_at: Sequence[tuple[float, str]] = field(default_factory=tuple)
    """(place from 0 to 1, text) of upright lines that mark an instant."""


def draw(chart: Chart) -> str:
    """The chart as an <svg> element."""
    top = chart.y_max or _top_of(chart.marks)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {chart.height}" role="img" aria-label="{escape(chart.title)}">'
    ]
    parts += _y_axis(chart, top)
    parts += [_draw_mark(chart, mark, top) for mark in chart.marks]
    parts += _x_axis(chart)
    parts.append("</svg>")
    return "\n".join(parts)


def legend(marks: Sequence[Mark]) -> str:
    """Which colour is what."""
    entries = [
        f'<span class="key"><i class="{escape(mark.style)}"></i>{escape(mark.label)}</span>'
        for mark in marks
    ]
    return f'<p class="legend">{"".join(entries)}</p>'


def nice_ticks(top: float, count: int = 4) -> list[float]:
    """Round values from 0 up to `top`: steps of 1, 2 or 5 times a power of ten.

    >>> nice_ticks(870)
    [0.0, 200.0, 400.0, 600.0, 800.0]
    """
    if top <= 0:
        return [0.0]
    raw = top / count
    power = 10.0 ** np.floor(np.log10(raw))
    step = float(next(unit * power for unit in (1, 2, 5, 10) if unit * power >= raw * 0.8))
    return [round(step * i, 9) for i in range(int(top / step + 1e-9) + 1)]


def show(value: float) -> str:
    """A number as short as it can be read.

    >>> show(12_000), show(0.25)
    ('12,000', '0.25')
    """
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def time_ticks(first_ms: int, last_ms: int, count: int = 8) -> list[tuple[float, str]]:
    """Ticks for an axis from one UTC instant to another, at whole minutes, hours or days.

    >>> time_ticks(0, 3 * 3_600_000)[:2]
    [(0.0, '00:00'), (0.16666666666666666, '00:30')]
    """
    length_ms = max(last_ms - first_ms, 1)
    step_ms = next((s for s in _STEPS_MS if s * count >= length_ms), 0)
    step_ms = step_ms or -(-length_ms // (count * _STEPS_MS[-1])) * _STEPS_MS[-1]
    shape = "%H:%M:%S" if step_ms < 60_000 else "%H:%M" if step_ms < 86_400_000 else "%d %b"
    ticks = []
    for instant_ms in range(-(-first_ms // step_ms) * step_ms, last_ms + 1, step_ms):
        moment = datetime.fromtimestamp(instant_ms / 1_000, tz=UTC)
        # A day that begins says which one it is.
        begins = step_ms >= 3_600_000 and instant_ms % 86_400_000 == 0
        text = moment.strftime("%d %b" if begins else shape)
        ticks.append(((instant_ms - first_ms) / length_ms, text))
    return ticks


_MINUTES = (1, 2, 5, 10, 30, 60, 120, 180, 360, 720, 1_440)
_STEPS_MS = (1_000, 2_000, 5_000, 10_000, 30_000, *(60_000 * minutes for minutes in _MINUTES))


def _top_of(marks: Sequence[Mark]) -> float:
    """A little above the highest value."""
    tops = [float(np.nanmax(mark.values)) for mark in marks if np.isfinite(mark.values).any()]
    return max(tops, default=0.0) * 1.06 or 1.0


def _x(place: float) -> float:
    return LEFT + place * (WIDTH - LEFT - RIGHT)


def _ys(chart: Chart, values: Floats, top: float) -> Floats:
    """Where values lie, downwards from the top of the drawing."""
    room = chart.height - TOP - BOTTOM
    if chart.is_log:
        low, high = np.log10(chart.y_min), np.log10(top)
        shares = (np.log10(np.maximum(values, chart.y_min)) - low) / (high - low)
    else:
        shares = values / top
    return np.asarray(TOP + room * (1.0 - np.minimum(shares, 1.0)), dtype=np.float64)


def _y_axis(chart: Chart, top: float) -> list[str]:
    if chart.is_log:
        powers = range(round(np.log10(chart.y_min)), int(np.floor(np.log10(top) + 1e-9)) + 1)
        ticks = [10.0**power for power in powers]
    else:
        ticks = nice_ticks(top)
    parts = []
    for tick, y in zip(ticks, _ys(chart, np.array(ticks), top), strict=True):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{show(tick)}</text>"
        )
    middle = TOP + (chart.height - TOP - BOTTOM) / 2
    parts.append(
        f'<text class="name" text-anchor="middle" transform="translate(16 {middle:.0f}) '
        f'rotate(-90)">{escape(chart.y_name)}</text>'
    )
    return parts


def _x_axis(chart: Chart) -> list[str]:
    floor = chart.height - BOTTOM
    parts = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>']
    for place, text in chart.lines_at:
        x = _x(place)
        parts.append(
            f'<line class="instant" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{floor}"/>'
            f'<text class="tick" x="{x + 4:.1f}" y="{TOP + 10}">{escape(text)}</text>'
        )
    for place, text in chart.x_labels:
        x = _x(place)
        anchor = "start" if place <= 0.02 else "end" if place >= 0.98 else "middle"
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{floor + 16}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )
    parts.append(
        f'<text class="name" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{chart.height - 3}" '
        f'text-anchor="middle">{escape(chart.x_name)}</text>'
    )
    return parts


def _draw_mark(chart: Chart, mark: Mark, top: float) -> str:
    values = mark.values
    count = len(values)
    ys = _ys(chart, np.nan_to_num(values), top)
    floor = chart.height - BOTTOM
    if mark.kind == "bars":
        return _draw_bars(mark, ys, floor)
    xs = LEFT + (np.arange(count) + 0.5) / count * (WIDTH - LEFT - RIGHT)
    path = ""
    # A line is broken where there is nothing, and not drawn across.
    for piece in _pieces(np.isfinite(values)):
        points = [f"{x:.1f} {y:.1f}" for x, y in zip(xs[piece], ys[piece], strict=True)]
        path += "M" + "L".join(points)
        if mark.kind == "area":
            path += f"L{xs[piece][-1]:.1f} {floor}L{xs[piece][0]:.1f} {floor}Z"
    return f'<path class="{mark.kind} {escape(mark.style)}" d="{path}"/>' if path else ""


def _pieces(there: npt.NDArray[np.bool_]) -> list[slice]:
    """The runs of True."""
    edges = np.flatnonzero(np.diff(there, prepend=False, append=False)).tolist()
    return [slice(first, last) for first, last in zip(edges[::2], edges[1::2], strict=True)]


def _draw_bars(mark: Mark, ys: Floats, floor: int) -> str:
    width = (WIDTH - LEFT - RIGHT) / len(ys)
    gap = min(2.0, width * 0.2)
    bars = [
        f'<rect x="{LEFT + i * width:.2f}" y="{y:.1f}" width="{width - gap:.2f}" '
        f'height="{floor - y:.1f}"><title>{escape(mark.label)}: {show(float(v))}</title></rect>'
        for i, (y, v) in enumerate(zip(ys, mark.values, strict=True))
        if v > 0
    ]
    return f'<g class="bars {escape(mark.style)}">{"".join(bars)}</g>'
