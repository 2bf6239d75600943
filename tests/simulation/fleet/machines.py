"""Machines of a fleet: the product's nodes and brokers, whose topics have nothing in them.

A fleet is as large as clusters may get, so what is not about ownership is left out: a topic that a
broker takes is served by an object without partitions. Membership, clocks, rounds, plans, claims,
hand-overs, the catalogue and its journal, and the coordinator in memory are the product's.

Holds: a broker's processor time passes for it, too, if the fleet is told so: it answers later, and
the others do not wait for it. Then two runs differ.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.cluster.node import Node
from dejaqueue.coordinator.interface import Fact, Watch
from dejaqueue.errors import DejaQError
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.settings import BrokerSettings, ClockSettings, DispatchSettings, JournalSettings
from dejaqueue.testing.simulation.machine import JUMP_US
from dejaqueue.testing.simulation.world import SimulatedClock, World
from tests.simulation.cluster.coordinators import LateReader, MemoryFacts
from tests.simulation.cluster.fibers import FiberClock, Fibers
from tests.simulation.cluster.machines import Cluster, ClusterMachine
from tests.simulation.cluster.peers import SimulatedPeers
from tests.simulation.cluster.server import Line
from tests.simulation.cluster.threads import FiberConcurrency, FiberThreads

Answer = TypeVar("Answer")

TRAVEL_US_MAX = 3_000
"""A call of the coordinator takes up to this each way."""


@dataclass
class Traffic:
    """What the coordinator was asked, and what it answered.

    Attributes:
        calls: by name.
        facts: that were read or changed.
        sent_bytes, read_bytes: keys and values of facts that were changed, and read.
        bells: how often somebody was told that something had changed.
    """

    calls: Counter[str] = field(default_factory=Counter)
    facts: int = 0
    sent_bytes: int = 0
    read_bytes: int = 0
    bells: int = 0

    def copy(self) -> Traffic:
        """What it was until now."""
        return Traffic(self.calls.copy(), self.facts, self.sent_bytes, self.read_bytes, self.bells)

    def since(self, before: Traffic) -> Traffic:
        """What came after that."""
        return Traffic(
            self.calls - before.calls,
            self.facts - before.facts,
            self.sent_bytes - before.sent_bytes,
            self.read_bytes - before.read_bytes,
            self.bells - before.bells,
        )

    def note_read(self, call: str, facts: list[Fact]) -> None:
        """Somebody read these."""
        self.calls[call] += 1
        self.facts += len(facts)
        self.read_bytes += sum(len(fact.key) + len(fact.value) for fact in facts)

    def note_change(self, call: str, key: str, value: bytes = b"") -> None:
        """Somebody asked for a change."""
        self.calls[call] += 1
        self.facts += 1
        self.sent_bytes += len(key) + len(value)


class FleetReader(LateReader):
    """A broker's coordinator, whose traffic is counted."""

    def __init__(self, machine: FleetMachine, fibers: Fibers) -> None:
        fleet = machine.fleet
        super().__init__(fleet.facts, {}, fleet.world, fibers, TRAVEL_US_MAX)
        self._machine, self._traffic = machine, fleet.traffic

    def _travel_us(self) -> int:
        return self._world.between(20, TRAVEL_US_MAX) + self._machine.spent_us()

    def get(self, key: str) -> Fact | None:
        """See Coordinator.get."""
        found = self._far(lambda: self._inner.get(key))
        self._traffic.note_read("get", [] if found is None else [found])
        return found

    def list(self, prefix: str) -> list[Fact]:
        """See Coordinator.list."""
        facts = self._far(lambda: self._inner.list(prefix))
        self._traffic.note_read("list", facts)
        return facts

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """See Coordinator.put."""
        self._traffic.note_change("put", key, value)
        return self._far(lambda: self._inner.put(key, value, revision, ttl_ms=ttl_ms))

    def renew(self, key: str) -> bool:
        """See Coordinator.renew."""
        self._traffic.note_change("renew", key)
        return self._far(lambda: self._inner.renew(key))

    def delete(self, key: str, revision: int | None = None) -> bool:
        """See Coordinator.delete."""
        self._traffic.note_change("delete", key)
        return self._far(lambda: self._inner.delete(key, revision))

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """See Coordinator.watch."""
        return self.watch_keys(prefix, lambda _: bell())

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """See Coordinator.watch_keys."""

        def ring(key: str | None) -> None:
            self._traffic.bells += 1
            bell(key)

        return self._inner.watch_keys(prefix, ring)


class _ServedTopic:
    """A topic that is served, without partitions."""

    def __init__(self, name: str, journals: str, number: int) -> None:
        self.served_as, self.journals, self.number = name, journals, number
        self.topic = SimpleNamespace(name=name)
        self.ownership = SimpleNamespace(end=lambda: None)
        self.partitions: tuple[Any, ...] = ()
        self.is_gone = True

    def alter(self, read: Callable[[], object]) -> None:
        """See ServedTopic.alter."""
        read()

    def do_nothing(self, *_: object) -> None:
        """What needs partitions."""

    attend = ring_all = close = end_consumers = begin_close = wait_closed = do_nothing


class FleetBroker(Broker):
    """A broker whose topics have no partitions."""

    def _serve(self, name: str) -> ServedTopic:
        catalogue = self._catalogue
        served = _ServedTopic(name, catalogue.journals(name), catalogue.number(name))
        return cast(ServedTopic, served)

    def ask_to_read(self, url: str, name: str) -> Future[dict[str, Any]] | None:
        """See Broker.ask_to_read: there is nothing to be read."""
        return None


class FleetMachine(ClusterMachine):
    """One machine of a fleet.

    Attributes:
        used_us: processor time of its broker so far.
        rounds: how many rounds it has gone, each life's together.
    """

    def __init__(self, name: str, world: World, fleet: Fleet) -> None:
        super().__init__(name, world, cast(Cluster, fleet))
        self.fleet = fleet
        self.used_us = self.rounds = 0
        self._began_ns = 0

    def _boot(self) -> None:
        fleet, fibers = self.fleet, self._fibers
        settings = BrokerSettings(
            journal=JournalSettings(url="memory:"),
            dispatch=DispatchSettings(workers=1),
            clock=ClockSettings(step_ms_max=JUMP_US // 1_000),
        )
        line = self.line = Line(self.world, fibers.life, fleet.server, 0.0, 0)
        reader = self.coordinator = FleetReader(self, fibers)
        store = RecordJournalStore(line, concurrency=FiberConcurrency(fibers))
        threads = FiberThreads(fibers, is_apart=True)
        try:
            node = Node(
                self.name,
                reader,
                fleet.lease_ms,
                FiberClock(fibers),
                threads,
                slots=fleet.slots,
                adopts=True,
            )
            node.round = self._counted(node.round)  # type: ignore[method-assign]
            broker = FleetBroker(settings, self.clock, store, threads, node=node)
            broker.peers = SimulatedPeers(self.world, cast(Cluster, fleet), fibers.life)
            broker.start()
            node.start(broker, f"dejaq://{self.name}:1", f"http://{self.name}:2")
            self.node, self.broker = node, broker
        except DejaQError as error:
            raise AssertionError(f"{self.name} does not start") from error

    def _counted(self, round_: Callable[[], int]) -> Callable[[], int]:
        def go() -> int:
            self.rounds += 1
            return round_()

        return go

    def guarded(self, call: Callable[[], None]) -> None:
        """See ClusterMachine.guarded. What it takes of a processor is counted."""
        self._began_ns = time.process_time_ns()
        try:
            super().guarded(call)
        finally:
            spent_us = (time.process_time_ns() - self._began_ns) // 1_000
            self._began_ns = 0
            self.used_us += spent_us
            if self.fleet.pays_time and self.life.paused_until_us <= self.world.now_us:
                self.life.paused_until_us = self.world.now_us + spent_us

    def spent_us(self) -> int:
        """Processor time of what it does just now, if the fleet is told to pay for that."""
        if not self.fleet.pays_time or not self._began_ns:
            return 0
        return (time.process_time_ns() - self._began_ns) // 1_000


class Fleet:
    """Many machines, what they agree on, and where their catalogue is.

    Args:
        pays_time: a broker's processor time passes for it.

    Attributes:
        traffic: of all with the coordinator.
    """

    moves = True
    keys_of = None
    is_made = True

    def __init__(
        self, world: World, names: list[str], slots: int, server: Any, *, pays_time: bool
    ) -> None:
        self.world, self.slots, self.server = world, slots, server
        self.pays_time, self.lease_ms = pays_time, 5_000
        self.facts = MemoryFacts(
            SimulatedClock(world), at=lambda us, call: world.after(us - world.now_us, call)
        )
        self.traffic = Traffic()
        self.machines = [FleetMachine(name, world, self) for name in names]

    def pick(self, topic: str) -> FleetMachine:
        """Nobody is a client of a fleet."""
        raise AssertionError(topic)
