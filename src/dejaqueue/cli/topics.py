"""`dejaq topic`: create, list, show, alter, delete, purge.

Room: cli.
"""

from __future__ import annotations

from typing import Any

import click

from dejaqueue.cli import terminal
from dejaqueue.cli.changes import purge
from dejaqueue.cli.connection import connect, json_option, name_argument, url_option
from dejaqueue.cli.output import print_fields, print_rows
from dejaqueue.cli.topic_options import given, options
from dejaqueue.model import Topic


@click.group()
def topic() -> None:
    """Make, list, show, change, empty and delete topics."""


topic.add_command(purge)


@topic.command(
    epilog="Examples: `dejaq topic create reminders --partitions 4 --lease 10s` · "
    "`dejaq topic create mails --kind fair --weight vip=3 --on-duplicate replace`",
)
@click.argument("name")
@options(creating=True)
@click.option("--exist-ok", is_flag=True, help="Fine if it exists already with these settings.")
@json_option("Print the topic as JSON.")
@url_option
def create(name: str, *, exist_ok: bool, as_json: bool, url: str, **settings: Any) -> None:
    """Make a topic. What is not given keeps its default."""
    with connect(url) as client:
        made = client.create_topic(name, exist_ok=exist_ok, **given(settings))
        print_fields(made.to_dict(), as_json=as_json)
        _warn(made)


def _warn(made: Topic) -> None:
    for warning in made.warnings():
        click.echo(f"warning: {warning}", err=True)


@topic.command(name="list")
@json_option("Print one JSON object a line.")
@url_option
def list_topics(*, as_json: bool, url: str) -> None:
    """List all topics."""
    with connect(url) as client:
        topics = client.topics()
    if as_json or not terminal.is_terminal():
        print_rows((found.to_dict() for found in topics), as_json=as_json)
    else:
        print_rows(map(_line, topics), as_json=False)


def _line(found: Topic) -> dict[str, Any]:
    """A topic on a line: what it is, and what is not as it is by default."""
    usual, values = Topic("x").to_dict(), found.to_dict()
    named = ("name", "kind", "partitions", "paused")
    changed = [
        f"{name}={value}"
        for name, value in values.items()
        if name not in named and usual.get(name) != value
    ]
    state = "paused" if found.paused else "delivers"
    shown = {"name": found.name, "kind": found.kind.value, "partitions": found.partitions}
    return shown | {"state": state, "settings": " ".join(changed)}


@topic.command()
@name_argument
@json_option("Print JSON.")
@url_option
def show(name: str, *, as_json: bool, url: str) -> None:
    """Show the settings of a topic."""
    with connect(url) as client:
        print_fields(client.topic(name).to_dict(), as_json=as_json)


@topic.command(epilog="Example: `dejaq topic alter reminders --lease 1m`")
@name_argument
@options(creating=False)
@json_option("Print the topic as JSON.")
@url_option
def alter(name: str, *, as_json: bool, url: str, **settings: Any) -> None:
    """Change settings of a topic while messages flow."""
    changes = given(settings)
    if not changes:
        raise click.UsageError("nothing to change: give at least one option")
    with connect(url) as client:
        altered = client.alter_topic(name, **changes)
        print_fields(altered.to_dict(), as_json=as_json)
        _warn(altered)


@topic.command()
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
def delete(name: str, *, yes: bool, url: str) -> None:
    """Delete a topic and every message in it."""
    if not yes:
        click.confirm(f"Delete topic {name} and every message in it?", abort=True, err=True)
    with connect(url) as client:
        client.delete_topic(name)


@topic.command(epilog="Example: `dejaq topic pause reminders`")
@name_argument
@url_option
def pause(name: str, *, url: str) -> None:
    """Hand out nothing of a topic; producers go on."""
    with connect(url) as client:
        client.pause_topic(name)


@topic.command(epilog="Example: `dejaq topic resume reminders`")
@name_argument
@url_option
def resume(name: str, *, url: str) -> None:
    """Hand out the messages of a paused topic again."""
    with connect(url) as client:
        client.resume_topic(name)


@topic.command(epilog="Example: `dejaq topic assignments reminders`")
@name_argument
@json_option("Print one JSON object a line.")
@url_option
def assignments(name: str, *, as_json: bool, url: str) -> None:
    """Show which consumer has which partition of a topic, or of a TOPIC@SUBSCRIPTION."""
    with connect(url) as client:
        found = client.assignments(name)
        rows = [*found["partitions"]]
        rows += [{"partition": "-", "consumer": who, "next": ""} for who in found["standby"]]
        print_rows(rows, as_json=as_json)
