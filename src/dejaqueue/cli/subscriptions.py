"""`dejaq subscription`: create, list, show, alter, delete, seek, pause and resume subscriptions.

Room: cli.
See: docs/guides/subscriptions.md; `dejaq consume --subscription`, which consumes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.filters import seek_options, tag_options, where_of
from dejaqueue.cli.output import print_fields, print_rows
from dejaqueue.cli.times import Place, Span, show_instant
from dejaqueue.cli.topic_options import given, option_of
from dejaqueue.model import Topic
from dejaqueue.subscriptions import OWN_SETTINGS, TAG_SETTINGS, Order, Start

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group()
def subscription() -> None:
    """Make, list, show, change and delete subscriptions of topics."""


def _own_options(function: Function) -> Function:
    """An option for each setting that a subscription may have of its own."""
    kinds = get_type_hints(Topic)
    for name in reversed(OWN_SETTINGS):
        function = option_of(name, kinds[name])(function)
    return function


ephemeral_option = click.option(
    "--ephemeral",
    "ephemeral_ms",
    type=Span(),
    help="It ends when nobody has consumed it for so long; 0s = when it is deleted.",
)


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given."""
    tags = {name: list(settings.pop(name)) for name in TAG_SETTINGS}
    return given(settings) | {name: values for name, values in tags.items() if values}


@subscription.command(
    epilog="Examples: `dejaq subscription create orders billing` · "
    "`dejaq subscription create orders audit --order arrival --start live` · "
    "`dejaq subscription create orders europe --tag eu --tag uk`",
)
@click.argument("topic")
@click.argument("name")
@click.option(
    "--order",
    type=click.Choice([str(word) for word in Order]),
    help="In which order it gets messages. By default the topic's.",
)
@click.option(
    "--start",
    type=Place(*(str(word) for word in Start)),
    help="new: with what comes from now on; live: with all that the topic has, too; beginning: "
    "with all that it retains; or a time: with what is from then on in its order.",
)
@ephemeral_option
@tag_options
@_own_options
@json_option("Print the subscription as JSON.")
@url_option
def create(topic: str, name: str, *, as_json: bool, url: str, **settings: Any) -> None:
    """Give TOPIC a subscription. What is not given is as the topic says."""
    with connect(url) as client:
        made = client.create_subscription(topic, name, **_given(settings))
        print_fields({"name": name, **made}, as_json=as_json)


@subscription.command(name="list")
@click.argument("topic")
@json_option("Print one JSON object a line.")
@url_option
def list_subscriptions(topic: str, *, as_json: bool, url: str) -> None:
    """List the subscriptions of TOPIC, and how much each still has to do."""
    with connect(url) as client:
        rows = []
        for name, settings in client.subscriptions(topic).items():
            stats = client.stats(f"{topic}@{name}")
            numbers = {"ready": stats.ready, "scheduled": stats.scheduled, "leased": stats.leased}
            due: int | str = stats.next_due_ms
            if not as_json:
                due = show_instant(stats.next_due_ms) if stats.next_due_ms >= 0 else ""
            row = {"name": name, "order": settings["order"], **numbers}
            rows.append(row | {"next_due_ms" if as_json else "next due": due})
        print_rows(rows, as_json=as_json)


@subscription.command()
@click.argument("topic")
@click.argument("name")
@json_option("Print JSON.")
@url_option
def show(topic: str, name: str, *, as_json: bool, url: str) -> None:
    """Show the settings that a subscription of TOPIC has of its own."""
    with connect(url) as client:
        print_fields({"name": name, **_found(client, topic, name)}, as_json=as_json)


def _found(client: Any, topic: str, name: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = client.subscriptions(topic)
    if name not in found:
        raise click.ClickException(f"topic {topic} has no subscription {name}")
    return found[name]


@subscription.command(epilog="Example: `dejaq subscription alter orders billing --lease 1m`")
@click.argument("topic")
@click.argument("name")
@ephemeral_option
@tag_options
@_own_options
@json_option("Print the subscription as JSON.")
@url_option
def alter(topic: str, name: str, *, as_json: bool, url: str, **settings: Any) -> None:
    """Change settings of a subscription of TOPIC while messages flow."""
    changes = _given(settings)
    if not changes:
        raise click.UsageError("nothing to change: give at least one option")
    with connect(url) as client:
        _found(client, topic, name)
        altered = client.create_subscription(topic, name, **changes)
        print_fields({"name": name, **altered}, as_json=as_json)


@subscription.command()
@click.argument("topic")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
def delete(topic: str, name: str, *, yes: bool, url: str) -> None:
    """End a subscription of TOPIC, with what only it still had."""
    if not yes:
        click.confirm(f"Delete subscription {name} of topic {topic}?", abort=True, err=True)
    with connect(url) as client:
        client.delete_subscription(topic, name)


@subscription.command(
    epilog="Examples: `dejaq subscription seek orders billing --to 2h-ago` · "
    "`dejaq subscription seek orders audit --to beginning` · "
    "`dejaq subscription seek orders billing --to 2h-ago --group acme`",
)
@click.argument("topic")
@click.argument("name")
@click.option(
    "--to",
    type=Place("beginning", "end"),
    required=True,
    help="beginning, end, or a time: 2h-ago, 2026-12-24T18:00:00Z. In order of arrival it is when "
    "messages came in, else when they are due.",
)
@seek_options
@json_option("Print JSON.")
@url_option
def seek(topic: str, name: str, *, to: str | int, as_json: bool, url: str, **where: Any) -> None:
    """Have a subscription of TOPIC get what is retained again, from a place on.

    What waits for before that place is passed over; what is leased stays so. With a filter
    (--group, --tag, …) this is about the messages that it selects; all others stay as they are.
    """
    with connect(url) as client:
        sought = client.seek(topic, name, to=to, **where_of(where))  # type: ignore[arg-type]  # the words of Place
        print_fields(sought._asdict(), as_json=as_json)


@subscription.command(epilog="Example: `dejaq subscription pause orders billing`")
@click.argument("topic")
@click.argument("name")
@url_option
def pause(topic: str, name: str, *, url: str) -> None:
    """Hand out nothing of a subscription; the others go on."""
    _set_paused(topic, name, url, paused=True)


@subscription.command(epilog="Example: `dejaq subscription resume orders billing`")
@click.argument("topic")
@click.argument("name")
@url_option
def resume(topic: str, name: str, *, url: str) -> None:
    """Hand out the messages of a paused subscription again."""
    _set_paused(topic, name, url, paused=False)


def _set_paused(topic: str, name: str, url: str, *, paused: bool) -> None:
    with connect(url) as client:
        _found(client, topic, name)
        client.create_subscription(topic, name, paused=paused)
