"""How commands print: tables in a terminal, aligned text in a pipe, JSON lines for scripts.

Room: cli.
Holds: standard output carries results only; whatever else is said goes to standard error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import click

from dejaqueue.cli import terminal


def print_json(values: Mapping[str, Any]) -> None:
    """One JSON object on one line."""
    click.echo(json.dumps(values, ensure_ascii=False, separators=(",", ":")))


def print_rows(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Rows with the same fields: JSON lines, or columns under their names, which fit a terminal."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    listed = list(rows)
    if not listed:
        return
    if terminal.is_terminal():
        terminal.print_table(listed)
        return
    names = list(listed[0])
    lines = [names, *([_show(row[name]) for name in names] for row in listed)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def print_fields(values: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing: a JSON object, or one `name value` a line. Inner names are joined by dots."""
    if as_json:
        print_json(values)
        return
    if terminal.is_terminal():
        terminal.print_facts(values)
        return
    for name, value in _flat(values, ""):
        click.echo(f"{name} {_show(value)}")


def payload_fields(payload: bytes) -> dict[str, str]:
    """A payload as JSON fields: text where it is UTF-8, base64 under another name otherwise."""
    try:
        return {"payload": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode("ascii")}


def _show(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)


def _flat(values: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield from _flat({str(i): part for i, part in enumerate(value)}, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
