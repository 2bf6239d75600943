"""`dejaq consume`: messages at their time, on the screen or into a pipe.

Room: cli.
See: browse.py and changes.py for what is done to messages without consuming them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, topic_argument, url_option
from dejaqueue.cli.filters import tag_options
from dejaqueue.cli.output import payload_fields, print_json
from dejaqueue.cli.times import Place, Span, show_instant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dejaqueue.client import Client, MessageBatch

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
    "--ephemeral",
    is_flag=True,
    help="As a subscription of its own, which ends with this command, or a minute after it.",
)
@click.option(
    "--from",
    "place",
    type=Place("beginning", "end"),
    help="Go back before: what is retained from there on comes again, to all consumers of it; "
    "with tags, of such messages alone. With --ephemeral: where it begins.",
)
@click.option("--max", "count_max", type=click.IntRange(min=1), help="End after this many.")
@click.option("--timeout", "timeout_ms", type=Span(), help="End when nothing came for this long.")
@tag_options
@click.option("--no-ack", is_flag=True, help="Give every message back at the end (it counts).")
@click.option(
    "--save",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save each payload there in a file named by the message's id, and print the path.",
)
@json_option("Print JSON lines: id, key, due, attempt, payload.")
@url_option
def consume(
    *,
    topic: str,
    subscription: str,
    ephemeral: bool,
    place: str | int | None,
    count_max: int | None,
    timeout_ms: int | None,
    tags_any: tuple[str, ...],
    tags_all: tuple[str, ...],
    tags_none: tuple[str, ...],
    no_ack: bool,
    folder: Path | None,
    as_json: bool,
    url: str,
) -> None:
    """Receive messages of TOPIC at their time, print each payload on a line, ack them.

    A message is acked after it was printed. Ends at --max, --timeout or Ctrl-C (status 130).
    """
    if folder is not None and no_ack:
        raise click.UsageError("give --save or --no-ack, not both")
    if ephemeral and subscription:
        raise click.UsageError("--ephemeral has a name that nobody else has: no --subscription")
    tags: dict[str, Any] = {"tags_any": tags_any, "tags_all": tags_all, "tags_none": tags_none}
    with connect(url) as client:
        if ephemeral:
            subscription = _subscribed(client, topic, place, tags)
        elif place is not None:
            client.seek(topic, subscription, to=place, **tags)  # type: ignore[arg-type]  # words of Place
        options: dict[str, Any] = {
            "subscription": subscription,
            "idle_ms": timeout_ms,
            "max_messages": count_max,
            **tags,
        }
        try:
            if folder is not None:
                from dejaqueue.cli.streaming import save_messages

                save_messages(client, topic, folder, options, as_json=as_json)
            else:
                _print_all(client, topic, options, no_ack=no_ack, as_json=as_json)
        finally:
            if ephemeral:
                client.delete_subscription(topic, subscription)


def _print_all(
    client: Client, topic: str, options: dict[str, Any], *, no_ack: bool, as_json: bool
) -> None:
    """Print each message, and ack it then."""
    with client.consume_batches(
        topic, batch_rows=CONSUME_ROWS, prefetch=CONSUME_ROWS, **options
    ) as batches:
        for batch in batches:
            _print_messages(batch, as_json=as_json)
            if not no_ack:
                batch.ack(wait=False)


def _subscribed(
    client: Client, topic: str, place: str | int | None, tags: dict[str, Sequence[str]]
) -> str:
    """A subscription for this command alone, which begins at that place; its name."""
    start: Any = "new" if place in (None, "end") else place
    own: Any = {name: list(words) for name, words in tags.items() if words}
    return client.subscribe(topic, start=start, **own)


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
    for name in ("state", "consumer", "key", "group", "tags", "unread"):
        if row.get(name):
            shown[name] = row[name]
    if row.get("headers"):
        shown["headers"] = dict(row["headers"])
    return shown | (payload_fields(row["payload"]) if row.get("payload") is not None else {})
