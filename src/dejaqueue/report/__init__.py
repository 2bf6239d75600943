"""Reports: one HTML page with nothing outside of it, with charts as inline SVG.

    page = Page(title="...", headline="Nothing was lost", good=True, summary="...",
                tiles=[Tile("lost", "0", "good")], sections=[section("Load", "note", chart)])
    path.write_text(page.html(), encoding="utf-8")

Room: report. Text and numpy only; knows neither messages nor Spark. Whoever has figures draws
them here.
Holds: no script, no font, no image, no address: a page reads the same from a mail or a stick; light
and dark are one drawing; whoever cannot see a chart has its title, its words and its figures.
See: charts.py (the drawings), page.py (everything around them).
"""

from __future__ import annotations

from dejaqueue.report.charts import Chart, Mark, draw, legend, nice_ticks, show, time_ticks
from dejaqueue.report.page import Page, Tile, figure, section, table

__all__ = [
    "Chart",
    "Mark",
    "Page",
    "Tile",
    "draw",
    "figure",
    "legend",
    "nice_ticks",
    "section",
    "show",
    "table",
    "time_ticks",
]
