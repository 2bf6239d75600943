"""`dejaq cluster`: which brokers and servers there are, who serves what, one leaves or is rebuilt.

Room: cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, topic_names, url_option
from dejaqueue.cli.output import print_json, print_rows
from dejaqueue.clock import SteadyClock, Wake

if TYPE_CHECKING:
    from dejaqueue import Client

LOOK_MS = 500
AWAY_MS_MAX = 60_000
"""A broker that is asked how it goes may be away for so long: it may be the one that is rebuilt."""


@click.group()
def cluster() -> None:
    """Look at the brokers of a cluster and their servers; have one leave or be rebuilt."""


@cluster.command()
@click.argument("topic", required=False, shell_complete=topic_names)
@json_option("Print JSON.")
@url_option
def status(topic: str | None, *, as_json: bool, url: str) -> None:
    """Show brokers and servers, and how much each serves; of one TOPIC who serves and keeps it."""
    with connect(url) as client:
        found = client.cluster(topic, servers=True)
    if as_json:
        print_json(found)
        return
    if not found["nodes"]:
        click.echo("this broker is alone: it serves every topic itself")
        print_servers(found["servers"])
        return
    if topic is not None:
        print_rows(found["topics"], as_json=False)
        if found["copies"]:
            click.echo()
            print_rows(found["copies"], as_json=False)
        return
    served = [one["node"] for one in found["topics"]]
    rows = [
        {
            "node": node["node"],
            "topics": served.count(node["node"]),
            "url": node["url"],
            "http_url": node["http_url"],
            "version": node["version"],
            "clock": _clock(node.get("clock")),
            "state": _state(node),
        }
        for node in found["nodes"]
    ]
    print_rows(rows, as_json=False)
    click.echo(f"coordinator: {found['coordinator']}")
    if found["astray"]:
        click.echo(f"{found['astray']} topics are astray: see `dejaq cluster check`")
    if waiting := served.count(""):
        click.echo(f"{waiting} topics have no owner at the moment")
    print_servers(found["servers"])


def _clock(clock: dict[str, Any] | None) -> str:
    """How far a broker's clock is ahead of that of the one that was asked."""
    if clock is None or clock["ahead_ms_min"] is None:
        return "?"
    least_ms, most_ms = clock["ahead_ms_min"], clock["ahead_ms_max"]
    return "0 ms" if least_ms == most_ms == 0 else f"{least_ms:+,} to {most_ms:+,} ms"


def _state(node: dict[str, Any]) -> str:
    clock = node.get("clock") or {}
    if clock.get("apart"):
        return "clock is off, lets go" if node["leaving"] else "clock is off, takes nothing"
    if clock.get("comparing"):
        return "compares its clock, takes nothing yet"
    if node.get("short"):
        return "disk is short, producers wait"
    return "leaving" if node["leaving"] else "serving"


def print_servers(servers: list[dict[str, Any]]) -> None:
    """The servers beneath, as far as they are known, and why some are sick."""
    if not servers:
        return
    click.echo()
    names = ("server", "state", "leads", "copies", "lag", "bytes", "version")
    print_rows([{name: one[name] for name in names} for one in servers], as_json=False)
    leader = [one["server"] for one in servers if one["meta_leader"]]
    click.echo(f"meta leader: {', '.join(leader) or 'none'}")
    for one in servers:
        if one["why"]:
            click.echo(one["why"])


@cluster.command()
@click.argument("node")
@json_option("Print JSON.")
@url_option
def remove(node: str, *, as_json: bool, url: str) -> None:
    """Have NODE leave: all that it keeps is copied to others, then it stops.

    For clusters whose brokers run the servers (`--cluster`). A node that is dead for good leaves in
    the same way. At least three others have to be whole.
    """
    _carry_out("remove_node", node, url, as_json=as_json)


@cluster.command()
@click.argument("node", required=False)
@json_option("Print JSON.")
@url_option
def repair(node: str | None, *, as_json: bool, url: str) -> None:
    """Rebuild the copies of NODE from the others; without NODE, of each that is sick.

    A node whose broker runs its server does so by itself as soon as it is named; this is for when
    you know better, or for servers of your own: there sick copies are made anew on another server,
    or you are told what to do.
    """
    if node is None:
        with connect(url) as client:
            servers = client.cluster(servers=True)["servers"]
        sick = [one["server"] for one in servers if one["why"]]
        if not sick:
            click.echo("all copies that are known are whole")
            return
    for one in [node] if node is not None else sick:
        _carry_out("repair_node", one, url, as_json=as_json)


@cluster.command()
@json_option("Print JSON.")
@url_option
def check(*, as_json: bool, url: str) -> None:
    """Show topics that the catalogue or the journals lack; exit status 1 if there are any.

    One of them lacks what the other has where a part of the journals' store was restored from an
    older copy.
    """
    with connect(url) as client:
        found = client._action("check_cluster", {})["astray"]
    if found or as_json:
        print_rows(found, as_json=as_json)
    else:
        click.echo("the catalogue and the journals know the same topics")
    if found:
        raise SystemExit(1)


def _carry_out(name: str, node: str, url: str, *, as_json: bool) -> None:
    """Begin, and say how it goes until it is done. Raises ClickException: it failed."""
    with connect(url) as client:
        found = client._action(name, {"node": node})
        said = ""
        while found["state"] == "working":
            if found["text"] != said and not as_json:
                said = found["text"]
                click.echo(said)
            _pause()
            found = _look(client, name, node)
    if as_json:
        print_json(found)
    if found["state"] != "done":
        raise click.ClickException(found["text"])
    if not as_json:
        click.echo(found["text"])


def _look(client: Client, name: str, node: str) -> dict[str, Any]:
    from dejaqueue.errors import Unavailable

    clock = SteadyClock()
    until_us = clock.now_us() + AWAY_MS_MAX * 1_000
    while True:
        try:
            return client._action("node_progress", {"node": node, "change": name})
        except Unavailable:
            if clock.now_us() > until_us:
                raise
            _pause()


def _pause() -> None:
    clock = SteadyClock()
    clock.wait_until(clock.now_us() + LOOK_MS * 1_000, Wake())
