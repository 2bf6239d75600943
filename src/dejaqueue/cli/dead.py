"""`dejaq dead`: see dead letters, send them back, throw them away.

Room: cli.
See: docs/guides/failures.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dejaqueue.cli.connection import connect, json_option, topic_argument, url_option
from dejaqueue.cli.output import payload_fields, print_fields, print_rows
from dejaqueue.cli.times import show_instant

PREFIX = "dejaq-dead-"
EXIT_ROWS_REFUSED = 3

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group()
def dead() -> None:
    """See dead letters, send them back, throw them away."""


def _choice_options(function: Function) -> Function:
    """The options that choose letters."""
    for option in (
        click.option("--group", help="Only those of this group."),
        click.option("--reason", help="Only those that died of this."),
    ):
        function = option(function)
    return function


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    """A letter as JSON fields: what it was, and how it died."""
    headers = dict(row["headers"] or ())
    shown: dict[str, Any] = {"id": str(row["id"])}
    for name in ("reason", "attempts", "origin", "origin-id", "key"):
        shown[name.replace("-", "_")] = headers.get(PREFIX + name)
    died_at = headers.get(f"{PREFIX}at", "")
    shown["at"] = show_instant(int(died_at)) if died_at.isdecimal() else None
    for name in ("group", "tags", "unread"):
        if row.get(name):
            shown[name] = row[name]
    kept = {name: text for name, text in headers.items() if not name.startswith(PREFIX)}
    return (
        shown
        | ({"headers": kept} if kept else {})
        | (payload_fields(row["payload"]) if row.get("payload") is not None else {})
    )


@dead.command(name="list", epilog="Example: `dejaq dead list reminders.dead --json`")
@topic_argument
@_choice_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option("Print JSON lines with all fields.")
@url_option
def list_letters(
    *, topic: str, reason: str | None, group: str | None, limit: int, as_json: bool, url: str
) -> None:
    """Show dead letters of TOPIC, a dead-letter topic: what died, when and why."""
    with connect(url) as client:
        letters = client.dead_letters(topic, reason=reason, group=group, limit=limit)
    rows = [_fields(row) for row in letters.to_pylist()]
    if not as_json:
        names = ("id", "at", "origin", "attempts", "reason", "key", "payload")
        rows = [{name: row.get(name) for name in names} for row in rows]
    print_rows(rows, as_json=as_json)


@dead.command(
    epilog="Examples: `dejaq dead redrive reminders.dead` · "
    "`dejaq dead redrive reminders.dead --reason expired --to reminders.late`"
)
@topic_argument
@_choice_options
@click.option("--id", "ids", type=int, multiple=True, help="Only this letter; may be repeated.")
@click.option("--to", help="Where to; else each to the topic it came from.")
@click.option("--count", type=click.IntRange(min=0), help="So many at most.")
@json_option("Print the outcome as JSON.")
@url_option
def redrive(
    *,
    topic: str,
    reason: str | None,
    group: str | None,
    ids: tuple[int, ...],
    to: str | None,
    count: int | None,
    as_json: bool,
    url: str,
) -> int:
    """Send dead letters of TOPIC back, as the messages they were, due now.

    Ends with status 3 if some stay: a consumer has them, their key is taken, or they have no
    origin.
    """
    with connect(url) as client:
        sent = client.redrive(
            topic, to=to, reason=reason, group=group, ids=list(ids) or None, count=count
        )
    print_fields({"moved": sent.moved, "left": sent.left}, as_json=as_json)
    return EXIT_ROWS_REFUSED if sent.left else 0


@dead.command(epilog="Example: `dejaq dead purge reminders.dead --reason expired --yes`")
@topic_argument
@_choice_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("Print the outcome as JSON.")
@url_option
def purge(
    *, topic: str, reason: str | None, group: str | None, yes: bool, as_json: bool, url: str
) -> None:
    """Throw dead letters of TOPIC away, for good."""
    if not yes:
        click.confirm(f"Throw the chosen letters of {topic} away, for good?", abort=True, err=True)
    with connect(url) as client:
        purged = client.purge_letters(topic, reason=reason, group=group)
    print_fields({"purged": purged}, as_json=as_json)
