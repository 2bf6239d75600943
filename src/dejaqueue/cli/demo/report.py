"""The report: one HTML page with nothing outside of it, drawn from the figures of a run.

Room: cli. Text only.
See: dejaqueue/report, which draws the page.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dejaqueue.cli.demo.plan import Change, Plan
from dejaqueue.cli.demo.verdict import Arrivals, Verdict
from dejaqueue.report import Chart, Mark, Page, Tile, draw, legend, section, show, table

BUCKETS = 240
LATENESS_MS_MIN = 0.01
"""Where the lateness axes begin; what is less is drawn there."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the page shows.

    Attributes:
        period: what was replayed, in words.
        start_ms: the instant at which the replay's clock began.
        killed_ms: when the broker was killed, from the start; -1 = it was not.
        facts: (name, text) of the surroundings.
    """

    period: str
    plan: Plan
    verdict: Verdict
    arrivals: Arrivals
    start_ms: int
    killed_ms: int
    facts: list[tuple[str, str]]


def write_page(run: Run) -> str:
    """The page as HTML."""
    verdict = run.verdict
    good = verdict.is_good
    headline = "Every message came once, at its time" if good else "Something went wrong"
    summary = (
        f"{verdict.delivered:,} departures of {run.period} in "
        f"{run.plan.length_ms / 1_000:,.0f} seconds: an hour passed in "
        f"{3_600_000 / run.plan.speed:,.1f} ms. {verdict.moved:,} flights left at another time "
        f"than scheduled and were moved by key, {verdict.cancelled:,} never left and were "
        "cancelled."
    )
    load, lateness_along = _load_chart(run), _lateness_along(run)
    sections = [
        section("The load along the timeline", _load_note(run), load),
        section("Moves and cancels, as they became known", "", _changes_chart(run)),
        section(
            "Lateness",
            "From the due time to the moment the application has the message in hand, each message "
            "measured.",
            _histogram(run),
        ),
        section("Lateness along the timeline", "", lateness_along),
    ]
    page = Page(
        title=f"DejaQ demo: {run.period}",
        headline=headline,
        summary=summary,
        good=good,
        tiles=_tiles(verdict),
        sections=[
            *sections,
            table("Every figure", [(name, _show(value)) for name, value in _figures(verdict)]),
            table("Where it ran", run.facts),
        ],
    )
    return page.html()


def _figures(verdict: Verdict) -> list[tuple[str, float]]:
    return list(verdict.figures().items())


def _show(value: float) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"


def _tiles(verdict: Verdict) -> list[Tile]:
    return [
        Tile("delivered", show(verdict.delivered)),
        Tile("lost", show(verdict.lost), "bad" if verdict.lost else "good"),
        Tile("early", show(verdict.early), "bad" if verdict.early else "good"),
        Tile("twice", show(verdict.duplicate), "bad" if verdict.duplicate else "good"),
        Tile("lateness p50", f"{verdict.lateness_p50_ms:.2f} ms"),
        Tile("lateness p99", f"{verdict.lateness_p99_ms:.2f} ms"),
        Tile("messages a second", show(round(verdict.messages_per_second))),
    ]


def _per_bucket(
    offsets_ms: npt.NDArray[np.int64], length_ms: int, buckets: int = BUCKETS
) -> npt.NDArray[np.float64]:
    """How many fall into each bucket; what is later than the end is in the last."""
    places = np.clip(offsets_ms * buckets // max(length_ms, 1), 0, buckets - 1)
    return np.bincount(places, minlength=buckets).astype(np.float64)


def _seconds(length_ms: int) -> list[tuple[float, str]]:
    """Ticks of an axis of time."""
    step = next(s for s in (1, 2, 5, 10, 20, 60, 300, 900, 3_600, 86_400) if s * 9_000 > length_ms)
    count = length_ms // (step * 1_000)
    return [(i * step * 1_000 / length_ms, f"{i * step} s") for i in range(count + 1)]


def _kill_line(run: Run) -> list[tuple[float, str]]:
    if run.killed_ms < 0:
        return []
    return [(min(run.killed_ms / max(run.plan.length_ms, 1), 1.0), "broker killed")]


def _arrived_ms(run: Run) -> npt.NDArray[np.int64]:
    return run.arrivals.received_us // 1_000 - run.start_ms


def _load_note(run: Run) -> str:
    bucket_ms = run.plan.length_ms / BUCKETS
    return (
        f"Messages in each {bucket_ms:,.0f} ms: the line is what had been scheduled, the area what "
        "arrived. They differ where flights were moved or cancelled."
    )


def _load_chart(run: Run) -> str:
    length_ms = run.plan.length_ms
    marks = [
        Mark("area", "blue", "delivered", _per_bucket(_arrived_ms(run), length_ms)),
        Mark("line", "amber", "scheduled", _per_bucket(run.plan.scheduled_ms, length_ms)),
    ]
    chart = Chart(
        title="Messages scheduled and delivered along the timeline",
        marks=marks,
        x_labels=_seconds(length_ms),
        x_name="since the first departure",
        y_name="messages",
        lines_at=_kill_line(run),
    )
    return legend(marks) + draw(chart)


def _notices_ms(plan: Plan, change: Change) -> npt.NDArray[np.int64]:
    """When changes are told; those that are known before the clock begins are left out."""
    told_ms: npt.NDArray[np.int64] = plan.notices_ms[
        (plan.changes == change) & (plan.notices_ms >= 0)
    ]
    return told_ms


def _changes_chart(run: Run) -> str:
    plan = run.plan
    marks = [
        Mark("line", style, label, _per_bucket(_notices_ms(plan, change), plan.length_ms))
        for style, label, change in (
            ("violet", "moves", Change.MOVE),
            ("red", "cancels", Change.CANCEL),
        )
    ]
    chart = Chart(
        title="Moves and cancels along the timeline",
        marks=marks,
        x_labels=_seconds(plan.length_ms),
        x_name="since the first departure",
        y_name="messages",
        height=180,
        lines_at=_kill_line(run),
    )
    return legend(marks) + draw(chart)


def _histogram(run: Run) -> str:
    """Messages by lateness, on a logarithmic axis."""
    late_ms = np.maximum(run.arrivals.latenesses_us / 1_000, LATENESS_MS_MIN)
    most = float(late_ms.max()) if len(late_ms) else 1.0
    decades = max(int(np.ceil(np.log10(most / LATENESS_MS_MIN))), 3)
    places = np.floor(np.log10(late_ms / LATENESS_MS_MIN) * 20).astype(np.int64)
    counts = np.bincount(np.clip(places, 0, 20 * decades - 1), minlength=20 * decades).astype(
        np.float64
    )
    labels = [(i / decades, _show_ms(LATENESS_MS_MIN * 10**i)) for i in range(decades + 1)]
    verdict = run.verdict
    lines = [
        (float(np.log10(max(value, LATENESS_MS_MIN) / LATENESS_MS_MIN) / decades), name)
        for name, value in (("p50", verdict.lateness_p50_ms), ("p99", verdict.lateness_p99_ms))
    ]
    return draw(
        Chart(
            title="Messages by lateness",
            marks=[Mark("bars", "blue", "messages", counts)],
            x_labels=labels,
            x_name="lateness",
            y_name="messages",
            lines_at=lines,
        )
    )


def _show_ms(value_ms: float) -> str:
    return f"{value_ms:g} ms" if value_ms < 1_000 else f"{value_ms / 1_000:g} s"


def _lateness_along(run: Run) -> str:
    """Median, p99 and the worst of each bucket."""
    length_ms = run.plan.length_ms
    places = np.clip(_arrived_ms(run) * BUCKETS // max(length_ms, 1), 0, BUCKETS - 1)
    order = np.argsort(places, kind="stable")
    late_ms = np.maximum(run.arrivals.latenesses_us[order] / 1_000, LATENESS_MS_MIN)
    bounds = np.searchsorted(places[order], np.arange(BUCKETS + 1))
    quantiles = np.full((3, BUCKETS), np.nan)
    for bucket in range(BUCKETS):
        window_ms = late_ms[bounds[bucket] : bounds[bucket + 1]]
        if len(window_ms):
            quantiles[:, bucket] = np.quantile(window_ms, [0.5, 0.99, 1.0])
    marks = [
        Mark("line", style, label, row)
        for style, label, row in zip(
            ("red", "amber", "blue"), ("worst", "p99", "p50"), quantiles[::-1], strict=True
        )
    ]
    most = float(np.nanmax(quantiles)) if np.isfinite(quantiles).any() else 1.0
    chart = Chart(
        title="Lateness along the timeline",
        marks=marks,
        x_labels=_seconds(length_ms),
        x_name="since the first departure",
        y_name="ms",
        y_min=LATENESS_MS_MIN,
        y_max=max(float(10 ** np.ceil(np.log10(most))), 10.0),
        is_log=True,
        lines_at=_kill_line(run),
    )
    return legend(marks) + draw(chart)
