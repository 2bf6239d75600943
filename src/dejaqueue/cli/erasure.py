"""`dejaq erase`: messages go, with every byte of them in the broker's files.

Room: cli.
See: broker/calls/erasure.py; docs/guides/erasure.md.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from dejaqueue.cli.connection import connect, json_option, topic_argument, url_option
from dejaqueue.cli.filters import erase_options, where_of
from dejaqueue.cli.output import print_fields

EXIT_LEFT = 3


@click.command(
    epilog="Examples: `dejaq erase orders --key alice@example.org` · "
    "`dejaq erase orders --group acme --yes`",
)
@topic_argument
@click.option("--key", "keys", multiple=True, help="Of this key; may be repeated.")
@click.option("--id", "ids", type=int, multiple=True, help="With this id; may be repeated.")
@erase_options
@click.option("--no-letters", is_flag=True, help="Leave its dead letters alone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("Print JSON: found, ended, held, segments, bytes, payloads, changes, backups, …")
@url_option
def erase(
    *,
    topic: str,
    keys: tuple[str, ...],
    ids: tuple[int, ...],
    no_letters: bool,
    yes: bool,
    as_json: bool,
    url: str,
    **where: Any,
) -> int:
    """End messages of TOPIC for good, and delete every byte of them.

    They are named by --key or --id, or selected by a filter; messages that are done, cancelled or
    dead are erased as well. Returns when no journal, snapshot, history file or payload of the
    broker has them, and names the backups that do. Ends with status 3 if some are held by an open
    transaction, or another broker of the cluster did not answer.
    """
    selected = where_of(where)
    if [bool(keys), bool(ids), bool(selected)].count(True) != 1:
        raise click.UsageError(
            "name the messages by --key or by --id, or select them by a filter as --group"
        )
    if not yes:
        named, noun = (keys, "key") if keys else (ids, "id")
        what = f"{len(named)} {noun}{'s' * (len(named) > 1)}" if named else "this filter"
        click.confirm(f"Erase every message of topic {topic} with {what}?", abort=True, err=True)
    with connect(url) as client:
        erased = client.erase(
            topic,
            keys=list(keys) or None,
            ids=list(ids) or None,
            letters=not no_letters,
            **selected,
        )
    fields = asdict(erased)
    if as_json:
        print_fields(fields, as_json=True)
    else:
        told = ("backups", "unread", "silent", "left")
        backups, unread, silent, left = (fields.pop(name) for name in told)
        print_fields(fields, as_json=False)
        for backup in backups:
            click.echo(f"still in backup {backup['id']} at {backup['url']}, {_until(backup)}")
        for text in unread:
            click.echo(f"backups could not be listed: {text}", err=True)
        for node in silent:
            click.echo(f"broker {node} did not answer: erase again when it is back", err=True)
        for text in left:
            click.echo(text, err=True)
    return EXIT_LEFT if erased.held or erased.silent else 0


def _until(backup: dict[str, Any]) -> str:
    """Until when a backup has it."""
    if "until_ms" not in backup:
        return "until somebody deletes it"
    return f"until {datetime.fromtimestamp(backup['until_ms'] / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
