"""`dejaq send`: one message, or a stream of them from standard input or a file.

Room: cli.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from dejaqueue.cli.connection import connect, json_option, topic_argument, url_option
from dejaqueue.cli.option_records import ColumnOptions, MessageOptions, with_records
from dejaqueue.cli.output import print_json
from dejaqueue.cli.times import Instant, Span

if TYPE_CHECKING:
    from dejaqueue import Client

    # tidy: allow type-import, because it loads pyarrow, which `--help` does without
    from dejaqueue.cli.sources import Columns

FORMATS = ("lines", "jsonl", "csv", "parquet")
EXIT_ROWS_REFUSED = 3


@click.command(
    epilog="Examples: `dejaq send reminders --text 'stretch' --delay 10s --key alice-1` · "
    "`dejaq send reminders people.csv --due-column remind_at --key-column email` · "
    "`tail -f log | dejaq send lines --delay 1h`",
)
@topic_argument
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@click.option("--text", help="One message with this payload; nothing is read.")
@click.option("--value", metavar="JSON", help="Instead of --text: this value as compact JSON.")
@click.option(
    "--file",
    "payload_file",
    metavar="PATH",
    help="Instead of --text: the content of a file, - for standard input, up to 5 GiB.",
)
@click.option("--key", help="With --text, --value or --file: its key, to move or cancel it by.")
@click.option("--due", "due_ms", type=Instant(), help="When: 2026-12-24T18:00:00Z or UTC ms.")
@click.option("--delay", "delay_ms", type=Span(), help="When, from now: 250ms, 10s, 5m, 2h, 1d.")
@click.option("--priority", type=click.IntRange(0, 65_535), help="0 is most urgent.")
@click.option("--tag", "tags", multiple=True, help="A tag; again: each of them.")
@click.option("--expires", "expires_ms", type=Instant(), help="If not done by then, it is dead.")
@click.option("--ttl", "ttl_ms", type=Span(), help="It is dead so long after it is due.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    help="Default: by the file's ending, else one payload a line.",
)
@click.option("--due-column", metavar="NAME", help="Column of due times. Default: due.")
@click.option("--delay-column", metavar="NAME", help="Column of delays in ms. Default: delay_ms.")
@click.option("--key-column", metavar="NAME", help="Column of keys. Default: key.")
@click.option("--group-column", metavar="NAME", help="Column of groups. Default: group.")
@click.option(
    "--payload-column",
    metavar="NAME",
    help="Column of payloads. Default: payload; without it, each row as JSON.",
)
@json_option("Print the outcome as JSON.")
@url_option
@with_records(fields=MessageOptions, names=ColumnOptions)
def send(
    *,
    topic: str,
    file: str | None,
    text: str | None,
    value: str | None,
    payload_file: str | None,
    fields: MessageOptions,
    file_format: str | None,
    names: ColumnOptions,
    as_json: bool,
    url: str,
) -> int:
    """Send messages to TOPIC: --text, --value or --file, or FILE, or standard input.

    Prints the id of a single message, and how many were sent of many. Ends with status 3 if rows
    were refused because a live message has their key.
    """
    if fields.due_ms is not None and fields.delay_ms is not None:
        raise click.UsageError("give --due or --delay, not both")
    if fields.expires_ms is not None and fields.ttl_ms is not None:
        raise click.UsageError("give --expires or --ttl, not both")
    if text is not None or value is not None or payload_file is not None:
        if [text, value, payload_file, file].count(None) < 3:
            raise click.UsageError("give --text, --value, --file or FILE, one of them")
        content: dict[str, Any] = {"payload": text} if value is None else {"json": _parsed(value)}
        with ExitStack() as stack:
            client = _client_and_payload(stack, url, topic, payload_file, content)
            message_id = client.send(
                topic,
                **content,
                due=fields.due_ms,
                delay=_length(fields.delay_ms),
                key=fields.key,
                priority=fields.priority,
                tags=fields.tags,
                expires=fields.expires_ms,
                ttl=_length(fields.ttl_ms),
            )
        return _print_single(message_id, as_json=as_json)
    if fields.key is not None:
        raise click.UsageError(
            "--key goes with --text, --value or --file; a table has a --key-column"
        )

    from dejaqueue.cli.sources import Columns, format_of
    from dejaqueue.clock import SystemClock

    now_ms = SystemClock().now_ms()
    due_ms = -1 if fields.due_ms is None else fields.due_ms
    if fields.delay_ms is not None:
        due_ms = now_ms + fields.delay_ms
    columns = Columns(
        names.payload_column,
        names.due_column,
        names.delay_column,
        names.key_column,
        names.group_column,
        due_ms,
        fields.priority,
        fields.expires_ms,
        fields.ttl_ms,
        fields.tags,
    )
    chosen = format_of(file, file_format)
    with ExitStack() as stack:
        source = _open(file, stack)
        client = stack.enter_context(connect(url))
        return _send_all(client, topic, source, chosen, columns, now_ms=now_ms, as_json=as_json)


def _client_and_payload(
    stack: ExitStack, url: str, topic: str, file: str | None, content: dict[str, Any]
) -> Client:
    """A client; with a file, what is to be sent of it becomes the content."""
    if file is None:
        return stack.enter_context(connect(url))
    from dejaqueue.cli.streaming import opened, upload_file

    source = stack.enter_context(opened(file))
    client = stack.enter_context(connect(url))
    content["payload"] = upload_file(client, topic, file, *source)
    return client


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as wrong:
        raise click.UsageError(f"--value: JSON, got: {value[:60]} ({wrong})") from None


def _length(length_ms: int | None) -> timedelta | None:
    return None if length_ms is None else timedelta(milliseconds=length_ms)


def _open(file: str | None, stack: ExitStack) -> BinaryIO:
    if file is None or file == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(open(file, "rb"))
    except OSError as error:
        raise click.UsageError(f"FILE: cannot read {file}: {error.strerror}") from error


def _print_single(message_id: int, *, as_json: bool) -> int:
    if as_json:
        print_json({"id": str(message_id)})
    else:
        click.echo(message_id)
    return 0


def _send_all(
    client: Client,
    topic: str,
    source: BinaryIO,
    file_format: str,
    columns: Columns,
    *,
    now_ms: int,
    as_json: bool,
) -> int:
    """Send every batch, print the counts, return the exit status."""
    from dejaqueue.cli.sources import read_batches
    from dejaqueue.model import RowStatus

    sent_count = duplicate_count = 0
    for batch in read_batches(source, file_format, columns, now_ms):
        statuses = client.send_batch(topic, batch).statuses
        refused = int((statuses == RowStatus.DUPLICATE).sum())
        sent_count += len(statuses) - refused
        duplicate_count += refused
    if as_json:
        print_json({"sent": sent_count, "duplicate": duplicate_count})
    else:
        click.echo(f"sent {sent_count}")
        if duplicate_count:
            click.echo(f"duplicate {duplicate_count}")
    return EXIT_ROWS_REFUSED if duplicate_count else 0
