"""`dejaq peek`, `history`, `counts`, `histogram`: looking at messages without taking them.

Room: cli.
See: changes.py for moving and cancelling what was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli import terminal
from dejaqueue.cli.connection import connect, json_option, topic_argument, url_option
from dejaqueue.cli.filters import STATES, where_of, where_options
from dejaqueue.cli.messages import message_fields
from dejaqueue.cli.output import print_rows
from dejaqueue.cli.times import Span, show_instant
from dejaqueue.clock import SystemClock

if TYPE_CHECKING:
    from dejaqueue.client import MessageChange, MessageHistory

BAR_COLUMNS = 40
_NUMBERS_COLUMNS = 60
"""What stands before a bar takes at most so many."""
STRETCHES = 20
"""Of a histogram whose end is not given."""


@click.command(
    epilog="Examples: `dejaq peek reminders --limit 5 --json` · "
    "`dejaq peek reminders --group acme --tag mail --to 2026-12-24T18:00:00Z`",
)
@topic_argument
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True)
@click.option("--key", "keys", multiple=True, help="Key of a message; may be repeated.")
@click.option("--id", "ids", type=int, multiple=True, help="Id of a message; may be repeated.")
@where_options(*STATES)
@json_option("Print JSON lines with all fields.")
@url_option
def peek(
    *,
    topic: str,
    limit: int,
    keys: tuple[str, ...],
    ids: tuple[int, ...],
    as_json: bool,
    url: str,
    **where: Any,
) -> None:
    """Show messages of TOPIC as they are, without taking them.

    In the order of their time; in priority and fair topics in the order they came.
    """
    if keys and ids:
        raise click.UsageError("name messages by --key or by --id, one of the two")
    with connect(url) as client:
        table = client.peek(
            topic, limit=limit, ids=list(ids) or None, keys=list(keys) or None, **where_of(where)
        )
        rows = [message_fields(row) for row in table.to_pylist()]
    print_rows(rows if as_json else map(_summary, rows), as_json=as_json)


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    """A message on one line of text."""
    told = row.get("payload", row.get("payload_base64", row.get("unread", "")))
    payload = " ".join(str(told).split())
    shown = payload if len(payload) <= 60 else f"{payload[:59]}…"
    names = ("id", "due", "state", "attempt", "key")
    return {name: row.get(name) for name in names} | {"payload": shown}


@click.command(
    epilog="Examples: `dejaq history reminders 4711` · `dejaq history reminders 4711 --json`",
)
@topic_argument
@click.argument("message_id", metavar="ID", type=click.IntRange(0, (1 << 63) - 1))
@json_option("Print JSON lines: at, change, attempt, due, consumer, reason and more.")
@url_option
def history(*, topic: str, message_id: int, as_json: bool, url: str) -> None:
    """Show what happened to the message ID of TOPIC, and when; to one that is done, too.

    It is recorded for topics that were made or altered with --history.
    """
    with connect(url) as client:
        found = client.history(topic, message_id)
    print_rows(map(_all_of if as_json else _happened, found.changes), as_json=as_json)
    for line in _unknown(topic, message_id, found):
        click.echo(line, err=True)


def _happened(change: MessageChange) -> dict[str, Any]:
    """A change on one line of text."""
    return {
        "at": show_instant(change.at_ms),
        "change": change.change,
        "attempt": change.attempt,
        "due": None if change.due_ms is None else show_instant(change.due_ms),
        "late_ms": change.lateness_ms,
        "consumer": change.consumer,
        "reason": change.reason or None,
    }


def _all_of(change: MessageChange) -> dict[str, Any]:
    """A change with all fields that it has."""
    row = _happened(change) | {"key": change.key, "group": change.group or None}
    row |= {"priority": change.priority, "position": change.position}
    return {name: value for name, value in row.items() if value is not None}


def _unknown(topic: str, message_id: int, found: MessageHistory) -> list[str]:
    """What is not known of a message's life, a line each."""
    lines = []
    if not found.changes:
        lines.append(f"nothing is recorded of message {message_id}")
    if not found.is_on:
        lines.append(f"history is off: `dejaq topic alter {topic} --history` switches it on")
    lines += [
        f"not recorded: {'some' if gap.missed is None else gap.missed} changes of the partition up "
        f"to {show_instant(gap.at_ms)} ({gap.reason})"
        for gap in found.gaps
    ]
    if found.silent:
        lines.append(f"did not answer: {', '.join(found.silent)}; what they recorded is missing")
    return lines


@click.command(
    epilog="Examples: `dejaq counts reminders` · `dejaq counts reminders --by group --limit 10`",
)
@topic_argument
@click.option(
    "--by", type=click.Choice(("state", "group", "tag")), default="state", show_default=True
)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@json_option("Print JSON lines.")
@url_option
def counts(*, topic: str, by: str, limit: int, as_json: bool, url: str) -> None:
    """Show how many messages of TOPIC there are of each state, group or tag, most first."""
    with connect(url) as client:
        count_of = client.counts(topic, by=by, limit=limit)
    print_rows([{by: name, "count": count} for name, count in count_of.items()], as_json=as_json)


@click.command(
    epilog="Example: `dejaq histogram reminders --from 2026-12-24T00:00:00Z "
    "--to 2026-12-25T00:00:00Z --bucket 1h` · `dejaq histogram reminders --bucket 1h`",
)
@topic_argument
@click.option("--bucket", "bucket_ms", type=Span(), required=True, help="Length of a stretch.")
@click.option("--rough", is_flag=True, help="From the index alone; says how far it may be off.")
@where_options("scheduled", "ready", "leased")
@json_option("Print JSON lines: due, count.")
@url_option
def histogram(
    *, topic: str, bucket_ms: int, rough: bool, as_json: bool, url: str, **where: Any
) -> None:
    """Show how many messages of TOPIC are due in each stretch of time from --from to --to.

    Without --from, from now on; without --to, 20 stretches.
    """
    if where["due_from"] is None:
        where["due_from"] = SystemClock().utc_ms()
    if where["due_to"] is None:
        where["due_to"] = where["due_from"] + STRETCHES * bucket_ms
    with connect(url) as client:
        found = client.histogram(
            topic, bucket=bucket_ms / 1_000, exact=not rough, **where_of(where)
        )
    counted = found.counts.tolist()
    most = max([*counted, 1])
    rows = [
        {"due": show_instant(due_ms), "count": count}
        for due_ms, count in zip(found.dues_ms.tolist(), counted, strict=True)
    ]
    if not as_json:
        wide = max(BAR_COLUMNS, terminal.columns() - _NUMBERS_COLUMNS)
        room = wide if terminal.is_terminal() else BAR_COLUMNS
        rows = [row | {"": terminal.bar(row["count"], most, room)} for row in rows]
    print_rows(rows, as_json=as_json)
    if found.error_max:
        click.echo(f"all together may be too high by {found.error_max}", err=True)
