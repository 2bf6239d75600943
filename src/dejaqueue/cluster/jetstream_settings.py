"""The settings of the NATS server beside a broker, as the text of its configuration file.

Room: cluster.
Holds: acknowledged means synced (`sync_interval: always`); nothing is open to others than this
machine unless a node's host says so. All nodes have the same users, whose passwords come from the
secret of the cluster: nobody computes them without it.
See: jetstream.py; docs/guides/choosing-a-journal.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlencode

from dejaqueue.errors import BadRequest

PAYLOAD_BYTES_MAX = 8 << 20
USER, SYSTEM_USER, ROUTE_USER = "dejaq", "dejaq-system", "dejaq-route"
NAME_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class Node:
    """One server of the cluster.

    Attributes:
        name: unique in the cluster; letters, digits, - and _.
        host: address that the others reach it at, and that it listens on.
        client_port, route_port: for clients, and for the other servers.
    """

    name: str
    host: str
    client_port: int
    route_port: int


@dataclass(frozen=True, slots=True)
class NodeTls:
    """Paths of PEM files: who signs the nodes' certificates, and this node's own with its key."""

    ca: str
    certificate: str
    key: str


def check_nodes(node: str, nodes: Sequence[Node], secret: str) -> Node:
    """The node of that name. Raises BadRequest: the nodes cannot be a cluster."""
    names = [one.name for one in nodes]
    for one in nodes:
        if not one.name or not set(one.name) <= NAME_LETTERS or len(one.name) > 60:
            raise BadRequest("cluster.nodes", "names of 1 to 60 letters, digits, - and _", one.name)
    if not secret:
        raise BadRequest("cluster.secret", "a secret that the servers share", "none")
    if len(set(names)) < len(names):
        raise BadRequest("cluster.nodes", "each name once", ", ".join(names))
    if node not in names:
        raise BadRequest("cluster.node", f"one of {', '.join(names)}", node)
    return nodes[names.index(node)]


def password(secret: str, user: str) -> str:
    """A user's password: differs from the others', and does not give the secret away."""
    return hashlib.sha256(f"dejaq jetstream {user}\n{secret}".encode()).hexdigest()[:40]


def settings_text(
    node: Node,
    nodes: Sequence[Node],
    directory: Path,
    secret: str,
    tls: NodeTls | None = None,
    cluster: str = "dejaq",
) -> str:
    """The configuration file.

    Args:
        directory: where the server keeps its streams.
        secret: of the cluster; the users' passwords come from it.
        tls: None = in plain text; otherwise brokers and other servers have to show a certificate.
    """

    def quoted(text: str) -> str:
        return json.dumps(str(text))

    def user(name: str) -> str:
        return f"{{ user: {quoted(name)}, password: {quoted(password(secret, name))} }}"

    def secured(indent: str) -> list[str]:
        if tls is None:
            return []
        files = {"cert_file": tls.certificate, "key_file": tls.key, "ca_file": tls.ca}
        words = [f"{name}: {quoted(path)}" for name, path in files.items()]
        return [f"{indent}tls {{ {', '.join(words)}, verify: true, timeout: 5 }}"]

    lines = [
        "# Written by DejaQ at each start; changes are lost.",
        f"server_name: {quoted(node.name)}",
        f"listen: {quoted(f'{node.host}:{node.client_port}')}",
        f"max_payload: {PAYLOAD_BYTES_MAX}",
        "max_pending: 134217728",
        'write_deadline: "10s"',
        "jetstream {",
        f"  store_dir: {quoted(str(directory))}",
        # A word, not a duration: what is acknowledged is on the disk.
        "  sync_interval: always",
        # Left to itself the server stops at three quarters of what was free when it started, and
        # drops out of a stream for good. How much room there is, disk.py looks at.
        "  max_file_store: 1PB",
        "}",
        "accounts {",
        f"  DEJAQ {{ jetstream: enabled, users: [ {user(USER)} ] }}",
        f"  SYS {{ users: [ {user(SYSTEM_USER)} ] }}",
        "}",
        "system_account: SYS",
        *secured(""),
    ]
    if len(nodes) > 1:
        login = f"{ROUTE_USER}:{password(secret, ROUTE_USER)}"
        routes = [
            quoted(f"nats://{login}@{one.host}:{one.route_port}") for one in nodes if one != node
        ]
        lines += [
            "cluster {",
            f"  name: {quoted(cluster)}",
            f"  listen: {quoted(f'{node.host}:{node.route_port}')}",
            f"  authorization {user(ROUTE_USER)}",
            "  no_advertise: true",
            *secured("  "),
            f"  routes: [ {', '.join(routes)} ]",
            "}",
        ]
    return "\n".join(lines) + "\n"


def journal_url(
    nodes: Sequence[Node], node: Node, replicas: int, secret: str, tls: NodeTls | None = None
) -> str:
    """The URL of a journal on these servers, its own node's first. It holds passwords."""
    ordered = [node, *(one for one in nodes if one != node)]
    places = ",".join(f"{one.host}:{one.client_port}" for one in ordered)
    login = f"{USER}:{password(secret, USER)}"
    system = f"{SYSTEM_USER}:{password(secret, SYSTEM_USER)}"
    files = "" if tls is None else "&" + urlencode(asdict(tls))
    return f"nats://{login}@{places}?replicas={replicas}&system={system}{files}"
