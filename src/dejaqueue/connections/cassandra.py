"""A session with Cassandra: what it answers in our errors, nothing sent twice, settings looked at.

Room: connections. Needs the extra `cassandra`.
Holds: the driver tries no statement again by itself. A server that acknowledges before its commit
log is synced is refused. With TLS nothing is said to a server before its certificate, which has to
name the address that it is reached at, was checked.
See: journal/records/cassandra.py; docs/guides/choosing-a-journal.md.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dejaqueue.connections.tls import OPTIONS, client_context
from dejaqueue.errors import BadRequest, Refused, Unavailable

log = logging.getLogger("dejaqueue.connections")

TIMEOUT_S = 10.0
AGAIN_S = 0.5
"""A server that was lost is looked for so often."""
PORT = 9042
PARAMETERS = ("replicas", *OPTIONS)
SYNCS = ("batch", "group")
"""Settings of `commitlog_sync` with which acknowledged is synced."""


@dataclass(frozen=True, slots=True)
class CassandraUrl:
    """A URL in pieces.

    Attributes:
        hosts: some of the nodes; the driver learns of the others, by their addresses.
        port: the same on all nodes.
        user, password: "" = none.
        keyspace: in small letters, as the server has it.
        replicas: for a keyspace that is made.
        tls: how the nodes are known, and what is shown to them; None = in plain text.
    """

    hosts: tuple[str, ...]
    port: int = PORT
    user: str = ""
    password: str = field(default="", repr=False)
    keyspace: str = "dejaq"
    replicas: int = 1
    tls: ssl.SSLContext | None = field(default=None, compare=False, repr=False)


class CassandraSession:
    """A session; any thread may use it.

    Attributes:
        keyspace: its name, made if it is not there.
        summary: the server's name and version.
    """

    def __init__(self, url: str) -> None:
        """Connect and check the servers.

        Args:
            url: see `read_url`.

        Raises:
            BadRequest: the url. Refused: settings that lose what was acknowledged. Unavailable.
        """
        address = read_url(url)
        self.keyspace = address.keyspace
        try:
            from cassandra import ConsistencyLevel
            from cassandra.auth import PlainTextAuthProvider
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
            from cassandra.policies import (
                ConstantReconnectionPolicy,
                FallthroughRetryPolicy,
                RoundRobinPolicy,
            )
        except ImportError as error:
            raise Refused(
                "cassandra:// needs the extra: pip install 'dejaqueue[cassandra]'"
            ) from error

        profile = ExecutionProfile(
            load_balancing_policy=RoundRobinPolicy(),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=ConsistencyLevel.QUORUM,
            serial_consistency_level=ConsistencyLevel.SERIAL,
            request_timeout=TIMEOUT_S,
        )
        self._serial = ConsistencyLevel.SERIAL
        login = PlainTextAuthProvider(address.user, address.password) if address.user else None
        self._cluster = Cluster(
            address.hosts,
            port=address.port,
            auth_provider=login,
            # Its `check_hostname` makes the driver give the node's address to each handshake.
            ssl_context=address.tls,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            reconnection_policy=ConstantReconnectionPolicy(AGAIN_S, None),
            connect_timeout=5,
            control_connection_timeout=5,
        )
        self._prepared: dict[str, Any] = {}
        self.summary = "cassandra"
        try:
            self._session = self.answer(self._cluster.connect)
            self._check()
            self._make_keyspace(address.replicas)
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        (row,) = self.answer(
            lambda: self._session.execute("SELECT release_version FROM system.local")
        )
        self.summary = f"cassandra {row.release_version}"
        asked = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'"
        for host in self._cluster.metadata.all_hosts():
            try:
                (row,) = self.answer(lambda host=host: self._session.execute(asked, host=host))
            except (Refused, ValueError):
                log.warning(
                    "%s on %s does not tell its settings: make sure that it has `commitlog_sync: "
                    "batch`, or what is acknowledged may be lost",
                    self.summary,
                    host,
                )
                continue
            if row.value not in SYNCS:
                raise Refused(
                    f"{self.summary} on {host} has commitlog_sync {row.value}, so that it may lose "
                    f"what it acknowledged; set it to batch"
                )

    def _make_keyspace(self, replicas: int) -> None:
        self.change(
            f"CREATE KEYSPACE IF NOT EXISTS {self.keyspace} WITH replication = "
            f"{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
        )

    def change(self, statement: str) -> None:
        """Change the schema."""
        self.answer(lambda: self._session.execute(statement))

    def run(self, statement: str, values: Sequence[object] = (), *, serial: bool = False) -> Any:
        """Run a statement, prepared once; its result.

        Args:
            serial: read what every acknowledged compare-and-set left.

        Raises:
            Unavailable: no answer, the outcome is unknown. Refused.
        """

        def call() -> Any:
            bound = self._statement(statement).bind(values)
            if serial:
                bound.consistency_level = self._serial
            return self._session.execute(bound)

        return self.answer(call)

    def run_together(self, statements: Sequence[tuple[str, Sequence[object]]]) -> Any:
        """Run statements of one partition as one batch; its result."""
        from cassandra.query import BatchStatement, BatchType

        def call() -> Any:
            batch = BatchStatement(BatchType.UNLOGGED)
            for statement, values in statements:
                batch.add(self._statement(statement), values)
            return self._session.execute(batch)

        return self.answer(call)

    def _statement(self, text: str) -> Any:
        statement = self._prepared.get(text)
        if statement is None:
            statement = self._prepared[text] = self._session.prepare(text)
        return statement

    def answer(self, call: Any) -> Any:
        """Call, and name the driver's errors in ours. Raises Unavailable, Refused."""
        import cassandra
        from cassandra.cluster import NoHostAvailable
        from cassandra.connection import ConnectionException

        unknown = (
            cassandra.OperationTimedOut,
            cassandra.RequestExecutionException,
            NoHostAvailable,
            ConnectionException,
            OSError,
        )
        try:
            return call()
        except unknown as error:
            raise Unavailable(f"{self.summary}: {type(error).__name__}: {error}") from error
        except cassandra.DriverException as error:
            if "shut down" in str(error) or "shutdown" in str(error):
                raise Unavailable(f"{self.summary}: the session is closed") from error
            raise Refused(f"{self.summary}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close; twice is fine."""
        self._cluster.shutdown()


def read_url(url: str) -> CassandraUrl:
    """Read `cassandra://[user:password@]host[:port],…/keyspace[?replicas=1…9&tls=true&ca=FILE…]`.

    TLS is used with `tls=true`, or one of the files `ca`, `certificate`, `key`.

    Raises:
        BadRequest: naming the part that is wrong.
    """
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    replicas = query.get("replicas", "1")
    keyspace = parts.path.strip("/") or "dejaq"
    shown = f"{parts.scheme}://{places}{parts.path}"
    if parts.scheme != "cassandra" or not places:
        raise BadRequest("url", "cassandra://host:port,host:port/keyspace", shown)
    for name in query:
        if name not in PARAMETERS:
            raise BadRequest("url", f"of the parameters only {', '.join(PARAMETERS)}", name)
    if not replicas.isdecimal() or not 1 <= int(replicas) <= 9:
        raise BadRequest("replicas", "1 to 9", replicas)
    if not keyspace.replace("_", "").isalnum() or not keyspace[0].isalpha() or len(keyspace) > 48:
        raise BadRequest("keyspace", "1 to 48 letters, digits and _, a letter first", keyspace)
    user, _, password = login.partition(":")
    hosts, ports = [], set()
    for place in places.split(","):
        host, _, port = place.partition(":")
        hosts.append(host)
        ports.add(port or str(PORT))
    if len(ports) > 1 or not all(port.isdecimal() for port in ports) or not all(hosts):
        raise BadRequest("url", "host:port, the same port for all hosts", shown)
    return CassandraUrl(
        hosts=tuple(hosts),
        port=int(ports.pop()),
        user=unquote(user),
        password=unquote(password),
        keyspace=keyspace.lower(),
        replicas=int(replicas),
        tls=client_context(query, "url"),
    )
