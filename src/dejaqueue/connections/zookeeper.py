"""Sessions of ZooKeeper: opened, asked within a bounded time, ended, or left to expire.

    zookeeper://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…][/NAMESPACE][?tls=true&ca=FILE&…]

Room: connections. Needs the extra `zookeeper`.
Holds: a call that may have been carried out is not sent again by itself; no password is in any
text of ours. What several requests ask in one call is answered in their order.
See: coordinator/zookeeper.py, which makes facts of it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dejaqueue.connections.extras import load
from dejaqueue.connections.tls import OPTIONS, client_context
from dejaqueue.errors import BadRequest, Refused, ResourceExhausted, Unavailable

PORT = 2181
CONNECT_S = 1.0
"""A call waits so long for a connection that is being made anew."""
ANSWER_S = 3.0
PACKET_BYTES_MAX = 0xFFFFF
"""What a server takes unless its `jute.maxbuffer` says otherwise."""
PACKET_BYTES_SPARE = 8_192
"""Of a packet, for what is not the value: the path, the rights, the counter's change."""
AGAIN: dict[str, Any] = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

Request = Callable[[Any], Any]
"""Takes kazoo's client and gives its promise of an answer."""


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """What a URL says.

    Attributes:
        packet_bytes_max: the servers' `jute.maxbuffer`.
    """

    hosts: str
    namespace: str
    user: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False, default=None)
    packet_bytes_max: int = PACKET_BYTES_MAX


def parse_url(url: str) -> ZooKeeperAddress:
    """The parts of a `zookeeper://` URL. Raises BadRequest."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    known = sorted({*OPTIONS, "jute_maxbuffer"})
    if unknown := sorted(set(options) - set(known)):
        raise BadRequest("coordinator", f"options {', '.join(known)}", unknown[0])
    packet = options.pop("jute_maxbuffer", str(PACKET_BYTES_MAX))
    if not packet.isdecimal() or int(packet) < 2 * PACKET_BYTES_SPARE:
        raise BadRequest("jute_maxbuffer", f"bytes, {2 * PACKET_BYTES_SPARE} or more", packet)
    places = ",".join(_with_port(host) for host in hosts.split(",") if host)
    if not places:
        raise BadRequest("coordinator", "zookeeper://HOST:PORT", f"zookeeper://{parts.path}")
    return ZooKeeperAddress(
        places,
        parts.path.strip("/") or "dejaq",
        unquote(user),
        unquote(password),
        client_context(options, "coordinator"),
        int(packet),
    )


def _with_port(host: str) -> str:
    return host if ":" in host.rpartition("]")[2] else f"{host}:{PORT}"


class ZooKeeperSession:
    """One session with whichever server answers. Any thread may ask.

    Args:
        timeout_ms: the servers end the session when they have not heard of it for so long.
        on_change: called, on a thread that must not wait, when the connection comes or goes.

    Attributes:
        timeout_ms: as the servers granted it, 0 before the first answer. They have limits of
            their own, `minSessionTimeout` and `maxSessionTimeout`.
        is_lost: the session has ended, and what it held has vanished.
    """

    def __init__(
        self,
        address: ZooKeeperAddress,
        timeout_ms: int,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        kazoo = load("kazoo.client", "zookeeper", "zookeeper://")
        self._errors = load("kazoo.exceptions", "zookeeper", "zookeeper://")
        self._address = address
        self.timeout_ms = 0
        self.is_lost = False
        self._up = threading.Event()
        self._on_change = on_change
        rights, login = None, []
        if address.user:
            security = load("kazoo.security", "zookeeper", "zookeeper://")
            rights = [security.make_digest_acl(address.user, address.password, all=True)]
            login = [("digest", f"{address.user}:{address.password}")]
        self._client: Any = kazoo.KazooClient(
            hosts=address.hosts,
            timeout=timeout_ms / 1_000,
            default_acl=rights,
            auth_data=login,
            connection_retry=AGAIN,
            handler=_connecting_threads(address.tls),
        )
        self._client.add_listener(self._changed)
        self._note_timeout(self._client._connection)

    def _note_timeout(self, connection: Any) -> None:
        """Note what the servers grant. kazoo does not tell: it reads for two thirds of it."""
        connect = connection._connect

        def connect_and_note(*arguments: Any) -> Any:
            read_ms, connect_ms = connect(*arguments)
            self.timeout_ms = round(read_ms * 1.5)
            return read_ms, connect_ms

        connection._connect = connect_and_note

    def open(self) -> None:
        """Connect. Raises Unavailable."""
        try:
            self._client.start(timeout=ANSWER_S)
        except self._client.handler.timeout_exception:
            text = f"ZooKeeper does not answer: {self._address.hosts}"
            raise Unavailable(text) from None

    def ask(self, *requests: Request, expects: tuple[type[Exception], ...] = ()) -> list[Any]:
        """The answers to requests, which are sent at once and carried out in their order.

        Args:
            expects: kazoo's errors that are an answer.

        Raises:
            Unavailable: no answer; what the requests were to change is unknown.
            Refused, ResourceExhausted: the servers said so; nothing was changed.
        """
        if not self._up.wait(CONNECT_S):
            raise Unavailable(f"ZooKeeper does not answer: {self._address.hosts}")
        with self._named_errors():
            promises = [request(self._client) for request in requests]
            until_s = time.monotonic() + ANSWER_S
            answers = []
            for promise in promises:
                try:
                    answers.append(promise.get(timeout=max(until_s - time.monotonic(), 0.001)))
                except expects as answer:
                    answers.append(answer)
            return answers

    def change(self, fill: Callable[[Any], None]) -> Any | None:
        """Do several changes as one, or none of them.

        Args:
            fill: adds the changes to kazoo's transaction.

        Returns:
            The answer to the first of them; None if something was not as they need it.

        Raises:
            As `ask`.
        """

        def request(client: Any) -> Any:
            transaction = client.transaction()
            fill(transaction)
            return transaction.commit_async()

        (answers,) = self.ask(request)
        unfit = (
            self._errors.BadVersionError,
            self._errors.NoNodeError,
            self._errors.NodeExistsError,
        )
        followed = (self._errors.RolledBackError, self._errors.RuntimeInconsistency)
        wrong = [one for one in answers if isinstance(one, Exception)]
        causes = [one for one in wrong if not isinstance(one, followed)]
        if any(isinstance(one, unfit) for one in causes):
            return None
        with self._named_errors():
            for one in [*causes, *wrong]:
                raise one
        return answers[0]

    def version(self) -> str:
        """The server's name and version, as far as it tells."""
        if self._address.tls is not None:
            return "ZooKeeper"  # kazoo asks for it without the name that certificates are for
        with contextlib.suppress(self._errors.KazooException, OSError):
            first = str(self._client.command(b"srvr")).partition("\n")[0]
            name, _, version = first.partition(":")
            if name == "Zookeeper version":
                return f"ZooKeeper {version.strip().partition('-')[0]}"
        return "ZooKeeper"

    def end(self) -> None:
        """End the session now: what it held vanishes at once, if a server can be told."""
        with contextlib.suppress(self._errors.KazooException, OSError, AttributeError):
            self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()

    def abandon(self) -> None:
        """Close the connection and tell nobody: what the session holds vanishes when it expires."""
        from kazoo.protocol.connection import _CONNECTION_DROP

        client = self._client
        client._stopped.set()
        client._call(_CONNECTION_DROP, client.handler.async_result())
        with contextlib.suppress(self._errors.KazooException, OSError):
            client._safe_close()
        with contextlib.suppress(Exception):
            client.close()

    def _changed(self, state: str) -> None:
        if state == "CONNECTED":
            self._up.set()
        else:
            self._up.clear()
        if state == "LOST":
            self.is_lost = True
        if self._on_change is not None:
            self._on_change()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Name kazoo's errors in ours."""
        errors = self._errors
        try:
            yield
        except (errors.NoAuthError, errors.AuthFailedError) as error:
            raise Refused(f"ZooKeeper refuses this user: {error!r}") from error
        except getattr(errors, "QuotaExceededError", ()) as error:
            raise ResourceExhausted(f"ZooKeeper has no room: {error!r}", 1_000) from error
        except (errors.KazooException, self._client.handler.timeout_exception) as error:
            raise Unavailable(f"ZooKeeper does not answer: {error!r}") from error


def _connecting_threads(tls: ssl.SSLContext | None) -> Any:
    """kazoo's threads, with connections that have the TLS of our URLs.

    kazoo's own TLS is none of ours: it takes versions that are too old, and leaves a connection
    open whose handshake fails.
    """
    threads = load("kazoo.handlers.threading", "zookeeper", "zookeeper://")

    class Threads(threads.SequentialThreadingHandler):  # type: ignore[misc, name-defined]
        def create_connection(
            self, address: tuple[str, int], hostname: str, timeout: float, **_: object
        ) -> socket.socket:
            connection = socket.create_connection(address, timeout)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    return tls.wrap_socket(connection, server_hostname=hostname)
            except BaseException:
                connection.close()
                raise
            return connection

    return Threads()
