"""A cluster with nothing else installed: JetStream beside each broker keeps journals and facts.

    dejaq serve --data ./a --node a --cluster a=127.0.0.1:7470,b=127.0.0.1:7480,c=127.0.0.1:7490

Room: cluster. Turns settings into servers and URLs; decides nothing else.
Holds: what a URL holds of passwords stays in the settings that the broker gets, and is not printed.
See: jetstream.py; node.py; docs/guides/cluster.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from dejaqueue.access.seal import Seal
from dejaqueue.access.tls import load_papers
from dejaqueue.addresses import is_loopback
from dejaqueue.cluster.jetstream import JetStreamServer
from dejaqueue.cluster.jetstream_settings import Node, NodeTls
from dejaqueue.cluster.key_copy import KeyCopy
from dejaqueue.cluster.secret import COMMAND, machine_secret, read_secret
from dejaqueue.cluster.servers import ServerList, merged, read_addresses
from dejaqueue.cluster.shared_keys import SharedKeys
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.digits import number_of
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.journal.interface import store_path
from dejaqueue.settings import BrokerSettings, ClusterSettings

log = logging.getLogger("dejaqueue.cluster")

FORM = "NODE=HOST:PORT,NODE=HOST:PORT,…"


def nodes_of(text: str) -> list[Node]:
    """The servers of `a=host:7470,b=host:7480`: each takes its port for the others and the next
    one for brokers. Raises BadRequest.

    >>> nodes_of("a=127.0.0.1:7470")
    [Node(name='a', host='127.0.0.1', client_port=7471, route_port=7470)]
    """
    nodes = []
    for part in text.split(","):
        name, equals, place = part.strip().partition("=")
        host, colon, port = place.rpartition(":")
        route_port = number_of(port)
        if not (equals and name and colon and host) or route_port is None:
            raise BadRequest("cluster.nodes", FORM, part)
        if not 1 <= route_port < 65_535:
            raise BadRequest("cluster.nodes", "ports from 1 to 65534", part)
        nodes.append(Node(name, host.strip("[]"), route_port + 1, route_port))
    return nodes


def server_of(settings: BrokerSettings) -> JetStreamServer | None:
    """The server that runs beside this broker, not started yet; None = settings name none.

    Raises:
        BadRequest: the settings do not fit each other. Refused: there is no server program.
    """
    cluster = settings.cluster
    if not cluster.nodes:
        return None
    path = store_path(settings.journal.url)
    if path is None or "://" in str(settings.journal.url):
        raise BadRequest("journal.url", "a directory, with cluster.nodes", settings.journal.url)
    if cluster.coordinator:
        raise BadRequest("cluster.coordinator", "nothing, with cluster.nodes", "a URL")
    directory = path / "jetstream"
    return JetStreamServer(
        cluster.node,
        _known_nodes(cluster, directory),
        directory,
        secret=secret_of(settings),
        tls=_tls(settings),
        reserve_bytes=cluster.reserve_bytes,
    )


def _tls(settings: BrokerSettings) -> NodeTls | None:
    if not settings.cluster.tls_ca:
        return None
    papers = load_papers(settings.server, settings.cluster)
    if not papers.certificate:
        raise BadRequest("cluster.tls_certificate", "a certificate, with cluster.tls_ca", "none")
    return NodeTls(
        *(str(Path(one).absolute()) for one in (papers.ca, papers.certificate, papers.key))
    )


def _known_nodes(cluster: ClusterSettings, directory: Path) -> list[Node]:
    """The nodes that the settings name, those that joined later, and none that left.

    Raises:
        BadRequest. Refused: this node has left.
    """
    settings, said = nodes_of(cluster.nodes), read_addresses(directory)
    own = next((node for node in settings if node.name == cluster.node), None)
    if own is None:
        return settings  # the server says what is wrong
    if cluster.node in said and said[cluster.node].left:
        raise Refused(
            f"node {cluster.node} has left the cluster: to join again, take a new name, or remove "
            f"{directory.parent} and wait five minutes from when it left"
        )
    return merged(settings, said, own)


def list_beside(
    server: JetStreamServer,
    settings: BrokerSettings,
    coordinator: Coordinator,
    on_left: Callable[[], None],
) -> ServerList:
    """What tells this server of the others, not started yet."""
    path = store_path(settings.journal.url)
    assert path is not None
    return ServerList(
        coordinator,
        server.node,
        nodes_of(settings.cluster.nodes),
        path / "jetstream",
        server.use_nodes,
        on_left,
    )


def secret_of(settings: BrokerSettings) -> str:
    """The secret of the cluster: in the file that is named, or of this machine; "" = none.

    Raises:
        BadRequest, Refused: there is none where one is needed; says how to make it.
    """
    cluster = settings.cluster
    if cluster.secret_file:
        return read_secret(cluster.secret_file)
    if not cluster.nodes:
        return ""
    for node in nodes_of(cluster.nodes):
        if not is_loopback(node.host):
            limit = f"a file, since others than this machine reach a node: {COMMAND} on every node"
            raise BadRequest(
                "cluster.secret_file", limit, f"none, and node {node.name} at {node.host}"
            )
    return machine_secret(_data_directory(settings))


def _data_directory(settings: BrokerSettings) -> Path:
    path = store_path(settings.journal.url)
    assert path is not None
    return path


def keys_beside(settings: BrokerSettings, coordinator: Coordinator) -> SharedKeys:
    """The API keys of the cluster; a broker with a data directory keeps a copy of them there."""
    cluster = settings.cluster
    secret = secret_of(settings)
    if not secret:
        log.info("the API keys of the cluster are not sealed: see cluster.secret_file")
    return SharedKeys(
        coordinator,
        cluster.lease_ms,
        seal=Seal(secret) if secret else None,
        reseals=cluster.seal_keys,
        copy=KeyCopy(_data_directory(settings)) if cluster.nodes else None,
    )


def warn_if_plain(settings: BrokerSettings) -> None:
    """Say plainly what others on the network can do with the servers beside brokers."""
    cluster = settings.cluster
    far = [node.host for node in nodes_of(cluster.nodes) if not is_loopback(node.host)]
    if far and not cluster.tls_ca:
        log.warning(
            "the servers of the cluster at %s talk without TLS: messages, passwords and API keys' "
            "digests can be read on the way (cluster.tls_ca, cluster.tls_certificate, "
            "cluster.tls_key)",
            ", ".join(far),
        )


def settings_beside(settings: BrokerSettings, server: JetStreamServer) -> BrokerSettings:
    """The settings of a broker that keeps journals and facts on this server."""
    path = store_path(settings.journal.url)
    assert path is not None
    mirror = settings.journal.mirror or str(path / "mirror")
    journal = settings.journal.model_copy(update={"url": server.url, "mirror": mirror})
    cluster = settings.cluster.model_copy(update={"coordinator": server.url})
    return settings.model_copy(update={"journal": journal, "cluster": cluster})
