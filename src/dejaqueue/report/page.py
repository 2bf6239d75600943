"""A page: head, tiles, sections, tables, in one style sheet for light and dark.

Room: report. Text only.
Holds: every text from outside is escaped; the colours of charts are the classes `blue`, `amber`,
`red`, `green` and `violet`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from dejaqueue.report.charts import Chart, draw, legend
from dejaqueue.version import __version__


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure that matters.

    Attributes:
        tone: `good`, `bad` or "" for neither.
    """

    name: str
    value: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A report.

    Attributes:
        title: of the window; plain text, as `headline` and `summary` are.
        headline: what came of it, in one sentence.
        good: False = the headline is shown as bad news.
        sections: markup, of `section` and `table`.
    """

    title: str
    headline: str
    summary: str
    good: bool = True
    tiles: Sequence[Tile] = ()
    sections: Sequence[str] = field(default_factory=tuple)

    def html(self) -> str:
        """The page as HTML."""
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style></head><body><main>",
                f'<header><p class="brand">DejaQ <span>{escape(__version__)}</span></p>',
                f'<h1 class="{"good" if self.good else "bad"}">{escape(self.headline)}</h1>',
                f"<p>{escape(self.summary)}</p></header>",
                _tiles(self.tiles),
                *self.sections,
                "</main></body></html>",
            ]
        )


def section(title: str, note: str, content: str) -> str:
    """A part of the page: `content` is markup, the rest is plain text."""
    text = f"<p>{escape(note)}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{text}{content}</section>"


def figure(chart: Chart, values: Sequence[tuple[str, str]] = ()) -> str:
    """A chart, with its legend if it has several series, and its figures.

    Args:
        values: (name, value), folded away below the chart.
    """
    drawn = (legend(chart.marks) if len(chart.marks) > 1 else "") + draw(chart)
    if not values:
        return drawn
    return f"{drawn}<details><summary>As figures</summary>{_rows(values)}</details>"


def table(title: str, rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A section with a table: the first cell of a row is its name."""
    return f"<section><h2>{escape(title)}</h2>{_rows(rows, head)}</section>"


def _rows(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    lines = []
    if head:
        cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
        lines.append(f"<tr>{cells}</tr>")
    for name, *values in rows:
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        lines.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _tiles(tiles: Sequence[Tile]) -> str:
    shown = [
        f'<div class="tile {escape(tile.tone)}"><b>{escape(tile.value)}</b>'
        f"<span>{escape(tile.name)}</span></div>"
        for tile in tiles
    ]
    return f'<div class="tiles">{"".join(shown)}</div>' if shown else ""


STYLE = """
:root { color-scheme: light dark; --page: #f6f5f1; --card: #ffffff; --ink: #1d2433; --soft: #667085;
  --rule: #e3e1da; --blue: #2f6df6; --amber: #e08a00; --red: #d33a3a; --green: #16875a;
  --violet: #7a4fd0; }
@media (prefers-color-scheme: dark) { :root { --page: #12151c; --card: #1a1f29; --ink: #e8eaf0;
  --soft: #98a2b3; --rule: #2b3240; --blue: #6c9bff; --amber: #ffb547; --red: #ff7a70;
  --green: #4cc38a; --violet: #b094ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 40px 20px 64px; }
.brand { margin: 0; font-weight: 700; letter-spacing: .02em; }
.brand span { color: var(--soft); font-weight: 400; }
h1 { margin: 6px 0 8px; font-size: clamp(26px, 4vw, 38px); line-height: 1.15; }
h1.bad { color: var(--red); }
h2 { margin: 0 0 4px; font-size: 18px; }
header p { max-width: 70ch; } section > p { margin: 0 0 8px; color: var(--soft); max-width: 80ch; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 12px;
  margin: 20px 0; }
.tile, section { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; }
.tile { padding: 12px 14px; } .tile b { display: block; font-size: 22px;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile span { color: var(--soft); font-size: 13px; }
.tile.good b { color: var(--green); } .tile.bad b { color: var(--red); }
section { padding: 18px 20px; margin: 16px 0; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft);
  font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.instant { stroke: var(--red); stroke-dasharray: 4 3; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.area { stroke: none; fill-opacity: .28; }
.line.blue { stroke: var(--blue); } .area.blue, .bars.blue { fill: var(--blue); }
.line.amber { stroke: var(--amber); } .area.amber, .bars.amber { fill: var(--amber); }
.line.red { stroke: var(--red); } .area.red, .bars.red { fill: var(--red); }
.line.green { stroke: var(--green); } .area.green, .bars.green { fill: var(--green); }
.line.violet { stroke: var(--violet); } .area.violet, .bars.violet { fill: var(--violet); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 6px 0; font-size: 13px; }
.key i { display: inline-block; width: 12px; height: 12px; margin-right: 6px; border-radius: 3px;
  vertical-align: -1px; }
i.blue { background: var(--blue); }
i.amber { background: var(--amber); }
i.red { background: var(--red); }
i.green { background: var(--green); }
i.violet { background: var(--violet); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 4px 0; border-top: 1px solid var(--rule); text-align: left; font-weight: 400; }
th { color: var(--soft); } td, th + th { text-align: right; font-variant-numeric: tabular-nums; }
td + td, th + th { padding-left: 18px; }
details { margin-top: 8px; } summary { color: var(--soft); font-size: 13px; cursor: pointer; }
@media print { body { background: none; } section, .tile { break-inside: avoid; } }
"""
