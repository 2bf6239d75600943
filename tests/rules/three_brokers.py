"""Three brokers in this process, with their Flight ports and one clock, which is moved by hand.

Records and facts are kept in memory, so that a cluster costs little; what they are on servers is
tried in tests/conformance. Time that is elapsed (leases of memberships, pauses) is the machine's.
Not covered: clocks that differ (tests/cluster/test_clocks.py), HTTP.
"""

from __future__ import annotations

import queue
from contextlib import suppress

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.clock import SteadyClock
from dejaqueue.cluster.node import Node
from dejaqueue.cluster.placement import dealt
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import DejaQError
from dejaqueue.flight.server import FlightServer
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.settings import BrokerSettings, DispatchSettings
from dejaqueue.testing.cutting_proxy import CuttingProxy
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.cluster.brokers import Away
from tests.patience import until
from tests.rules.broker_fixture import noting, settle
from tests.rules.one_clock import OneClock

NAMES = "abc"
LEASE_MS = 10_000
"""A busy machine renews in time; a broker that is killed here is no member at once."""


class ThreeBrokers:
    """A cluster that is asked where its topics are not.

    Args:
        dispatch: settings of it.
    """

    def __init__(self, dispatch: dict[str, int]) -> None:
        self.clock = VirtualClock()
        self._dispatch = dispatch
        self._facts, self._records = ProcessFacts(), MemoryRecordStore()
        self._coordinators: dict[str, Away] = {}
        self._nodes: dict[str, Node] = {}
        self._brokers: dict[str, Broker] = {}
        self._proxies: dict[str, CuttingProxy] = {}
        self._servers: dict[str, FlightServer] = {}
        self._arrivals: queue.SimpleQueue[DejaQError | None] = queue.SimpleQueue()
        for name in NAMES:
            self._start(name)
        self._dealt()

    def _start(self, name: str) -> None:
        coordinator, elapsed = Away(self._facts.open()), SteadyClock()
        node = Node(name, coordinator, LEASE_MS, elapsed)
        node.clocks = OneClock(name, coordinator, elapsed, LEASE_MS)
        settings = BrokerSettings(dispatch=DispatchSettings(**self._dispatch))
        broker = Broker(settings, self.clock, RecordJournalStore(self._records), node=node)
        broker.start()
        broker.carrier.carry = noting(broker.carrier.carry, self._arrivals)  # type: ignore[method-assign]
        server = FlightServer(broker)
        server.start()
        proxy = CuttingProxy(server.port)  # a server that stops in this process leaves streams open
        node.on_gone = server.forwarding.drop
        node.start(broker, f"dejaq://127.0.0.1:{proxy.port}", "http://127.0.0.1:1")
        self._proxies[name] = proxy
        self._coordinators[name], self._nodes[name] = coordinator, node
        self._brokers[name], self._servers[name] = broker, server

    def _dealt(self) -> None:
        """Return when each broker has the slots that it is to have."""

        def is_dealt() -> bool:
            nodes = self._nodes.values()
            slots = next(iter(nodes))._slots
            wanted = dict(enumerate(dealt(self._nodes, slots)))
            seen = [{slot: o.node for slot, o in node._view.owners.items()} for node in nodes]
            return all(one == wanted for one in seen)

        until(is_dealt, "slots where they should be")

    def _owners(self, topic: str) -> list[str]:
        if not topic:
            return []
        shards = next(iter(self._brokers.values())).topic(topic, newest=True).shards
        return [n for n, broker in self._brokers.items() if any(map(broker.serves, shards))]

    # --- what a fixture asks ----------------------------------------------------------------------

    def url_apart(self, topic: str) -> str:
        """Of a broker that does not serve a topic; of any, if all do."""
        owners = self._owners(topic)
        name = next((name for name in NAMES if name not in owners), NAMES[0])
        return f"dejaq://127.0.0.1:{self._proxies[name].port}"

    def look_inside(self, topic: str) -> ServedTopic:
        """What serves a topic that is in no shards."""
        [owner] = self._owners(topic)
        return self._brokers[owner].runtime(topic)

    def settle_down(self) -> None:
        """Return when all that is to be done at this time is done."""
        settle(*self._brokers.values())

    def advance(self, ms: int) -> None:
        """Move the time of all of them."""
        self.clock.advance(ms=ms)

    def arrival(self, seconds: float) -> DejaQError | None:
        """Wait for a parcel of letters; the error if it did not arrive."""
        return self._arrivals.get(timeout=seconds)

    def clean(self) -> None:
        """Forget what a test has left."""
        with suppress(queue.Empty):
            while True:
                self._arrivals.get_nowait()

    def hand_over(self, topic: str) -> None:
        """Whoever serves a topic is stopped, and comes back: others have it meanwhile."""
        name = self._owners(topic)[0]
        self._stop(name)
        self._start(name)
        self._dealt()

    def kill(self, topic: str) -> None:
        """Whoever serves a topic is gone: it can say nothing more, and its appends are refused."""
        name = self._owners(topic)[0]
        self._coordinators[name].is_away = True
        self._facts.open().delete(f"members/{name}")

        def is_taken() -> bool:
            others = [node for other, node in self._nodes.items() if other != name]
            owners = [owner.node for node in others for owner in node._view.owners.values()]
            return name not in owners

        until(is_taken, f"the slots of {name} taken over")
        self._stop(name)
        self._start(name)
        self._dealt()

    def _stop(self, name: str) -> None:
        self._nodes.pop(name).stop()
        self._servers.pop(name).stop(0.5)
        self._proxies.pop(name).close()
        self._brokers.pop(name).stop()

    def stop(self) -> None:
        """End all of them."""
        for name in list(self._brokers):
            self._stop(name)
        self._facts.close()
