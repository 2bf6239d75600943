"""`dejaq key`: API keys of a broker, made, listed and revoked.

Room: cli. Over the wire, or with `--data` in the directory of a broker that is not running.
Holds: a key is printed by `create`, to standard output alone, and never again.
See: docs/guides/security.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_fields, print_json, print_rows
from dejaqueue.cli.times import Instant, Span, show_instant

if TYPE_CHECKING:
    from collections.abc import Callable

    from dejaqueue import Client

    Act = Callable[[str, dict[str, Any]], dict[str, Any]]

data_option = click.option(
    "--data",
    "directory",
    metavar="DIR",
    help="Of the broker with this directory, which is not running now. Of a node of a cluster the "
    "others learn when it is back; DEJAQ_CLUSTER__SECRET_FILE names the secret if it has one.",
)


@click.group()
def key() -> None:
    """API keys: who may do what. From the first key on, every call needs one."""


def _ask(client: Client, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """An action on keys, by a broker."""
    match name:
        case "create_key":
            ends, token = body.get("ends_ms"), body.get("start_token")
            return client.create_key(body["name"], body["grants"], ends=ends, start_token=token)
        case "list_keys":
            return {"keys": client.api_keys()}
        case _:
            return client.revoke_key(body["key"], force=body["force"])


@contextmanager
def _keys(directory: str | None, url: str) -> Iterator[Act]:
    """What does an action on keys: a broker, or its directory."""
    if directory is None:
        with connect(url) as client:
            yield partial(_ask, client)
        return
    from dejaqueue.access import administration
    from dejaqueue.access.key_ring import KeyRing
    from dejaqueue.clock import SystemClock
    from dejaqueue.cluster.key_copy import is_of_cluster, opened_copy
    from dejaqueue.errors import BadRequest
    from dejaqueue.journal.registry import open_store

    if directory.startswith("memory:"):
        raise BadRequest("--data", "a directory; what is in memory has no keys", directory)
    if is_of_cluster(Path(directory)):
        secret_file = os.environ.get("DEJAQ_CLUSTER__SECRET_FILE", "")
        with opened_copy(Path(directory), secret_file) as keys:
            yield lambda name, body: administration.act(keys, name, body, is_near=True)
        return
    store = open_store(directory)
    try:
        keys = KeyRing(SystemClock(), store)
        yield lambda name, body: administration.act(keys, name, body, is_near=True)
    finally:
        store.close()


@key.command(
    epilog="Examples: `dejaq key create root --grant 'admin:*'` · "
    "`dejaq key create shop --grant 'produce:orders.*' --grant consume:answers --for 90d`"
)
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    metavar="ROLE:PATTERN",
    help="What it may do: a role of produce, consume, observe, manage and admin, for the topics "
    "that match the pattern, with own: before it for what the key's bearer sent alone (produce, "
    "manage); with deny: before all of it what it may not do. May be repeated.",
)
@click.option("--for", "for_ms", type=Span(), help="It ends after so long; else never.")
@click.option("--until", "until_ms", type=Instant(), help="It ends then.")
@click.option(
    "--start-token",
    metavar="TOKEN",
    envvar="DEJAQ_START_TOKEN",
    show_envvar=True,
    help="For the first key of a broker that others can reach: from the file that its log names.",
)
@data_option
@json_option("Print the key and its facts as JSON.")
@url_option
def create(
    *,
    name: str,
    grants: tuple[str, ...],
    for_ms: int | None,
    until_ms: int | None,
    start_token: str | None,
    directory: str | None,
    as_json: bool,
    url: str,
) -> None:
    """Make an API key for NAME and print it: now or never.

    NAME cert:SHOP is for who shows a client certificate of the name SHOP, NAME oidc:TEAM for who
    has the role TEAM in a token of the issuer. Neither has a text.

    The first one must be an admin's (`--grant 'admin:*'`), and is made on the broker's own machine:
    with its start-up token, if others can reach the broker.
    """
    from dejaqueue.clock import SystemClock

    if for_ms is not None and until_ms is not None:
        raise click.UsageError("--for and --until: one of them")
    if for_ms is not None:
        until_ms = SystemClock().now_ms() + for_ms
    body: dict[str, Any] = {"name": name, "grants": list(grants)}
    if until_ms is not None:
        body["ends_ms"] = until_ms
    if start_token is not None:
        body["start_token"] = start_token
    with _keys(directory, url) as act:
        made = act("create_key", body)
    if as_json:
        print_json(made)
        return
    if "api_key" not in made:
        click.echo(f"{made['name']}: {' '.join(made['grants'])}")
        return
    click.echo(made["api_key"])
    click.echo("this is the only time it is shown; give it as DEJAQ_API_KEY", err=True)


@key.command(name="list", epilog="Example: `dejaq key list`")
@data_option
@json_option("Print JSON lines.")
@url_option
def list_keys(*, directory: str | None, as_json: bool, url: str) -> None:
    """List API keys that were not revoked: names and roles, no secrets.

    Used: when the broker that was asked was last shown it, to the minute, since that broker
    started; "-" = not since then, or nobody knows (--data).
    """
    with _keys(directory, url) as act:
        rows = act("list_keys", {})["keys"]
    if not as_json:
        rows = [
            {
                "id": row["id"],
                "name": row["name"],
                "grants": " ".join(row["grants"]),
                "created": show_instant(row["created_ms"]),
                "ends": "never" if row["ends_ms"] is None else show_instant(row["ends_ms"]),
                "used": show_instant(row["used_ms"]) if row.get("used_ms") else "-",
            }
            for row in rows
        ]
    print_rows(rows, as_json=as_json)


@key.command(epilog="Examples: `dejaq key revoke shop` · `dejaq key revoke 9f86d081884c`")
@click.argument("key_name", metavar="KEY")
@click.option("--force", is_flag=True, help="Also if it is the last admin key.")
@data_option
@json_option("Print the key that was revoked as JSON.")
@url_option
def revoke(*, key_name: str, force: bool, directory: str | None, as_json: bool, url: str) -> None:
    """Refuse KEY (its id or name) from now on, on open streams, too.

    After the last admin key, which takes --force, a new one can only be made with --data.
    """
    with _keys(directory, url) as act:
        revoked = act("revoke_key", {"key": key_name, "force": force})
    print_fields(revoked, as_json=as_json)
