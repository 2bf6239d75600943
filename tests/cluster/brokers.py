"""Brokers of one cluster in this process: real threads, one server of records, one of facts."""

from __future__ import annotations

import queue
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.broker import Broker
from dejaqueue.clock import SteadyClock, Wake
from dejaqueue.cluster.node import Node
from dejaqueue.cluster.placement import dealt
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.interface import Coordinator, Fact, Watch
from dejaqueue.errors import TryLater, Unavailable
from dejaqueue.journal.records.interface import RecordStore
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.settings import BrokerSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS, until

LEASE_MS = 3_000
"""Long enough that a busy machine renews in time, short enough to be waited for."""


class Away(Coordinator):
    """A coordinator that can be out of reach."""

    def __init__(self, inner: Coordinator) -> None:
        self._inner = inner
        self.is_away = False

    def _reach(self) -> Coordinator:
        if self.is_away:
            raise Unavailable("the coordinator is out of reach", 100)
        return self._inner

    def get(self, key: str) -> Fact | None:
        return self._reach().get(key)

    def list(self, prefix: str) -> list[Fact]:
        return self._reach().list(prefix)

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        return self._reach().put(key, value, revision, ttl_ms=ttl_ms)

    def renew(self, key: str) -> bool:
        return self._reach().renew(key)

    def delete(self, key: str, revision: int | None = None) -> bool:
        return self._reach().delete(key, revision)

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        return self._inner.watch(prefix, bell)

    def close(self) -> None:
        self._inner.close()


class Stoppable(SteadyClock):
    """A clock that can stand still: who sleeps does not know it."""

    stands_at_us = 0

    def now_us(self) -> int:
        return self.stands_at_us or super().now_us()

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        """In small steps, because time may begin to stand still meanwhile."""
        while instant_us is None or self.now_us() < instant_us:
            with wake.condition:
                if wake.rung or wake.condition.wait(0.01):
                    wake.rung = False
                    return True
        return False


class Cluster:
    """Brokers by name, over servers that outlive them."""

    def __init__(
        self,
        records: RecordStore | None = None,
        coordinator: Callable[[], Coordinator] | None = None,
    ) -> None:
        self.facts = ProcessFacts()
        self._coordinator = coordinator or self.facts.open
        # A real server may take a while on a busy machine.
        self._lease_ms = LEASE_MS if coordinator is None else 2 * LEASE_MS
        self.records = records or MemoryRecordStore()
        self.nodes: dict[str, Node] = {}
        self.coordinators: dict[str, Away] = {}
        self.clocks: dict[str, Stoppable] = {}
        self.brokers: dict[str, Broker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self.brokers):
            self.stop(name)
        self.facts.close()

    def settings(self, name: str) -> BrokerSettings:
        """Of a broker that joins."""
        return BrokerSettings()

    def store(self, name: str, records: RecordStore) -> RecordJournalStore:
        """The journals of a broker that joins."""
        return RecordJournalStore(records)

    def listen(self, name: str, broker: Broker) -> str:
        """Where a broker is reached; in this process nobody needs a port."""
        return f"dejaq://{name}:1"

    def start(
        self, name: str, *, adopts: bool = False, records: RecordStore | None = None
    ) -> Broker:
        """A broker joins, and takes topics from now on.

        Args:
            records: another server of records than the others have.
        """
        self.coordinators[name] = Away(self._coordinator())
        self.clocks[name] = Stoppable()
        coordinator, clock = self.coordinators[name], self.clocks[name]
        node = Node(name, coordinator, self._lease_ms, clock, adopts=adopts)
        store = self.store(name, records or self.records)
        broker = Broker(self.settings(name), store=store, node=node)
        broker.start()
        node.start(broker, self.listen(name, broker), f"http://{name}:2")
        self.nodes[name], self.brokers[name] = node, broker
        until(lambda: has_compared(node), f"{name} has compared its clock")
        return broker

    def stop(self, name: str) -> None:
        """A broker leaves as it should."""
        self.nodes.pop(name).stop()
        self.brokers.pop(name).stop()

    def lose_touch(self, name: str, *, unaware: bool = False) -> None:
        """A broker does not reach the coordinator, or sleeps and is unaware of it."""
        self.coordinators[name].is_away = True
        if unaware:
            self.clocks[name].stands_at_us = self.clocks[name].now_us()

    def be_back(self, name: str) -> None:
        """It is awake and in touch again."""
        self.clocks[name].stands_at_us = 0
        self.coordinators[name].is_away = False

    def dealt(self) -> None:
        """Return when each broker has the slots that it should have."""

        def is_dealt() -> bool:
            nodes = self.nodes.values()
            owners = [{slot: o.node for slot, o in node._view.owners.items()} for node in nodes]
            slots = next(iter(nodes))._slots
            wanted = dict(enumerate(dealt(self.nodes, slots)))
            return all(seen == wanted for seen in owners)

        until(is_dealt, "slots where they should be")

    def owners(self, topic: str) -> list[str]:
        """Who serves a topic."""
        return [name for name, broker in self.brokers.items() if broker.serves(topic)]

    def owner(self, topic: str) -> Broker:
        """Who serves a topic, as soon as it is one."""
        until(lambda: len(self.owners(topic)) == 1, f"one owner of {topic}")
        return self.brokers[self.owners(topic)[0]]

    def send_to_owner(self, topic: str, payloads: list[str]) -> None:
        """Send to a topic, which may be changing hands: each time to who serves it then."""
        patiently(lambda: send(self.owner(topic), topic, payloads))

    def payloads(self, topic: str) -> list[str]:
        """What is in a topic, which may be changing hands."""
        found: list[list[str]] = []
        patiently(lambda: found.append(payloads(self.owner(topic), topic)))
        return found[0]


def has_compared(node: Node) -> bool:
    """Whether a broker has compared its clock with the others': before, it takes no topics."""
    own = [one for one in node.describe("")["nodes"] if one["node"] == node.name]
    return bool(own) and not own[0]["clock"]["comparing"]


def patiently(call: Callable[[], object]) -> None:
    """Do what may have to be done again."""

    def done() -> bool:
        try:
            call()
        except TryLater:
            return False
        return True

    until(done, "an answer")


def send(broker: Broker, topic: str, payloads: list[str], delay_ms: int = 3_600_000) -> list[int]:
    """Send messages, durably; their ids."""
    batch = pa.record_batch(
        {
            "payload": pa.array([payload.encode() for payload in payloads]),
            "due": pa.array([broker.clock.now_ms() + delay_ms] * len(payloads)),
        }
    )
    replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
    broker.open_write(WriteStream(topic)).submit(1, batch, replies.put)
    reply = replies.get(timeout=PATIENCE_SECONDS)
    if reply.error is not None:
        raise reply.error
    return [int(sequence) for sequence in reply.all_ids()]


def payloads(broker: Broker, topic: str) -> list[str]:
    """What is in a topic."""
    _, [page] = broker.read("peek", {"topic": topic, "limit": limits.PEEK_ROWS_MAX})
    rows = page.to_pylist()
    assert len(rows) < limits.PEEK_ROWS_MAX, "there may be more"
    return sorted(row["payload"].decode() for row in rows)
