"""What commands that talk to a broker share: the option --url, and the client behind it.

Room: cli.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from dejaqueue.errors import DejaQError

if TYPE_CHECKING:
    from dejaqueue import Client

URL_DEFAULT = "dejaq://localhost:7464"
RETRY_MS_MAX = 5_000
"""A person waits, or a script that can try again: no need for patience beyond a restart."""

Function = TypeVar("Function", bound=Callable[..., Any])


_SHOWN = f"{__name__}.shown"
"""Where click keeps what a command was told of its key and its TLS files, until `connect`."""


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta.setdefault(_SHOWN, {})[option.name] = value


def _shown_options(function: Function) -> Function:
    """What a client shows a broker; the commands themselves do not see it."""
    for name, text in (
        ("tls-key", "PEM file with the private key of --tls-certificate."),
        ("tls-certificate", "PEM file with a certificate of our own, for mutual TLS."),
        ("tls-ca", "PEM file with the certificates that may sign a dejaqs:// broker's."),
        ("api-key", "An API key; others on this machine can see options, so prefer the variable."),
    ):
        function = click.option(
            f"--{name}",
            envvar=f"DEJAQ_{name.upper().replace('-', '_')}",
            show_envvar=True,
            metavar="KEY" if name == "api-key" else "FILE",
            expose_value=False,
            callback=_keep,
            help=text,
        )(function)
    return function


def url_option(function: Function) -> Function:
    """The option --url, the same on every command that talks to a broker, and those of access."""
    function = _shown_options(function)
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


def topic_names(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of topics that begin so, for a shell that asks; none where no broker answers."""
    try:
        with context.scope(cleanup=False), connect(_url_of(context), retry_ms_max=0) as client:
            found = client.topics()
    except DejaQError:
        return []
    return [
        CompletionItem(topic.name, help=topic.kind.value)
        for topic in found
        if topic.name.startswith(incomplete)
    ]


def _url_of(context: click.Context) -> str:
    return str(context.params.get("url") or os.environ.get("DEJAQ_URL") or URL_DEFAULT)


topic_argument = click.argument("topic", shell_complete=topic_names)
"""The topic that a command is about."""
name_argument = click.argument("name", shell_complete=topic_names)
"""The same, where the command says that it is about a topic."""


@contextmanager
def connect(url: str, *, retry_ms_max: int = RETRY_MS_MAX) -> Iterator[Client]:
    """A client that closes at the end of the block.

    Args:
        url: of the broker.
        retry_ms_max: how long a broker that does not answer is waited for, milliseconds.

    Raises:
        Unavailable: no broker answers there; found out at once and not at the first call.
    """
    from dejaqueue import Client, Tls

    context = click.get_current_context(silent=True)
    shown = dict(context.meta.get(_SHOWN, {})) if context is not None else {}
    api_key = shown.pop("api_key", None)
    tls = Tls(**{name.removeprefix("tls_"): path for name, path in shown.items()})
    with Client(
        url,
        name="dejaq",
        api_key=api_key,
        tls=tls if shown else None,
        retry_ms_max=retry_ms_max,
    ) as client:
        client.connect()
        yield client
