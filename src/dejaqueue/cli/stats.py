"""`dejaq stats`: what a broker says about itself; a terminal gets what fits, a pipe all of it.

Room: cli.
"""

from __future__ import annotations

from typing import Any

import click

from dejaqueue.cli import terminal
from dejaqueue.cli.connection import connect, json_option, topic_names, url_option
from dejaqueue.cli.output import print_fields
from dejaqueue.cli.times import show_instant


@click.command()
@click.argument("topic", required=False, shell_complete=topic_names)
@json_option("Print JSON.")
@url_option
def stats(topic: str | None, *, as_json: bool, url: str) -> None:
    """Show the figures of one TOPIC, or of the whole broker."""
    with connect(url) as client:
        found = client.stats(topic).to_dict()
    if as_json or not terminal.is_terminal():
        print_fields(found, as_json=as_json)
    elif topic is None:
        terminal.print_facts(found | {"topics": list(map(_line, found["topics"].values()))})
    else:
        parts = [
            {"partition": number} | _short(one) for number, one in enumerate(found["partitions"])
        ]
        terminal.print_facts(found | {"partitions": parts, "next_due_ms": _next(found)})


def _line(numbers: dict[str, Any]) -> dict[str, Any]:
    """What of a topic fits a line of 80 columns."""
    return {"topic": numbers["topic"]} | _short(numbers)


def _short(numbers: dict[str, Any]) -> dict[str, Any]:
    names = ("scheduled", "ready", "leased", "dead", "acked")
    return {name: numbers[name] for name in names} | {"next due": _next(numbers)}


def _next(numbers: dict[str, Any]) -> str | None:
    return show_instant(numbers["next_due_ms"]) if numbers["next_due_ms"] >= 0 else None
