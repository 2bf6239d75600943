"""What each NATS server says of its own copies: settings, streams, how many records, gaps.

Room: connections.
Holds: every server is asked itself; the leader of a stream does not know what its followers lost.
See: connection.py; journal/records/nats/watch.py judges what is told.

Asked through the system account where the URL names its user, otherwise on the monitoring ports.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import HTTPS, MONITOR_PORT, NatsUrl
from dejaqueue.errors import InternalError, Unavailable

HTTP_TIMEOUT_S = 3.0
ALL_ACCOUNTS = 1_000_000
PING = "$SYS.REQ.SERVER.PING."


@dataclass(frozen=True, slots=True)
class Copy:
    """A stream as one server has it.

    Attributes:
        leader: who leads the stream, as this server believes; "" = it knows of none.
        followers: names of the other servers that should have it, as the leader says; empty on
            the others.
        lags: of the followers, how many operations each is behind.
    """

    server: str
    stream: str
    messages: int
    first: int
    last: int
    byte_count: int
    leader: str
    followers: tuple[str, ...]
    lags: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What one server says of itself.

    Attributes:
        sync_always: True if it acknowledges only what it has synced.
        is_off: JetStream does not run there, or has stopped.
        run: changes when the server is started again.
        cluster_size: how many servers there should be, as it knows; 0 = it is alone.
    """

    server: str
    version: str
    sync_always: bool
    is_off: bool
    copies: tuple[Copy, ...]
    meta_leader: str
    run: str = ""
    cluster_size: int = 0


class Monitor(Protocol):
    """Asks all servers."""

    def reports(self) -> list[ServerReport]:
        """The reports of those that answered, sorted by name; none answered = empty."""
        ...

    def close(self) -> None:
        """Release everything; twice is fine."""
        ...


def open_monitor(url: NatsUrl, connection: NatsConnection) -> Monitor:
    """The monitor that the URL asks for."""
    if url.system_user:
        return SystemMonitor(url)
    return HttpMonitor(url.monitors, connection, url.tls)


class HttpMonitor:
    """Asks the monitoring port of each server.

    Args:
        monitors: see NatsUrl; empty = a port of each server that the connection knows of.
        tls: for those with https://; None = as the system knows servers.
    """

    def __init__(
        self,
        monitors: Sequence[str],
        connection: NatsConnection | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._monitors, self._connection, self._tls = tuple(monitors), connection, tls

    def reports(self) -> list[ServerReport]:
        """The reports of the servers whose monitoring port answered."""
        found: dict[str, ServerReport] = {}
        for place in self._places():
            try:
                facts = self._get(place, "varz")
                told = self._get(place, "jsz?accounts=1&streams=1&config=1")
            except (OSError, ValueError):
                continue
            report = read_report(str(facts.get("server_name", place)), facts, told)
            found[report.server] = report
        return [found[name] for name in sorted(found)]

    def _places(self) -> tuple[str, ...]:
        if self._monitors or self._connection is None:
            return self._monitors
        hosts = [place.rpartition(":")[0] for place in self._connection.addresses]
        return tuple(dict.fromkeys(f"{host}:{MONITOR_PORT}" for host in hosts))

    def _get(self, place: str, path: str) -> dict[str, Any]:
        url = f"{place}/{path}" if place.startswith(HTTPS) else f"http://{place}/{path}"
        context = self._tls if place.startswith(HTTPS) else None
        with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S, context=context) as answer:
            told: dict[str, Any] = json.load(answer)
            return told

    def close(self) -> None:
        """There is nothing to release."""


class SystemMonitor:
    """Asks all servers at once through the system account."""

    WAIT_S = 1.0

    def __init__(self, url: NatsUrl) -> None:
        self._url = url
        self._connection: NatsConnection | None = None

    def reports(self) -> list[ServerReport]:
        """The reports of the servers that answered within a second of the one before."""
        asked = {"accounts": True, "streams": True, "config": True, "limit": ALL_ACCOUNTS}
        found: dict[str, ServerReport] = {}
        try:
            for told in self._ask("JSZ", asked):
                server = told.get("server", {})
                report = read_report(str(server.get("name", "")), server, told.get("data", {}))
                found[report.server] = report
        except Unavailable:
            pass  # who did not answer is not in it
        return [found[name] for name in sorted(found)]

    def report_of(self, name: str) -> ServerReport:
        """What one server says of itself, without its copies. Raises Unavailable: it says nothing.

        Cost: one small message; servers of other names do not answer.
        """
        asked = json.dumps({"config": True, "server_name": name}).encode()
        for reply in self._connected().replies(PING + "JSZ", asked, self.WAIT_S):
            told = json.loads(reply.content)
            server = told.get("server", {})
            if server.get("name") == name:  # names that begin so may answer, too
                return read_report(name, server, told.get("data", {}))
        raise InternalError("replies end by an error only")

    def _connected(self) -> NatsConnection:
        if self._connection is None or not self._connection.is_connected:
            self.close()
            self._connection = NatsConnection(self._url, as_system=True)
        return self._connection

    def _ask(self, what: str, asked: object) -> list[dict[str, Any]]:
        connection = self._connected()
        told: list[dict[str, Any]] = []
        sizes = [0]
        try:
            content = json.dumps(asked).encode()
            for reply in connection.replies(PING + what, content, self.WAIT_S):
                told.append(json.loads(reply.content))
                # Servers join and leave: the URL may name others than there are.
                sizes.append(_cluster_size(told[-1].get("data") or {}))
                if len(told) >= (max(sizes) or len(self._url.servers)):
                    break
        except Unavailable:
            pass  # no more came
        return told

    def close(self) -> None:
        """Close the connection; twice is fine."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def read_report(server: str, facts: dict[str, Any], told: dict[str, Any]) -> ServerReport:
    """A report from a server's own facts and its answer to `jsz`."""
    accounts = told.get("account_details") or ()
    copies = [
        _copy(server, one) for account in accounts for one in account.get("stream_detail", ())
    ]
    config = told.get("config") or {}
    return ServerReport(
        server=server,
        version=str(facts.get("version") or facts.get("ver") or ""),
        sync_always=bool(config.get("sync_always")),
        is_off=bool(told.get("disabled")) or not config,
        copies=tuple(copies),
        meta_leader=str((told.get("meta_cluster") or {}).get("leader", "")),
        run=str(told.get("server_id", "")),
        cluster_size=_cluster_size(told),
    )


def _cluster_size(told: dict[str, Any]) -> int:
    return int((told.get("meta_cluster") or {}).get("cluster_size", 0))


def _copy(server: str, stream: dict[str, Any]) -> Copy:
    state, cluster = stream.get("state") or {}, stream.get("cluster") or {}
    # A server without others leads alone. One that knows of no leader leaves the name out.
    leader = str(cluster.get("leader", "")) if cluster else server
    followers = cluster.get("replicas") or () if leader == server else ()
    return Copy(
        server=server,
        stream=str(stream.get("name", "")),
        messages=int(state.get("messages", 0)),
        first=int(state.get("first_seq", 0)),
        last=int(state.get("last_seq", 0)),
        byte_count=int(state.get("bytes", 0)),
        leader=leader,
        followers=tuple(str(one.get("name", "")) for one in followers),
        lags=tuple(int(one.get("lag", 0)) for one in followers),
    )


def lags_of(copies: Iterable[Copy]) -> dict[tuple[str, str], int]:
    """(stream, server) -> how many operations it is behind, as the stream's leader says.

    A server that was cut off, or could not write, may still believe that it leads: what is worse
    of what two leaders say counts.
    """
    lags: dict[tuple[str, str], int] = {}
    for copy in copies:
        if copy.leader != copy.server:
            continue
        told = zip((copy.server, *copy.followers), (0, *copy.lags), strict=True)
        for server, lag in told:
            lags[copy.stream, server] = max(lag, lags.get((copy.stream, server), 0))
    return lags
