"""`dejaq cluster`: which brokers there are, and which of them serves what.

Room: cli.
"""

from __future__ import annotations

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_json, print_rows


@click.group()
def cluster() -> None:
    """Look at the brokers of a cluster."""


@cluster.command()
@click.argument("topic", required=False)
@json_option("Print JSON.")
@url_option
def status(topic: str | None, *, as_json: bool, url: str) -> None:
    """Show the brokers, and how many topics each serves; of one TOPIC who serves it."""
    with connect(url) as client:
        found = client.cluster(topic)
    if as_json:
        print_json(found)
        return
    if not found["nodes"]:
        click.echo("this broker is alone: it serves every topic itself")
        return
    if topic is not None:
        print_rows(found["topics"], as_json=False)
        return
    served = [one["node"] for one in found["topics"]]
    rows = [
        {
            "node": node["node"],
            "topics": served.count(node["node"]),
            "url": node["url"],
            "http_url": node["http_url"],
            "version": node["version"],
            "state": "leaving" if node["leaving"] else "serving",
        }
        for node in found["nodes"]
    ]
    print_rows(rows, as_json=False)
    click.echo(f"coordinator: {found['coordinator']}")
    if waiting := served.count(""):
        click.echo(f"{waiting} topics have no owner at the moment")
