"""An option for each setting of a topic, made of `model.Topic` itself: a new one has its option.

Room: cli.
Holds: `options(True)` offers every setting but subscriptions, which have commands of their own
(subscriptions.py), `options(False)` those that `alter_topic` may change; what is not given is not
in the settings.
See: topics.py; the texts are those of the settings in model.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar, get_type_hints

import click

from dejaqueue.cli.times import Span
from dejaqueue.model import CHANGEABLE, Topic, topic_texts

Function = TypeVar("Function", bound=Callable[..., Any])

_OTHER_NAMES = {"max_backlog_count": "--max-backlog", "max_payload_bytes": "--max-payload"}


class Weight(click.ParamType[tuple[str, int]]):
    """A group and its weight: vip=3."""

    name = "group=weight"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The group and the weight."""
        if isinstance(value, tuple):
            return value
        group, equals, weight = str(value).rpartition("=")
        if not equals or not weight.isdecimal():
            self.fail(f"a weight is like vip=3, got: {value!r}", param, ctx)
        return group, int(weight)


class Label(click.ParamType[tuple[str, str]]):
    """A name and a text: owner=shop."""

    name = "name=text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The name and the text."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"a label is like owner=shop, got: {value!r}", param, ctx)
        return name, text


class Partitions(click.ParamType[int | str]):
    """A number, or auto."""

    name = "number or auto"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """The number, or the word."""
        if value == "auto" or isinstance(value, int):
            return value
        if not str(value).isdecimal():
            self.fail(f"a number, or auto, got: {value!r}", param, ctx)
        return int(str(value))


def flag_of(name: str) -> str:
    """The option of a setting.

    >>> flag_of("lease_ms"), flag_of("max_backlog_count")
    ('--lease', '--max-backlog')
    """
    return _OTHER_NAMES.get(name) or "--" + name.removesuffix("_ms").replace("_", "-")


def option_of(name: str, kind: Any) -> Callable[[Function], Function]:
    """The option of a setting of that type."""
    text = topic_texts()[name]
    flag = flag_of(name)
    if name == "weights":
        more = f"{text} Can be given again."
        return click.option("--weight", "weights", type=Weight(), multiple=True, help=more)
    if name == "labels":
        more = f"{text} Can be given again."
        return click.option("--label", "labels", type=Label(), multiple=True, help=more)
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=text)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return click.option(flag, name, type=click.Choice([str(word) for word in kind]), help=text)
    option_type: Any = Span() if name.endswith("_ms") else kind
    if name == "partitions":
        option_type, text = Partitions(), f"{text} auto: they are added when needed."
    return click.option(flag, name, type=option_type, help=text)


def options(*, creating: bool) -> Callable[[Function], Function]:
    """Options for the settings that can be given when a topic is made, or changed later."""
    kinds = get_type_hints(Topic)
    names = [
        setting.name for setting in fields(Topic) if setting.name not in ("name", "subscriptions")
    ]
    chosen = [name for name in names if creating or name in CHANGEABLE]

    def decorated(function: Function) -> Function:
        for name in reversed(chosen):
            function = option_of(name, kinds[name])(function)
        return function

    return decorated


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given."""
    chosen = {name: value for name, value in settings.items() if value is not None}
    if chosen.get("partitions") == "auto":
        del chosen["partitions"]
        chosen["auto_partitions"] = True
    for name in ("weights", "labels"):
        pairs = chosen.pop(name, ())
        chosen |= {name: dict(pairs)} if pairs else {}
    return chosen
