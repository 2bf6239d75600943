"""Brokers and the servers beneath them, each in a namespace of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dejaqueue
from dejaqueue.cluster.jetstream import read_status
from dejaqueue.cluster.jetstream_settings import Node, journal_url
from dejaqueue.connections.nats.monitor import SystemMonitor
from dejaqueue.connections.nats.url import read_url
from dev.services import Service
from dev.services.etcd import Etcd
from dev.services.postgresql import Postgresql
from dev.services.zookeeper import ZooKeeper
from tests.chaos.clocks import BrokerClock
from tests.chaos.disks import RESERVE_BYTES, BadDisk
from tests.chaos.network import Network
from tests.crash.powercut_engines import put_on
from tests.patience import PATIENCE_SECONDS, until

BROKERS = ("a", "b", "c")
SERVERS = "s"
PORT, HTTP_PORT = 7464, 7465
ROUTE_PORT, NATS_PORT = 7470, 7471
POSTGRES_PORT, ETCD_PORT, ZOOKEEPER_PORT = 5432, 2379, 2181
LEASE_MS = 2_000
SERVE = ("-m", "dejaqueue")


class BrokerMachine:
    """A broker, its namespace and its clock.

    Args:
        program: what Python is to run, before `serve`.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        folder: Path,
        settings: Mapping[str, object],
        program: tuple[str, ...] = SERVE,
    ) -> None:
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.log = self.folder / "broker.log"
        self.clock = BrokerClock(self.folder / "clock")
        self._network, self._program = network, program
        self.address = network.address(name)
        self.url = f"dejaq://{self.address}:{PORT}"
        self._settings = dict(settings)
        self._child: subprocess.Popen[str] | None = None
        self._is_ready = threading.Event()
        self._meant: set[int] = set()
        """Processes that were to end. Who reads of one may be late, when the next one runs."""
        self.faults: list[str] = []

    def start(self) -> None:
        """Start it; whether it serves, `is_ready` says."""
        settings = {"server__host": self.address, "cluster__node": self.name} | self._settings
        variables = {f"DEJAQ_{name.upper()}": str(value) for name, value in settings.items()}
        command, environment = self.command(variables)
        self._is_ready = threading.Event()
        self.clock.restarted()
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*command, "serve", "--json", "--port", str(PORT), "--http-port", str(HTTP_PORT)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self._child, self._is_ready), daemon=True).start()

    def command(self, variables: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """What is run, up to `serve`, and in which environment.

        Args:
            variables: settings of the broker, as its environment has them.
        """
        environment = os.environ | {
            "PYTHONPATH": f"{Path(dejaqueue.__file__).parents[1]}:{Path.cwd()}",
            "PYTHONWARNINGS": "ignore",
        }
        environment |= variables
        environment |= self.clock.environment()
        return [*self._network.inside(self.name), sys.executable, *self._program], environment

    def _read(self, child: subprocess.Popen[str], is_ready: threading.Event) -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                if "url" in json.loads(line):
                    is_ready.set()
        status = child.wait()
        if child.pid not in self._meant:
            self.faults.append(f"broker {self.name} ended by itself, with status {status}")

    @property
    def is_ready(self) -> bool:
        """It serves."""
        return self._is_ready.is_set()

    @property
    def is_running(self) -> bool:
        """Its process is there."""
        return self._child is not None and self._child.poll() is None

    def tell(self, number: int) -> None:
        """To its process."""
        if self._child is not None:
            self._child.send_signal(number)  # one that is gone is let be

    def end(
        self, number: signal.Signals = signal.SIGKILL, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """End it by a signal; one that does not end is killed, which is a fault."""
        child = self._child
        if child is None:
            return
        self._meant.add(child.pid)
        self.tell(number)
        self.tell(signal.SIGCONT)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.faults.append(f"broker {self.name} did not stop within {seconds:g} s")
            child.kill()
            child.wait()


class Backend(ABC):
    """What brokers stand on.

    Attributes:
        name: as in `--backend`.
        ports: of each machine.
        has_disks: brokers, or the server of journals, get disks of their own, if set before the
            start.
        short_bytes: what is left on such a disk that is nearly full.
        resume_seconds_max: deliveries go on within this after a fault has ended.
    """

    name: str
    has_disks = False
    short_bytes: int
    ports: Mapping[str, list[int]]
    resume_seconds_max: float

    @abstractmethod
    def start(self, network: Network, folder: Path) -> None:
        """Start what is no broker."""

    @abstractmethod
    def settings(self, broker: str) -> dict[str, object]:
        """Of a broker."""

    @abstractmethod
    def kill_records(self, topic: str) -> Callable[[], None]:
        """Kill what keeps the journals of a topic; call the answer to have it back."""

    @abstractmethod
    def kill_facts(self) -> Callable[[], None]:
        """Kill what keeps the facts; call the answer to have it back."""

    @abstractmethod
    def disk(self, broker: str) -> BadDisk:
        """The disk on which the journals of a broker are: its own, or the server's."""

    def stop(self) -> None:  # noqa: B027 - not all have something to stop
        """End it."""


class _Far:
    """A server program in another namespace."""

    network: Network
    user: str | None

    def far(self, command: list[str]) -> list[str]:
        """The command, so that it runs there, as the server's user."""
        inside = self.network.inside(SERVERS)
        if self.user is not None:
            inside[-1:] = [f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", "--"]
        return [*inside, *command]


class FarPostgresql(_Far, Postgresql):
    """PostgreSQL in the namespace of servers."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, self.port = network, POSTGRES_PORT
        self.host = network.address(SERVERS)

    def prepare(self) -> None:
        """See Service.prepare."""
        super().prepare()
        with (self.folder / "content" / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.77.0.0/16 trust\n")

    def spawn(self, command: list[str], **given: Any) -> subprocess.Popen[bytes]:
        """See Service.spawn."""
        return super().spawn(self.far(command), **given)

    def _identity(self) -> dict[str, Any]:
        return {}  # setpriv does it, once it is there

    def go_on(self) -> None:
        """Return when it answers, and start it again where its disk made it end: as a supervisor
        does."""

        def answers() -> bool:
            if self._child is None or self._child.poll() is not None:
                self.start()
            return self.is_ready()

        until(answers, "PostgreSQL answers when its disk is well again")


class FarEtcd(_Far, Etcd):
    """etcd in the namespace of servers."""

    user = None

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, self.port = network, ETCD_PORT
        self.host = network.address(SERVERS)

    def spawn(self, command: list[str], **given: Any) -> subprocess.Popen[bytes]:
        """See Service.spawn."""
        return super().spawn(self.far(command), **given)


class FarZooKeeper(_Far, ZooKeeper):
    """ZooKeeper in the namespace of servers, which looks for the end of sessions twice a second."""

    user = None

    def __init__(self, network: Network) -> None:
        super().__init__(tickTime="500")
        self.network, self.port = network, ZOOKEEPER_PORT
        self.host = network.address(SERVERS)

    def spawn(self, command: list[str], **given: Any) -> subprocess.Popen[bytes]:
        """See Service.spawn."""
        return super().spawn(self.far(command), **given)


def _start(server: Service) -> None:
    server.start()


class Servers(Backend):
    """PostgreSQL for journals, etcd for facts, one of each, in one namespace."""

    name = "servers"
    ports = MappingProxyType(
        {**{one: [PORT, HTTP_PORT] for one in BROKERS}, SERVERS: [POSTGRES_PORT, ETCD_PORT]}
    )
    resume_seconds_max = 15.0
    short_bytes = 2 << 20
    far_facts: Callable[[Network], Service] = FarEtcd

    def start(self, network: Network, folder: Path) -> None:
        """See Backend.start."""
        self.facts = self.far_facts(network)
        self.records = FarPostgresql(network)
        if self.has_disks:
            self.records.settings |= {"max_wal_size": "96MB", "min_wal_size": "32MB"}
            self._disk = BadDisk(self.records.folder / "disk", self.records.go_on)
            put_on(self.records, self._disk.mount)
        self.facts.start()
        self.records.start()

    def settings(self, broker: str) -> dict[str, object]:
        """See Backend.settings."""
        return {"journal__url": self.records.url, "cluster__coordinator": self.facts.url}

    def kill_records(self, topic: str) -> Callable[[], None]:
        """See Backend.kill_records."""
        self.records.kill()
        return partial(_start, self.records)

    def kill_facts(self) -> Callable[[], None]:
        """See Backend.kill_facts."""
        self.facts.kill()
        return partial(_start, self.facts)

    def disk(self, broker: str) -> BadDisk:
        """See Backend.disk: one for all brokers."""
        return self._disk

    def stop(self) -> None:
        """See Backend.stop."""
        if hasattr(self, "_disk"):
            self.records.kill()
            self._disk.close()
        for one in ("records", "facts"):
            if hasattr(self, one):
                getattr(self, one).stop()


class ServersZooKeeper(Servers):
    """The same with ZooKeeper for facts."""

    name = "zookeeper"
    ports = MappingProxyType(Servers.ports | {SERVERS: [POSTGRES_PORT, ZOOKEEPER_PORT]})
    far_facts = FarZooKeeper


class Embedded(Backend):
    """JetStream beside each broker, started by it; three copies of everything."""

    name = "embedded"
    ports = MappingProxyType({one: [PORT, HTTP_PORT, ROUTE_PORT, NATS_PORT] for one in BROKERS})
    resume_seconds_max = 30.0
    short_bytes = RESERVE_BYTES // 2

    def start(self, network: Network, folder: Path) -> None:
        """See Backend.start."""
        self._folder, self._network = folder, network
        self._secret = folder / "secret"
        self._secret.write_text("the secret of the chaos\n")
        self._secret.chmod(0o600)
        self._disks: dict[str, BadDisk] = {}
        if self.has_disks:
            self._disks = {name: BadDisk(folder / f"{name}-disk") for name in BROKERS}

    def settings(self, broker: str) -> dict[str, object]:
        """See Backend.settings."""
        places = [f"{name}={self._network.address(name)}:{ROUTE_PORT}" for name in BROKERS]
        return {
            "journal__url": self._queue(broker),
            "cluster__nodes": ",".join(places),
            "cluster__secret_file": self._secret,
            "cluster__reserve_bytes": RESERVE_BYTES,
            # A file system in Python takes its time: what is not about disks has another place.
            **(
                {
                    "journal__mirror": self._folder / broker / "mirror",
                    "cluster__lease_ms": 3 * LEASE_MS,
                }
                if self._disks
                else {}
            ),
        }

    def _queue(self, broker: str) -> Path:
        disk = self._disks.get(broker)
        return (self._folder / broker if disk is None else disk.at) / "queue"

    def disk(self, broker: str) -> BadDisk:
        """See Backend.disk."""
        return self._disks[broker]

    def stop(self) -> None:
        """See Backend.stop."""
        for disk in getattr(self, "_disks", {}).values():
            disk.close()

    def leader(self, stream: str) -> str:
        """Which node leads a stream whose name has this; "" = none says it does."""
        nodes = [Node(n, self._network.address(n), NATS_PORT, ROUTE_PORT) for n in BROKERS]
        secret = self._secret.read_text().strip()
        monitor = SystemMonitor(read_url(journal_url(nodes, nodes[0], 3, secret)))
        try:
            status = read_status(list(BROKERS), monitor.reports())
        finally:
            monitor.close()
        found = [copy for copy in status.copies if copy.is_leader and stream in copy.stream]
        return found[0].node if found else ""

    def kill_server(self, node: str) -> None:
        """Kill the server beside a broker, which starts it again."""
        path = self._queue(node) / "jetstream" / "nats-server.pid"
        with suppress(OSError, ValueError):
            os.kill(int(path.read_text()), signal.SIGKILL)

    def kill_records(self, topic: str) -> Callable[[], None]:
        """See Backend.kill_records: who leads the stream of a partition."""
        self.kill_server(self.leader(topic) or BROKERS[0])
        return lambda: None

    def kill_facts(self) -> Callable[[], None]:
        """See Backend.kill_facts: who leads the bucket."""
        self.kill_server(self.leader("_facts") or BROKERS[0])
        return lambda: None


BACKENDS: dict[str, type[Backend]] = {
    one.name: one for one in (Servers, ServersZooKeeper, Embedded)
}
BOTH = (Servers.name, Embedded.name)
"""What is proved when nobody says which: the third differs from the first in its facts alone."""


def missing(backend: str) -> str:
    """What a backend lacks here; "" = nothing."""
    if backend == Servers.name:
        return Postgresql.missing() or Etcd.missing() or ""
    if backend == ServersZooKeeper.name:
        return Postgresql.missing() or ZooKeeper.missing() or ""
    from dejaqueue.cluster.jetstream import find_program
    from dejaqueue.errors import Refused

    try:
        find_program("")
    except Refused as reason:
        return str(reason)
    return ""
