"""What `dejaq doctor` asks a running broker: clocks, versions, keys, and topics that look odd.

Room: cli. Talks to it through the public client.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dejaqueue.findings import Finding, fine, hurts, look
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from dejaqueue import Client
    from dejaqueue.settings import BrokerSettings


def check_ports(settings: BrokerSettings) -> Iterator[Finding]:
    """Whether a broker that is started now gets its ports; for where none answers."""
    host = settings.server.host
    for name, port in (("port", settings.server.port), ("http_port", settings.server.http_port)):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((host.strip("[]"), port))
            except OSError as error:
                text = f"server.{name} {port} of {host} cannot be had: {error.strerror}"
                yield hurts("ports", text, f"ss -ltnp 'sport = :{port}'")
            else:
                yield fine("ports", f"server.{name} {port} of {host} is free")


def check_broker(client: Client, url: str) -> Iterator[Finding]:
    """What a broker that answers says of itself; raises what its calls raise."""
    from dejaqueue.errors import NotAllowed

    yield fine("broker", f"answers at {url}")
    try:
        yield from check_nodes(client.cluster())
        for topic in client.topics():
            for warning in topic.warnings():
                yield look("topic", f"{topic.name}: {warning}", f"dejaq topic alter {topic.name}")
    except NotAllowed as refused:
        text = f"it does not let this key look: {refused}"
        yield look("broker", text, "DEJAQ_API_KEY of a key with the role observe")


def check_nodes(cluster: dict[str, Any]) -> Iterator[Finding]:
    """Brokers of a cluster whose clocks or versions differ, and topics that nobody serves.

    Args:
        cluster: as `Client.cluster` answers.
    """
    nodes = cluster["nodes"]
    for node in nodes:
        clock = node.get("clock") or {}
        if clock.get("apart"):
            text = f"the clock of {node['node']} is off: it takes no topics"
            yield hurts("clock", text, f"on {node['node']}: chronyc makestep")
    versions = sorted({str(node["version"]) for node in nodes})
    if len(versions) > 1:
        text = f"brokers of versions {', '.join(versions)}: fine while they are upgraded"
        yield look("versions", text, "dejaq cluster show")
    elif versions and versions != [__version__]:
        text = f"the brokers are of version {versions[0]}, this command of {__version__}"
        yield look("versions", text, f"pip install dejaqueue=={versions[0]}")
    alone = [topic["topic"] for topic in cluster["topics"] if not topic["node"]]
    if alone:
        text = f"nobody serves {', '.join(alone[:5])} at the moment"
        yield hurts("cluster", text, "dejaq cluster show")
    if nodes:
        yield fine("cluster", f"{len(nodes)} brokers, {len(cluster['topics'])} topics")
