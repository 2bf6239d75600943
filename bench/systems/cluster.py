"""Three brokers of one cluster as their users run them: `dejaq serve`, three times.

Room: bench. Uses DejaqSystem for the client; what it adds is brokers that die, leave and come back.
Holds: every broker, and every server beside one, is ended by its own process id.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from bench.systems.dejaq import LISTENING, DejaqSystem
from bench.systems.servers import Server, ServerFailed, new_folder
from dejaqueue import Client
from dejaqueue.cli.ports import free_port
from dejaqueue.cluster.embedded import nodes_of
from dejaqueue.cluster.jetstream import ClusterStatus, JetStreamServer
from dejaqueue.cluster.placement import dealt, hashed_slot
from dejaqueue.cluster.secret import FILE
from dejaqueue.errors import Unavailable
from dejaqueue.settings import ClusterSettings

NODES = ("a", "b", "c")
JOINED_SECONDS_MAX = 60.0
FACTS_STREAM = "KV_dejaq_facts"
"""Where brokers with JetStream beside them keep who owns what."""


class ClusterSystem(DejaqSystem):
    """Three brokers, and one client that knows all of them.

    Args:
        journal, coordinator: URLs of servers; without them JetStream runs beside each broker, and
            keeps three copies.
        lease_ms: after so long without a word a broker's partitions go to others; None = as it is
            by default.
    """

    def __init__(
        self, journal: str | None = None, coordinator: str = "", *, lease_ms: int | None = None
    ) -> None:
        super().__init__(journal)
        self._coordinator, self._lease_ms = coordinator, lease_ms
        self._servers: dict[str, Server] = {}
        self._ports: dict[str, int] = {}
        self._places = ""

    @property
    def is_embedded(self) -> bool:
        """True if a JetStream server runs beside each broker."""
        return self._journal is None

    def start(self, folder: Path) -> None:
        """Start the brokers together, connect, and return when all of them are members."""
        self._folder = new_folder(folder, "cluster")
        if self.is_embedded:
            self._places = ",".join(f"{node}=127.0.0.1:{free_port(count=2)}" for node in NODES)
        try:
            with ThreadPoolExecutor(len(NODES)) as threads:
                list(threads.map(self.serve, NODES))
            self.url = "dejaq://" + ",".join(_address(self._servers[node]) for node in NODES)
            self.client = Client(self.url)
            self.wait_for_members(NODES)
        except BaseException:
            self._stop_brokers()
            raise

    def stop(self) -> None:
        """Disconnect, stop the brokers, remove their files. Twice is fine."""
        if self._servers:
            self.client.close()
            self._stop_brokers()

    def _stop_brokers(self) -> None:
        servers, self._servers = list(self._servers.values()), {}
        with ThreadPoolExecutor(len(NODES)) as threads:
            list(threads.map(lambda server: server.stop(), servers))
        if self._folder is not None:
            with suppress(OSError):
                for left in (*self._folder.glob("*/*"), *self._folder.glob("*")):
                    left.rmdir()
                self._folder.rmdir()

    def serve(self, node: str) -> None:
        """Start a broker, again on what it kept."""
        assert self._folder is not None
        folder = self._folder / node
        folder.mkdir(exist_ok=True)
        port = str(self._ports.get(node, 0))
        command = [sys.executable, "-m", "dejaqueue", "serve", "--port", port, "--node", node]
        command += ["--http-port", "0"]
        if self.is_embedded:
            command += ["--data", str(folder / "data"), "--cluster", self._places]
        else:
            command += ["--journal", str(self._journal), "--coordinator", self._coordinator]
            command += ["--set", f"journal.mirror={folder / 'mirror'}"]
        command += ["--set", 'log.levels={"dejaqueue.broker": "debug"}']  # for phases.py
        if self._lease_ms is not None:
            command += ["--set", f"cluster.lease_ms={self._lease_ms}"]
        log_path = folder / "server.log"
        server = Server(folder, command, lambda: bool(LISTENING.search(log_path.read_text())))
        self._servers[node] = server
        self._ports[node] = int(_address(server).rpartition(":")[2])

    def wait_for_members(self, nodes: tuple[str, ...]) -> None:
        """Return when these brokers are members of the cluster, and no others."""

        def are_there() -> bool:
            shown = self.client.cluster()["nodes"]
            return sorted(str(one["node"]) for one in shown) == sorted(nodes)

        _wait(are_there, "members of the cluster")
        if self.is_embedded:
            _wait(lambda: self.status().absent == tuple(n for n in NODES if n not in nodes), "JetS")

    # --- who is what --------------------------------------------------------------------------

    def owner(self, topic: str) -> str:
        """The broker that serves the topic, or most of its partitions."""
        found: Counter[str] = Counter()

        def is_owned() -> bool:
            found.clear()
            found.update(str(one["node"]) for one in self.client.cluster(topic)["topics"])
            return bool(found) and not found[""]

        _wait(is_owned, f"an owner of {topic}")
        return found.most_common(1)[0][0]

    def status(self) -> ClusterStatus:
        """What the servers beside the brokers say of themselves."""
        assert self._folder is not None
        nodes = nodes_of(self._places)
        directory = self._folder / NODES[0] / "data" / "jetstream"
        secret = (directory.parent / FILE).read_text(encoding="utf-8").strip()
        return JetStreamServer(NODES[0], nodes, directory, secret=secret).status()

    def leader(self) -> str:
        """The broker whose server leads the facts that brokers agree on."""
        leading = [
            copy.node
            for copy in self.status().copies
            if copy.stream == FACTS_STREAM and copy.is_leader
        ]
        if not leading:
            raise ServerFailed("nobody leads the facts of the cluster")
        return leading[0]

    def name_for(self, node: str, *, other_than: bool = False) -> str:
        """The name of a topic that will be served by this broker, or by one of the others."""
        slots = ClusterSettings().slots
        owners = dealt(NODES, slots)
        for number in range(1_000):
            name = f"topic-{self._topics}-{number}"
            if (owners[hashed_slot(name, slots)] == node) != other_than:
                self._topics += 1
                return name
        raise AssertionError("no name")

    def broker_pid(self, node: str) -> int:
        """The process of a broker."""
        return self._servers[node].pid

    def server_pid(self, node: str) -> int:
        """The process of the JetStream server beside a broker."""
        assert self._folder is not None
        pid_file = self._folder / node / "data" / "jetstream" / "nats-server.pid"
        return int(pid_file.read_text())

    def log_text(self, node: str) -> str:
        """What a broker has logged since its last start."""
        return self._servers[node].log_text()

    # --- dying and leaving --------------------------------------------------------------------

    def kill(self, node: str, *, with_server: bool) -> None:
        """SIGKILL to a broker, and to the server beside it, as a machine that fails.

        Args:
            with_server: False = what becomes of the server beside it is the system's doing.
        """
        if with_server:
            os.kill(self.server_pid(node), signal.SIGKILL)
        self._servers[node].kill()

    def leave(self, node: str) -> None:
        """SIGTERM: a broker hands over what it has, and ends."""
        self._servers[node].stop(keep_folder=True)


def _address(server: Server) -> str:
    found = LISTENING.search(server.log_text())
    assert found is not None
    return found.group().partition("://")[2]


def _wait(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so; a broker that does not answer says nothing about it."""
    deadline = time.monotonic() + JOINED_SECONDS_MAX
    while True:
        with suppress(Unavailable):
            if is_so():
                return
        if time.monotonic() > deadline:
            raise ServerFailed(f"not within {JOINED_SECONDS_MAX:.0f} s: {what}")
        time.sleep(0.05)
