"""What commands that talk to a broker share: the option --url, and the client behind it.

Room: cli.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from dejaqueue import Client

URL_DEFAULT = "dejaq://localhost:7464"

Function = TypeVar("Function", bound=Callable[..., Any])


def url_option(function: Function) -> Function:
    """The option --url, the same on every command that talks to a broker."""
    return click.option(
        "--url",
        envvar="DEJAQ_URL",
        default=URL_DEFAULT,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="The broker to talk to.",
    )(function)


def json_option(text: str) -> Callable[[Function], Function]:
    """The option --json, with what it changes."""
    return click.option("--json", "as_json", is_flag=True, help=text)


@contextmanager
def connect(url: str) -> Iterator[Client]:
    """A client that closes at the end of the block."""
    from dejaqueue import Client

    client = Client(url)
    try:
        yield client
    finally:
        client.close()
