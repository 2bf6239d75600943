"""`dejaq topic`: create, list, show, alter, delete.

Room: cli.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_fields, print_rows
from dejaqueue.cli.times import Span

KINDS = ("timeline", "priority", "fair", "cron")
Function = TypeVar("Function", bound=Callable[..., Any])


def _changeable_options(function: Function) -> Function:
    """The settings that `create` and `alter` share (model.CHANGEABLE)."""
    options = (
        ("--lease", "lease_ms", Span(), "How long a delivered message belongs to its consumer."),
        ("--lease-ahead", "lease_ahead_ms", Span(), "How long before its time it may be sent."),
        ("--max-payload", "max_payload_bytes", int, "Bytes of one payload at most."),
        ("--max-delay", "max_delay_ms", Span(), "The furthest due time from now; 0 = no limit."),
        ("--max-backlog", "max_backlog_count", int, "Live messages at most; 0 = no limit."),
        ("--max-backlog-bytes", "max_backlog_bytes", int, "Payload bytes at most; 0 = no limit."),
        ("--max-attempts", "max_attempts", int, "Deliveries before it is dead; 0 = no limit."),
        ("--dead-letter", "dead_letter", str, "Topic for dead messages; default NAME.dead."),
        ("--backoff", "backoff_ms", Span(), "Wait before the second delivery."),
        ("--backoff-factor", "backoff_factor", float, "Each further wait is longer by this."),
        ("--backoff-max", "backoff_max_ms", Span(), "No wait is longer."),
        ("--backoff-jitter", "backoff_jitter", float, "Part of a wait left away by chance, 0-1."),
    )
    for flag, name, kind, text in reversed(options):
        function = click.option(flag, name, type=kind, help=text)(function)
    return function


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


@click.group()
def topic() -> None:
    """Make, list, show, change and delete topics."""


@topic.command(
    epilog="Example: `dejaq topic create reminders --partitions 4 --lease 10s`",
)
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), help="What decides the order. [timeline]")
@click.option("--ageing", "ageing_ms", type=Span(), help="So long a wait is worth one priority.")
@click.option("--partitions", type=int, help="Parts that work side by side; 1 keeps one order.")
@_changeable_options
@click.option("--exist-ok", is_flag=True, help="Fine if it exists already with these settings.")
@json_option("Print the topic as JSON.")
@url_option
def create(name: str, *, exist_ok: bool, as_json: bool, url: str, **settings: Any) -> None:
    """Make a topic. What is not given keeps its default."""
    with connect(url) as client:
        made = client.create_topic(name, exist_ok=exist_ok, **_given(settings))
        print_fields(made.to_dict(), as_json=as_json)


@topic.command(name="list")
@json_option("Print one JSON object a line.")
@url_option
def list_topics(*, as_json: bool, url: str) -> None:
    """List all topics."""
    with connect(url) as client:
        print_rows((found.to_dict() for found in client.topics()), as_json=as_json)


@topic.command()
@click.argument("name")
@json_option("Print JSON.")
@url_option
def show(name: str, *, as_json: bool, url: str) -> None:
    """Show the settings of a topic."""
    with connect(url) as client:
        print_fields(client.topic(name).to_dict(), as_json=as_json)


@topic.command(epilog="Example: `dejaq topic alter reminders --lease 1m`")
@click.argument("name")
@_changeable_options
@json_option("Print the topic as JSON.")
@url_option
def alter(name: str, *, as_json: bool, url: str, **settings: Any) -> None:
    """Change settings of a topic while messages flow."""
    given = _given(settings)
    if not given:
        raise click.UsageError("nothing to change: give at least one option")
    with connect(url) as client:
        print_fields(client.alter_topic(name, **given).to_dict(), as_json=as_json)


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
def delete(name: str, *, yes: bool, url: str) -> None:
    """Delete a topic and every message in it."""
    if not yes:
        click.confirm(f"Delete topic {name} and every message in it?", abort=True, err=True)
    with connect(url) as client:
        client.delete_topic(name)
