"""`dejaq transactions`: what is staged and not decided.

Room: cli.
"""

from __future__ import annotations

import click

from dejaqueue.cli.connection import connect, json_option, topic_argument, url_option
from dejaqueue.cli.output import print_rows


@click.command(epilog="Example: `dejaq transactions letters`")
@topic_argument
@json_option("Print JSON lines.")
@url_option
def transactions(topic: str, *, as_json: bool, url: str) -> None:
    """List undecided transactions that have something staged in TOPIC, oldest first.

    For each partition: how old it is, in how many milliseconds it is aborted, how many messages
    are staged and how many acked.
    """
    with connect(url) as client:
        print_rows(client.transactions(topic), as_json=as_json)
