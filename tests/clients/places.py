"""Where a topic can be served other than by one broker: real brokers as processes, all of them.

with BrokersOnRedis(folder, redis_url) as place: ...    # three, with one server beneath
with Processes(folder) as place: ...               # dejaq serve --processes 4
"""

from __future__ import annotations

import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from dejaqueue import Client, Tls
from dejaqueue.errors import TryLater
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_processes_kill import children_of, is_gone
from tests.patience import until
from tests.server_fixtures import served

LEASE_MS = 4_000
NODES = ("a", "b", "c")
PROCESSES = 4
ESTABLISHED = "01"


class Place(ABC):
    """Brokers of one cluster, which have names.

    Attributes:
        entry: the broker that a client begins at; "" = nobody knows.
        nodes: all brokers, that of `entry` first.
        tls, api_key: what our own client needs.
    """

    entry: str
    nodes: tuple[str, ...]
    tls: Tls | None = None
    api_key: str | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """All addresses; the first one is that of `entry`."""

    @property
    def _scheme(self) -> str:
        return "dejaq" if self.tls is None else "dejaqs"

    @property
    def entry_url(self) -> str:
        """That of `entry` alone."""
        return self.url.partition(",")[0]

    @abstractmethod
    def start(self) -> None:
        """Return when all brokers serve."""

    @abstractmethod
    def end(self) -> None:
        """Kill what is left."""

    @abstractmethod
    def leave(self, node: str) -> None:
        """A broker stops as it should. Processes come back by themselves."""

    @abstractmethod
    def die(self, node: str) -> None:
        """A broker is killed. Processes come back by themselves."""

    @abstractmethod
    def pid(self, node: str) -> int:
        """The process of a broker."""

    @abstractmethod
    def come_back(self) -> None:
        """Brokers that ended are started again."""

    @property
    @abstractmethod
    def frees_topics(self) -> bool:
        """Whether others take the topics of a broker that stands still."""

    @property
    @abstractmethod
    def ports(self) -> tuple[int, ...]:
        """Those of all brokers."""

    def is_written_to(self) -> bool:
        """Whether something waits to be read by a broker: it stands still."""
        ports = {f"{port:04X}" for port in self.ports}
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, _, _, queues = line.split()[:5]
                if local.rpartition(":")[2] in ports and queues.rpartition(":")[2] != "0" * 8:
                    return True
        return False

    def client(self, retry_ms_max: int = 30_000) -> Client:
        """Our client, which may do everything."""
        return Client(self.url, retry_ms_max=retry_ms_max, tls=self.tls, api_key=self.api_key)

    def freeze(self, node: str) -> int:
        """A broker stands still, and its connections stay; its process."""
        pid = self.pid(node)
        os.kill(pid, signal.SIGSTOP)
        return pid

    def thaw(self, pid: int) -> None:
        """It goes on, if it was not killed."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def owners(self, topic: str) -> list[str]:
        """Which broker serves each shard of a topic; "" = nobody, or none that tells it."""
        with suppress(TryLater), self.client() as client:
            return [one["node"] or "" for one in client.cluster(topic)["topics"]]
        return [""]


class BrokersOnRedis(Place):
    """Three `dejaq serve` that have one server of journals and facts.

    Args:
        settings: that they have besides.
        tls: how our own client gets to them, where they have certificates.
    """

    def __init__(
        self, folder: Path, server: str, tls: Tls | None = None, **settings: object
    ) -> None:
        self.tls = tls
        self._brokers = {
            node: BrokerProcess(
                server,
                folder / f"{node}.log",
                cluster__coordinator=server,
                cluster__node=node,
                cluster__lease_ms=LEASE_MS,
                **settings,
            )
            for node in NODES
        }
        self.nodes, self.entry = NODES, NODES[0]

    @property
    def frees_topics(self) -> bool:
        """See Place."""
        return True

    @property
    def ports(self) -> tuple[int, ...]:
        """See Place."""
        each = ((one.port, one.http_port) for one in self._brokers.values())
        return tuple(port for both in each for port in both)

    @property
    def url(self) -> str:
        """See Place."""
        return f"{self._scheme}://" + ",".join(
            f"127.0.0.1:{one.port}" for one in self._brokers.values()
        )

    def start(self) -> None:
        """See Place."""
        self.come_back()

    def end(self) -> None:
        """See Place."""
        for broker in self._brokers.values():
            broker.kill()

    def leave(self, node: str) -> None:
        """See Place."""
        assert self._brokers[node].stop() == 0

    def die(self, node: str) -> None:
        """See Place."""
        self._brokers[node].kill()

    def pid(self, node: str) -> int:
        """See Place."""
        return self._brokers[node].pid

    def come_back(self) -> None:
        """See Place."""
        away = [broker for broker in self._brokers.values() if not broker.is_up]
        with ThreadPoolExecutor(len(self._brokers)) as starting:
            list(starting.map(BrokerProcess.start, away))

    def lanes(self) -> int:
        """Connections to the HTTP port of `entry`: nobody asks anything else there."""
        port, found = f":{self._brokers[self.entry].http_port:04X}", 0
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, _, remote, state = line.split()[:4]
                found += remote.endswith(port) and state == ESTABLISHED
        return found


class Processes(Place):
    """`dejaq serve --processes 4`, which starts those again that have ended.

    Args:
        settings, tls: as of BrokersOnRedis.
    """

    def __init__(self, folder: Path, tls: Tls | None = None, **settings: object) -> None:
        self.tls = tls
        self._broker = BrokerProcess(
            folder / "data", folder / "broker.log", server__processes=PROCESSES, **settings
        )
        self.nodes = tuple(f"process-{number + 1}" for number in range(PROCESSES))
        self.entry = ""

    @property
    def frees_topics(self) -> bool:
        """See Place. It has the locks of its logs until it has ended."""
        return False

    @property
    def ports(self) -> tuple[int, ...]:
        """See Place."""
        return (self._broker.port, self._broker.http_port)

    @property
    def url(self) -> str:
        """See Place."""
        return f"{self._scheme}://127.0.0.1:{self._broker.port}"

    def start(self) -> None:
        """See Place."""
        self._broker.start()

    def end(self) -> None:
        """See Place."""
        self._broker.kill()

    def leave(self, node: str) -> None:
        """See Place."""
        self._end(node, signal.SIGTERM)

    def die(self, node: str) -> None:
        """See Place."""
        self._end(node, signal.SIGKILL)

    def come_back(self) -> None:
        """See Place. Their parent has done it."""

    def pid(self, node: str) -> int:
        """See Place. Their parent has told each of them its name."""
        told = json.dumps({"cluster.node": node})[1:-1].encode()
        found: list[int] = []

        def is_found() -> bool:
            with suppress(OSError):  # one ended since it was listed
                found.extend(
                    child
                    for child in children_of(self._broker.pid)
                    if told in Path(f"/proc/{child}/environ").read_bytes()
                )
            return bool(found)

        until(is_found, f"{node} runs")
        return found[0]

    def _end(self, node: str, number: signal.Signals) -> None:
        victim = self.pid(node)
        os.kill(victim, number)
        until(lambda: is_gone(victim), f"{node} has ended")


def brokers_on_redis(folder: Path) -> Iterator[Place]:
    """For a fixture to yield from: three brokers, and a server beneath of their own."""
    for server in served("redis"):
        with BrokersOnRedis(folder, server.url) as place:
            yield place
