"""`dejaq consume`, `peek`, `move`, `cancel`: what is done to messages that are there.

Room: cli.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import payload_fields, print_json, print_rows
from dejaqueue.cli.times import Instant, Span, show_instant

if TYPE_CHECKING:
    from dejaqueue.client import MessageBatch, Settled

EXIT_ROWS_REFUSED = 3
CONSUME_ROWS = 1_000
"""Messages taken at once when nobody says how many there will be."""


@click.command(
    epilog="Examples: `dejaq consume reminders` · `dejaq consume reminders --max 10 --json` · "
    "`dejaq consume reminders --timeout 5s > reminders.txt`",
)
@click.argument("topic")
@click.option("--max", "count_max", type=click.IntRange(min=1), help="End after this many.")
@click.option("--timeout", "timeout_ms", type=Span(), help="End when nothing came for this long.")
@click.option("--no-ack", is_flag=True, help="Give every message back at the end (it counts).")
@json_option("Print JSON lines: id, key, due, attempt, payload.")
@url_option
def consume(
    *,
    topic: str,
    count_max: int | None,
    timeout_ms: int | None,
    no_ack: bool,
    as_json: bool,
    url: str,
) -> None:
    """Receive messages of TOPIC at their time, print each payload on a line, ack them.

    A message is acked after it was printed. Ends at --max, --timeout or Ctrl-C (status 130).
    """
    with (
        connect(url) as client,
        client.consume_batches(
            topic,
            batch_rows=CONSUME_ROWS,
            prefetch=CONSUME_ROWS,
            idle_ms=timeout_ms,
            max_messages=count_max,
        ) as batches,
    ):
        for batch in batches:
            _print_messages(batch, as_json=as_json)
            if not no_ack:
                batch.ack(wait=False)


def _print_messages(batch: MessageBatch, *, as_json: bool) -> None:
    rows = batch.batch.to_pylist()
    if as_json:
        for row in rows:
            print_json(_fields(row))
    else:
        sys.stdout.buffer.write(b"".join(row["payload"] + b"\n" for row in rows))
    # Printed first, acked after: what was not seen is not gone.
    sys.stdout.flush()


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    """A message as JSON fields; the id as a text, as JavaScript cannot hold it in a number."""
    shown: dict[str, Any] = {"id": str(row["id"]), "due": show_instant(row["due"])}
    shown["attempt"] = row["attempts"]
    for name in ("state", "key", "group", "tags"):
        if row.get(name):
            shown[name] = row[name]
    if row.get("headers"):
        shown["headers"] = dict(row["headers"])
    return shown | payload_fields(row["payload"])


@click.command(epilog="Example: `dejaq peek reminders --limit 5 --json`")
@click.argument("topic")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option("Print JSON lines with all fields.")
@url_option
def peek(*, topic: str, limit: int, as_json: bool, url: str) -> None:
    """Show messages of TOPIC as they are, without taking them, in the order of their time."""
    with connect(url) as client:
        rows = [_fields(row) for row in client.peek(topic, limit=limit).to_pylist()]
    if as_json:
        print_rows(rows, as_json=True)
        return
    print_rows([_summary(row) for row in rows], as_json=False)


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    """A message on one line of text."""
    payload = " ".join(str(row.get("payload", row.get("payload_base64", ""))).split())
    shown = payload if len(payload) <= 60 else f"{payload[:59]}…"
    names = ("id", "due", "state", "attempt", "key")
    return {name: row.get(name) for name in names} | {"payload": shown}


def _names_check(keys: tuple[str, ...], ids: tuple[int, ...]) -> None:
    if bool(keys) == bool(ids):
        raise click.UsageError("name the messages by --key or by --id, one of the two")


def _print_statuses(names: tuple[object, ...], settled: Settled, *, as_json: bool) -> int:
    """One line per message; status 3 if any was not OK."""
    from dejaqueue.model import RowStatus

    statuses = [RowStatus(int(status)).name for status in settled.statuses]
    print_rows(
        [
            {"message": str(name), "status": status}
            for name, status in zip(names, statuses, strict=True)
        ],
        as_json=as_json,
    )
    return 0 if settled.ok else EXIT_ROWS_REFUSED


@click.command(
    epilog="Examples: `dejaq move reminders --key alice-1 --delay 1h` · "
    "`dejaq move reminders --id 17 --id 18 --due 2026-12-24T18:00:00Z`",
)
@click.argument("topic")
@click.option("--key", "keys", multiple=True, help="Key of a message; may be repeated.")
@click.option("--id", "ids", type=int, multiple=True, help="Id of a message; may be repeated.")
@click.option("--due", "due_ms", type=Instant(), help="The new time.")
@click.option("--delay", "delay_ms", type=Span(), help="The new time, from now.")
@click.option("--priority", type=click.IntRange(0, 65_535), help="The new priority.")
@click.option("--group", help="The new group.")
@json_option("Print JSON lines: message, status.")
@url_option
def move(
    *,
    topic: str,
    keys: tuple[str, ...],
    ids: tuple[int, ...],
    due_ms: int | None,
    delay_ms: int | None,
    priority: int | None,
    group: str | None,
    as_json: bool,
    url: str,
) -> int:
    """Move messages of TOPIC to another time, priority or group.

    Ends with status 3 if one could not be moved.
    """
    _names_check(keys, ids)
    if due_ms is not None and delay_ms is not None:
        raise click.UsageError("say the new time with --due or --delay, one of the two")
    if delay_ms is not None:
        from dejaqueue.clock import SystemClock

        due_ms = SystemClock().now_ms() + delay_ms
    if due_ms is None and priority is None and group is None:
        raise click.UsageError(
            "say the new time, or what else changes: --due, --delay, --priority or --group"
        )
    named: dict[str, Any] = {"keys": list(keys)} if keys else {"ids": list(ids)}
    with connect(url) as client:
        settled = client.move(topic, **named, due=due_ms, priority=priority, group=group)
    return _print_statuses(keys or ids, settled, as_json=as_json)


@click.command(epilog="Example: `dejaq cancel reminders --key alice-1`")
@click.argument("topic")
@click.option("--key", "keys", multiple=True, help="Key of a message; may be repeated.")
@click.option("--id", "ids", type=int, multiple=True, help="Id of a message; may be repeated.")
@json_option("Print JSON lines: message, status.")
@url_option
def cancel(
    *, topic: str, keys: tuple[str, ...], ids: tuple[int, ...], as_json: bool, url: str
) -> int:
    """Cancel messages of TOPIC. Ends with status 3 if one could not be cancelled."""
    _names_check(keys, ids)
    with connect(url) as client:
        if keys:
            settled = client.cancel(topic, keys=list(keys))
        else:
            settled = client.cancel(topic, ids=list(ids))
    return _print_statuses(keys or ids, settled, as_json=as_json)
