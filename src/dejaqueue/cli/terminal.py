"""What commands print for people who look: tables that fit the terminal, colours, times from now.

Room: cli. rich is imported only when something is drawn.
Holds: only a terminal gets any of this; a pipe gets the plain text of output.py, and scripts JSON.
See: output.py, which decides; top.py.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dejaqueue.clock import SystemClock
from dejaqueue.console import words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

STYLES = {
    "ready": "yellow", "leased": "green", "scheduled": "cyan", "dead": "red", "staged": "magenta",
    "staged_ack": "magenta", "serving": "green", "current": "green", "leaving": "yellow",
    "sick": "red", "paused": "yellow", "disk is short, producers wait": "red",
    "clock is off, takes nothing": "red", "clock is off, lets go": "red",
}  # fmt: skip
"""Colours of words that say how something is."""
WIDE = 120
"""Columns; with fewer, a time from now stands alone, and the instant only with more."""
_WHOLE_COLUMNS = 12
"""What is no longer is not broken into lines."""
_BLOCKS = " ▏▎▍▌▋▊▉█"


def is_terminal() -> bool:
    """True if somebody looks at standard output."""
    return sys.stdout.isatty()


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows with the same fields, in columns that fit; times as they are from now."""
    console = _console()
    console.print(table_of(rows, console.width, SystemClock().utc_ms()))


def print_facts(values: Mapping[str, Any]) -> None:
    """One thing: its values side by side, and what it has many of as tables."""
    console = _console()
    now_ms = SystemClock().utc_ms()
    plain = {name: value for name, value in values.items() if not _is_many(value)}
    console.print(_facts(plain, console.width, now_ms))
    for name, value in values.items():
        if _is_many(value):
            rows = value if isinstance(value, list) else [value]
            console.print(f"\n[bold]{name}[/bold]")
            console.print(table_of(rows, console.width, now_ms))


def bar(count: int, most: int, columns: int) -> str:
    """A bar of so many columns at most, to an eighth of a column.

    >>> bar(2, 4, 4), bar(1, 16, 4), bar(0, 4, 4), bar(1, 1_000, 4)
    ('██', '▎', '', '▏')
    """
    eighths = count * columns * 8 // max(1, most)
    if count and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def table_of(rows: Sequence[Mapping[str, Any]], columns: int, now_ms: int) -> Table:
    """A table of so many columns of the terminal at most."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    lines = [[_cell(value, columns, now_ms) for value in row.values()] for row in rows]
    for place, name in enumerate(rows[0] if rows else ()):
        is_number = all(_is_number(row.get(name)) for row in rows)
        longest = max(len(line[place][0]) for line in lines)
        is_short = longest <= _WHOLE_COLUMNS
        is_whole = is_number or is_short or not place  # what a row is of is the last to be cut
        table.add_column(
            name, justify="right" if is_number else "left", no_wrap=is_whole,
            overflow="ellipsis" if is_whole else "fold", max_width=None if place else columns // 2,
            min_width=None if place else min(longest, columns // 2),
        )  # fmt: skip
    for line in lines:
        table.add_row(*(Text(text, style) for text, style in line))
    return table


def _facts(values: Mapping[str, Any], columns: int, now_ms: int) -> RenderableType:
    from rich.columns import Columns
    from rich.text import Text

    shown = []
    for name, value in values.items():
        text, style = _cell(value, columns, now_ms)
        shown.append(Text.assemble((f"{name} ", "dim"), (text, style or "bold")))
    return Columns(shown, equal=True, column_first=True, padding=(0, 3))


def _cell(value: object, columns: int, now_ms: int) -> tuple[str, str]:
    """Its text and its style."""
    if value is None or value == []:
        return "-", "dim"
    if isinstance(value, bool):
        return ("yes" if value else "no"), ""
    if isinstance(value, int):
        return f"{value:,}", "" if value else "dim"
    if isinstance(value, float):
        return f"{value:,.3f}", ""
    text = str(value)
    at_ms = _instant(text)
    if at_ms is None:
        return text, STYLES.get(text, "")
    far = words.relative(at_ms, now_ms)
    return (far if columns < WIDE else f"{far} ({text})"), ""


def _instant(text: str) -> int | None:
    """Milliseconds of a text like 2026-12-24T18:00:00.000Z; None = it is none."""
    if len(text) != 24 or not text.endswith("Z") or text[10] != "T":
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        return None


def _is_many(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and all(isinstance(one, Mapping) for one in value) and bool(value)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def columns() -> int:
    """How wide the terminal is; of a pipe, what one usually is."""
    return shutil.get_terminal_size((80, 24)).columns
