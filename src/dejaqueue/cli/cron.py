"""`dejaq cron`: put, list, show, pause, resume, delete, run, next, preview.

Room: cli.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, topic_argument, url_option
from dejaqueue.cli.output import payload_fields, print_fields, print_rows
from dejaqueue.cli.times import Instant, Span, show_instant

if TYPE_CHECKING:
    from dejaqueue.schema.cron import CronEntry

INSTANT = Instant()
SPAN = Span()


@click.group()
def cron() -> None:
    """Entries of cron topics: what fires again and again."""


@cron.command(
    epilog="Example: `dejaq cron put reports daily --cron '0 9 * * MON-FRI' --zone Europe/Berlin "
    "--text go`",
)
@topic_argument
@click.argument("name")
@click.option("--cron", "expression", help="5 fields, or 6 with seconds first.")
@click.option("--every", "every_ms", type=SPAN, help="A fixed interval in place of --cron.")
@click.option("--zone", default="UTC", show_default=True, help="Time zone of --cron.")
@click.option("--start", "start_ms", type=INSTANT, help="No firing before.")
@click.option("--end", "end_ms", type=INSTANT, help="No firing then or later.")
@click.option("--jitter", "jitter_ms", type=SPAN, help="Each firing comes later by up to this.")
@click.option(
    "--misfire",
    type=click.Choice(["skip", "once", "all"]),
    default="once",
    show_default=True,
    help="What happens to firings that were missed.",
)
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip"]),
    default="allow",
    show_default=True,
    help="skip: not while the message before is not done.",
)
@click.option("--text", help="Payload, as text.")
@click.option("--file", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Payload, from a file.")  # fmt: skip
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; again.")
@click.option("--tag", "tags", multiple=True, help="A tag; again.")
@click.option("--group", default="", help="Group of the messages.")
@click.option("--priority", type=int, help="0 is most urgent.")
@click.option("--paused", is_flag=True, help="It does not fire yet.")
@json_option("Print the entry as JSON.")
@url_option
def put(
    topic: str,
    name: str,
    *,
    expression: str | None,
    text: str | None,
    path: Path | None,
    headers: tuple[str, ...],
    as_json: bool,
    url: str,
    **fields: Any,
) -> None:
    """Make an entry, or change it to be so."""
    if text is not None and path is not None:
        raise click.UsageError("give --text or --file, not both")
    payload = path.read_bytes() if path is not None else (text or "").encode()
    pairs = [header.partition("=") for header in headers]
    if not all(equals for _, equals, _ in pairs):
        raise click.UsageError("a header is like name=value")
    given = {field: value for field, value in fields.items() if value is not None}
    given |= {"cron": expression or "", "payload": payload}
    with connect(url) as client:
        made = client.cron(topic).put(name, headers={n: v for n, _, v in pairs}, **given)
        print_fields(_fields(made), as_json=as_json)


@cron.command(name="list")
@topic_argument
@click.option("--limit", type=int, help="Entries at most.")
@json_option("Print one JSON object a line.")
@url_option
def list_entries(topic: str, *, limit: int | None, as_json: bool, url: str) -> None:
    """List entries, by name."""
    with connect(url) as client:
        entries = itertools.islice(client.cron(topic).entries(), limit)
        if as_json:
            print_rows(map(_fields, entries), as_json=True)
        else:
            print_rows(map(_line, entries), as_json=False)


@cron.command()
@topic_argument
@click.argument("name")
@json_option("Print JSON.")
@url_option
def show(topic: str, name: str, *, as_json: bool, url: str) -> None:
    """Show an entry."""
    with connect(url) as client:
        print_fields(_fields(client.cron(topic).get(name)), as_json=as_json)


@cron.command()
@topic_argument
@click.argument("names", nargs=-1, required=True)
@url_option
def pause(topic: str, names: tuple[str, ...], *, url: str) -> None:
    """Have entries fire no more, until they are resumed."""
    with connect(url) as client:
        client.cron(topic).pause(*names)


@cron.command()
@topic_argument
@click.argument("names", nargs=-1, required=True)
@url_option
def resume(topic: str, names: tuple[str, ...], *, url: str) -> None:
    """Have entries go on from now."""
    with connect(url) as client:
        client.cron(topic).resume(*names)


@cron.command()
@topic_argument
@click.argument("names", nargs=-1, required=True)
@json_option("Print JSON.")
@url_option
def delete(topic: str, names: tuple[str, ...], *, as_json: bool, url: str) -> None:
    """Delete entries; says how many there were."""
    with connect(url) as client:
        print_fields({"deleted": client.cron(topic).drop(*names)}, as_json=as_json)


@cron.command()
@topic_argument
@click.argument("name")
@json_option("Print JSON.")
@url_option
def run(topic: str, name: str, *, as_json: bool, url: str) -> None:
    """Fire an entry now, beside its schedule; prints the id of the message."""
    with connect(url) as client:
        print_fields({"id": str(client.cron(topic).run(name))}, as_json=as_json)


@cron.command(name="next")
@topic_argument
@click.argument("name")
@click.option("--count", type=int, default=10, show_default=True, help="Firings at most.")
@click.option("--after", type=INSTANT, help="Those after this instant; now, if not given.")
@json_option("Print one JSON object a line.")
@url_option
def next_firings(
    topic: str, name: str, *, count: int, after: int | None, as_json: bool, url: str
) -> None:
    """Show when an entry fires next."""
    with connect(url) as client:
        _print_firings(client.cron(topic).next_ms(name, count, after=after), as_json)


@cron.command(
    epilog="Example: `dejaq cron preview '30 2 * * *' --zone Europe/Berlin --misfire skip`",
)
@click.argument("expression")
@click.option("--zone", default="UTC", show_default=True, help="Time zone of the expression.")
@click.option(
    "--misfire",
    type=click.Choice(["skip", "once", "all"]),
    default="once",
    show_default=True,
    help="What happens to times that clocks leave out.",
)
@click.option("--count", type=int, default=10, show_default=True, help="Firings at most.")
@click.option("--after", type=INSTANT, help="Those after this instant; now, if not given.")
@json_option("Print one JSON object a line.")
@url_option
def preview(
    expression: str, zone: str, misfire: str, count: int, after: int | None, as_json: bool, url: str
) -> None:
    """Show when an expression would fire, without an entry."""
    from dejaqueue.schema.cron import CronEntry, Misfire

    entry = CronEntry("preview", cron=expression, zone=zone, misfire=Misfire(misfire))
    with connect(url) as client:
        _print_firings(client.cron("preview").preview_ms(entry, count, after=after), as_json)


def _print_firings(firings: list[int], as_json: bool) -> None:
    rows = [{"due_ms": firing_ms, "due": show_instant(firing_ms)} for firing_ms in firings]
    print_rows(rows, as_json=as_json)


def _fields(entry: CronEntry) -> dict[str, Any]:
    """An entry as its fields, with the payload as people read it."""
    values = entry.to_dict()
    del values["payload"]
    values |= {"next": _next(entry), "last_id": str(entry.last_id)}
    return values | payload_fields(entry.payload)


def _line(entry: CronEntry) -> dict[str, Any]:
    """What of an entry fits a line."""
    when = entry.cron or f"every {entry.every_ms} ms"
    names = ("zone", "misfire", "overlap", "paused")
    values = {name: getattr(entry, name) for name in names}
    return {"name": entry.name, "fires": when, **values, "next": _next(entry)}


def _next(entry: CronEntry) -> str | None:
    return None if entry.next_ms < 0 else show_instant(entry.next_ms)
