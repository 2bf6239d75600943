"""One plot per question, as PNG and SVG.

Room: bench. The only file that imports matplotlib; without it there are no plots, and the output
says so. Colours differ in lightness too, and every bar has its figure beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import Outcome, Row

COLOURS = {"dejaq": "#d1495b", "redis": "#30638e", "beanstalkd": "#9aa5b1", "spark": "#9aa5b1"}
COLOURS |= {"dejaq_asyncio": "#e9a5ae", "redis_streams": "#6f9fc8", "redis_sorted_set": "#30638e"}
COLOURS |= {"rabbitmq_quorum": "#c77700", "rabbitmq_classic": "#e0b060", "postgresql": "#3b3f8f"}
COLOURS |= {"jetstream": "#2f9e6e"}
INK, FAINT = "#22262b", "#d8dde3"
WIDTH_INCHES, DPI = 8.0, 144


def draw(question: str, outcome: Outcome, folder: Path) -> list[Path]:
    """Write `question.png` and `question.svg`; the files written, none without matplotlib."""
    try:
        import matplotlib  # optional: the extra `bench`
    except ModuleNotFoundError:
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: dict[Any, Any] = {
        "svg.fonttype": "none",  # text stays text: small files
        "font.size": 9,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
    }
    painter = PAINTERS.get(question, _paint_bars)
    with pyplot.rc_context(style):
        figure = painter(pyplot, outcome)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{question}.{ending}" for ending in ("png", "svg")]
        for path in paths:
            figure.savefig(path, dpi=DPI, bbox_inches="tight", metadata=_no_date(path))
        pyplot.close(figure)
    return paths


def _no_date(path: Path) -> dict[str, Any]:
    return {"Date": None} if path.suffix == ".svg" else {}


def _paint_bars(pyplot: Any, outcome: Outcome) -> Any:
    """A bar per row, on a logarithmic scale if the rows span more than a hundredfold."""
    rows = outcome.rows
    figure, axes = pyplot.subplots(figsize=(WIDTH_INCHES, 0.9 + 0.3 * len(rows)))
    places = np.arange(len(rows))[::-1]
    values = [row.value for row in rows]
    axes.barh(places, values, color=[COLOURS.get(row.system, INK) for row in rows], height=0.7)
    _whiskers(axes, places, rows, outcome)
    for place, row in zip(places, rows, strict=True):
        ratio = f"  ({row.ratio:.2f} × {row.ratio_to})" if row.ratio is not None else ""
        high = outcome.spreads.get(f"{row.system}/{row.case}", {}).get("high", row.value)
        shown = f"  {row.value:,.4g}" if row.value < 1_000 else f"  {row.value:,.0f}"
        axes.text(max(row.value, high), place, f"{shown} {row.unit}{ratio}", va="center")
    axes.set_yticks(places, [f"{row.case}  {row.system}" for row in rows])
    positive = [value for value in values if value > 0]
    if positive and max(positive) > 100 * min(positive):
        axes.set_xscale("log")
    axes.tick_params(axis="y", length=0)
    axes.set_title(rows[0].question.replace("_", " "))
    return figure


def _whiskers(axes: Any, places: Any, rows: list[Row], outcome: Outcome) -> None:
    for place, row in zip(places, rows, strict=True):
        found = outcome.spreads.get(f"{row.system}/{row.case}")
        if found is not None and len(found["rounds"]) > 1:
            axes.plot([found["low"], found["high"]], [place, place], color=INK, linewidth=1)


def _paint_lateness(pyplot: Any, outcome: Outcome) -> Any:
    """For each system, the lateness that each share of the messages did not exceed."""
    figure, axes = pyplot.subplots(figsize=(WIDTH_INCHES, 3.6))
    for name, curve in outcome.series.items():
        colour = COLOURS.get(name.split()[0], INK)
        line = "-" if name in COLOURS else "--"
        beyond = [1 - percent / 100 for percent in curve["percent"]]
        axes.plot(curve["ms"], beyond, color=colour, linestyle=line, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_yticks([1, 0.1, 0.01, 0.001, 0.0001], ["all", "10 %", "1 %", "0.1 %", "0.01 %"])
    axes.set_xlabel("milliseconds after the due time")
    axes.set_ylabel("share of messages later than that")
    axes.grid(color=FAINT, linewidth=0.5)
    axes.legend(frameon=False, fontsize="small")
    axes.set_title(outcome.rows[0].question)
    return figure


def _paint_hot_instant(pyplot: Any, outcome: Outcome) -> Any:
    """Messages of the hot instant acked over time, and the other topic's lateness beneath."""
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(WIDTH_INCHES, 4.6), sharex=True)
    drained, steady = outcome.series["drained"], outcome.series["steady"]
    above.plot(drained["seconds"], np.asarray(drained["rows"]) / 1e6, color=COLOURS["dejaq"])
    above.set_ylabel("millions received")
    above.set_title("hot instant: a million messages due in the same millisecond")
    below.plot(steady["seconds"], steady["ms"], ".", color=COLOURS["redis"], markersize=2)
    below.set_yscale("log")
    below.set_ylabel("lateness of the\nother topic, ms")
    below.set_xlabel("seconds after the hot instant")
    for axes in (above, below):
        axes.axvline(0, color=INK, linewidth=0.5)
        axes.grid(color=FAINT, linewidth=0.5)
    return figure


PAINTERS: dict[str, Callable[[Any, Outcome], Any]] = {
    "lateness": _paint_lateness,
    "peers": _paint_lateness,
    "hot_instant": _paint_hot_instant,
}
