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
RETRY_MS_MAX = 5_000
"""A person waits, or a script that can try again: no need for patience beyond a restart."""

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
    """A client that closes at the end of the block.

    Raises:
        Unavailable: no broker answers there; found out at once and not at the first call.
    """
    from dejaqueue import Client

    with Client(url, name="dejaq", retry_ms_max=RETRY_MS_MAX) as client:
        client.connect()
        yield client
