"""`dejaq stats`: what a broker says about itself.

Room: cli.
"""

from __future__ import annotations

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_fields


@click.command()
@click.argument("topic", required=False)
@json_option("Print JSON.")
@url_option
def stats(topic: str | None, *, as_json: bool, url: str) -> None:
    """Show the figures of one TOPIC, or of the whole broker."""
    with connect(url) as client:
        print_fields(client.stats(topic).to_dict(), as_json=as_json)
