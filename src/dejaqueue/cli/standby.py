"""`dejaq standby` and `dejaq promote`: how far a standby is, and its promotion.

Room: cli.
See: broker/standby/standby.py; docs/guides/standby.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_json
from dejaqueue.times import show_instant


@click.command(epilog="Examples: `dejaq standby --url dejaq://b:7464` · `dejaq standby --json`")
@json_option("Print JSON: state, standby, url, behind_ms, as_of_ms, entries, trouble.")
@url_option
def standby(*, as_json: bool, url: str) -> None:
    """Show whether a broker is active or a standby, and how far that is.

    A standby is started by `dejaq serve --standby URL --data DIR`.
    """
    with connect(url) as client:
        found = client.standby()
    if as_json:
        print_json(found)
        return
    click.echo("active" if found["state"] == "active" else told(found))
    if found.get("trouble"):
        click.echo(f"trouble: {found['trouble']}")


def told(found: Mapping[str, Any]) -> str:
    """How far a standby is, in a line.

    >>> told({"standby": "5f", "url": "s3://b", "state": "filling", "behind_ms": 1_250})
    'standby 5f of s3://b: filling, as of nothing yet, 1.2 s behind the archive'
    """
    as_of = show_instant(found["as_of_ms"]) if found.get("as_of_ms") else "nothing yet"
    return (
        f"standby {found['standby']} of {found['url']}: {found['state']}, as of {as_of}, "
        f"{found['behind_ms'] / 1_000:.1f} s behind the archive"
    )


@click.command(epilog="Examples: `dejaq promote --url dejaq://b:7464 --yes`")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("Print JSON: state, as_of_ms, took_ms.")
@url_option
def promote(*, yes: bool, as_json: bool, url: str) -> None:
    """Have a standby take the place of the broker that it follows.

    That broker is refused from then on, by name, also after a start: what it acknowledged and did
    not archive is only in its directory. Of two standbys that are promoted, one is. A promotion
    that broke off goes on by the same command.
    """
    with connect(url) as client:
        if not yes:
            state = client.standby()
            what = f"the broker whose archive is {state.get('url', '?')}"
            click.confirm(f"Take the place of {what}, for good?", abort=True, err=True)
        found = client.promote()
    if as_json:
        print_json(found)
        return
    click.echo(
        f"active, after {found['took_ms'] / 1_000:.2f} s, with all that was acknowledged by "
        f"{show_instant(found['as_of_ms'])}"
    )
