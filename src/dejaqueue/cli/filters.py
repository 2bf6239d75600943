"""Options that say which messages are meant, for every command that can be told.

Room: cli.
See: client/browsing.py, whose words they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from dejaqueue.cli.times import Instant
from dejaqueue.limits import PRIORITY_MAX
from dejaqueue.wire.selection import SELECTION_FIELDS

Function = TypeVar("Function", bound=Callable[..., Any])

WAITING_STATES = ("scheduled", "ready")
STATES = (*WAITING_STATES, "leased", "dead", "staged", "staged_ack")


def tag_options(function: Function) -> Function:
    """--tag, --all-tags, --not-tag."""
    options = (
        ("--tag", "tags_any", "Only messages with this tag; repeated: with any of them."),
        ("--all-tags", "tags_all", "Only messages with this tag; repeated: with each of them."),
        ("--not-tag", "tags_none", "No messages with this tag; repeated: with none of them."),
    )
    for flag, name, text in reversed(options):
        function = click.option(flag, name, multiple=True, help=text)(function)
    return function


def where_options(*states: str) -> Callable[[Function], Function]:
    """All options that select messages; `states` are those that can be named."""

    def decorate(function: Function) -> Function:
        function = _what_it_is(function)
        function = click.option("--state", type=click.Choice(states), help="In this state.")(
            function
        )
        function = click.option("--to", "due_to", type=Instant(), help="Due before this time.")(
            function
        )
        return click.option("--from", "due_from", type=Instant(), help="Due then or later.")(
            function
        )

    return decorate


def seek_options(function: Function) -> Function:
    """As `where_options` of a command that has another --to; its messages have any state."""
    function = click.option("--due-to", type=Instant(), help="Of what is due before this time.")(
        _what_it_is(function)
    )
    return click.option("--due-from", type=Instant(), help="Of what is due then or later.")(
        function
    )


def erase_options(function: Function) -> Function:
    """As `where_options`, of messages in any state, and of those that are done."""
    function = click.option("--to", "due_to", type=Instant(), help="Due before this time.")(
        _what_it_is(function)
    )
    return click.option("--from", "due_from", type=Instant(), help="Due then or later.")(function)


def _what_it_is(function: Function) -> Function:
    """--group, those of tags, --priority-from, --priority-to."""
    priority = click.IntRange(0, PRIORITY_MAX)
    function = click.option(
        "--priority-to", type=priority, help="Of this priority or more urgent."
    )(function)
    function = click.option(
        "--priority-from", type=priority, help="Of this priority or less urgent."
    )(function)
    function = tag_options(function)
    return click.option("--group", help='Of this group; "" = of none.')(function)


def where_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of a command's options those that select messages and were given."""
    return {name: options[name] for name in SELECTION_FIELDS if options.get(name) not in (None, ())}
