"""`dejaq consume`: messages at their time, on the screen or into a pipe.

Room: cli.
See: browse.py and changes.py for what is done to messages without consuming them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, topic_argument, url_option
from dejaqueue.cli.filters import tag_options
from dejaqueue.cli.output import payload_fields, print_json
from dejaqueue.cli.times import Place, Span, show_instant

if TYPE_CHECKING:
    from dejaqueue.client import MessageBatch

CONSUME_ROWS = 1_000
"""Messages taken at once when nobody says how many there will be."""


@click.command(
    epilog="Examples: `dejaq consume reminders` · `dejaq consume reminders --max 10 --json` · "
    "`dejaq consume reminders --timeout 5s > reminders.txt` · "
    "`dejaq consume reminders --tag mail --not-tag test`",
)
@topic_argument
@click.option("--subscription", default="", help="As which of its subscriptions.")
@click.option(
    "--from",
    "place",
    type=Place("beginning", "end"),
    help="Go back before: what is retained from there on comes again, to all consumers of it.",
)
@click.option("--max", "count_max", type=click.IntRange(min=1), help="End after this many.")
@click.option("--timeout", "timeout_ms", type=Span(), help="End when nothing came for this long.")
@tag_options
@click.option("--no-ack", is_flag=True, help="Give every message back at the end (it counts).")
@json_option("Print JSON lines: id, key, due, attempt, payload.")
@url_option
def consume(
    *,
    topic: str,
    subscription: str,
    place: str | int | None,
    count_max: int | None,
    timeout_ms: int | None,
    tags_any: tuple[str, ...],
    tags_all: tuple[str, ...],
    tags_none: tuple[str, ...],
    no_ack: bool,
    as_json: bool,
    url: str,
) -> None:
    """Receive messages of TOPIC at their time, print each payload on a line, ack them.

    A message is acked after it was printed. Ends at --max, --timeout or Ctrl-C (status 130).
    """
    with connect(url) as client:
        if place is not None:
            client.seek(topic, subscription, to=place)  # type: ignore[arg-type]  # words of Place
        with client.consume_batches(
            topic,
            subscription=subscription,
            batch_rows=CONSUME_ROWS,
            prefetch=CONSUME_ROWS,
            idle_ms=timeout_ms,
            max_messages=count_max,
            tags_any=tags_any,
            tags_all=tags_all,
            tags_none=tags_none,
        ) as batches:
            for batch in batches:
                _print_messages(batch, as_json=as_json)
                if not no_ack:
                    batch.ack(wait=False)


def _print_messages(batch: MessageBatch, *, as_json: bool) -> None:
    rows = batch.batch.to_pylist()
    if as_json:
        for row in rows:
            print_json(message_fields(row))
    else:
        sys.stdout.buffer.write(b"".join(row["payload"] + b"\n" for row in rows))
    # Printed first, acked after: what was not seen is not gone.
    sys.stdout.flush()


def message_fields(row: dict[str, Any]) -> dict[str, Any]:
    """A message as JSON fields; the id as a text, as JavaScript cannot hold it in a number."""
    shown: dict[str, Any] = {"id": str(row["id"]), "due": show_instant(row["due"])}
    shown["attempt"] = row["attempts"]
    for name in ("state", "consumer", "key", "group", "tags"):
        if row.get(name):
            shown[name] = row[name]
    if row.get("headers"):
        shown["headers"] = dict(row["headers"])
    return shown | (payload_fields(row["payload"]) if "payload" in row else {})
