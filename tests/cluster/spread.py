"""Three brokers with their Flight and HTTP ports in this process, for topics in shards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue import Client
from dejaqueue.broker.broker import Broker
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.cluster.node import Node
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.journal.records.interface import RecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.cutting_proxy import CuttingProxy
from tests.cluster.brokers import Away, Cluster, Stoppable, has_compared
from tests.patience import until

LEASE_MS = 4_000
NAMES = "abc"


class SpreadCluster(Cluster):
    """Brokers that serve; those of NAMES are there from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: dict[str, FlightServer] = {}
        self.http: dict[str, HttpServer] = {}
        self.proxies: dict[str, CuttingProxy] = {}
        for name in NAMES:
            self.start(name)

    def start(
        self, name: str, *, adopts: bool = False, records: RecordStore | None = None
    ) -> Broker:
        """A broker joins, with its ports open."""
        assert not adopts
        assert records is None
        self.coordinators[name] = Away(self.facts.open())
        self.clocks[name] = Stoppable()
        node = Node(name, self.coordinators[name], LEASE_MS, self.clocks[name])
        broker = Broker(BrokerSettings(), store=RecordJournalStore(self.records), node=node)
        broker.start()
        server = FlightServer(broker)
        server.start()
        service = Service(broker, server._gate, lambda: True, forwards=True)
        http = HttpServer(service, "127.0.0.1", 0)
        http.start()
        proxy = CuttingProxy(server.port)  # a server that stops in this process leaves streams open
        node.on_gone = server.forwarding.drop
        node.start(broker, f"dejaq://127.0.0.1:{proxy.port}", f"http://127.0.0.1:{http.port}")
        self.proxies[name] = proxy
        self.nodes[name], self.brokers[name] = node, broker
        self.servers[name], self.http[name] = server, http
        until(lambda: has_compared(node), f"{name} has compared its clock")
        return broker

    def stop(self, name: str) -> None:
        """A broker leaves as it should."""
        self.nodes.pop(name).stop()
        self.servers.pop(name).stop(1.0)  # what is on its way arrives; idle streams stay open
        self.proxies.pop(name).close()
        self.http.pop(name).stop()
        self.brokers.pop(name).stop()

    def client(self, name: str = "a") -> Client:
        """A client that knows one broker at first."""
        return Client(self._address(name), retry_ms_max=20_000)

    def _address(self, name: str) -> str:
        return f"dejaq://127.0.0.1:{self.proxies[name].port}"

    def raw(self, name: str = "a") -> Client:
        """A client that knows nothing of clusters, at one broker."""
        return Client(transport=FlightTransport(self._address(name)), retry_ms_max=20_000)

    def url(self, name: str = "a") -> str:
        """Where a broker's HTTP is."""
        return f"http://127.0.0.1:{self.http[name].port}"

    def shard_owners(self, topic: str) -> list[str]:
        """Which broker serves each shard, in order; "" = nobody."""
        shards = self.brokers["a"].topic(topic).shards
        owners = [[n for n, broker in self.brokers.items() if broker.serves(s)] for s in shards]
        return [found[-1] if found else "" for found in owners]


def shards_of(ids: list[int] | np.ndarray, spread: int = 3) -> list[int]:
    """The shard of each message."""
    return [int(one >> 47) % spread for one in ids]


def batch_of(count: int, first: int = 0, **columns: object) -> pa.RecordBatch:
    """Messages p0, p1, …, with more columns."""
    payloads = [f"p{number}".encode() for number in range(first, first + count)]
    return pa.record_batch({"payload": pa.array(payloads), **columns})
