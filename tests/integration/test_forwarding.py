"""Calls to a broker that does not serve the topic: passed on to the one that does, and back.

Two real servers. Which topics are elsewhere is said by the test.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import dejaqueue
from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.catalogue import Catalogue
from dejaqueue.broker.topic.cluster_port import Disks
from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.client import TopicStats
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Elsewhere,
    Forbidden,
    TopicUnknown,
    Unauthenticated,
    Unavailable,
)
from dejaqueue.flight.server import FlightServer
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.cutting_proxy import CuttingProxy
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from tests.hostile.arrow_bytes import messages_of, replaced
from tests.hostile.raw_flight import RawPut

WAIT_S = 20.0
THERE = "there"


@dataclass
class AllElsewhere:
    """A broker that serves nothing: what it knows of the cluster."""

    documents: InMemory
    url: str = ""
    clock_apart_us: int = 0
    disks: Disks = field(default_factory=Disks)
    store: MemoryStore = field(default_factory=MemoryStore)

    def catalogue(self, store: JournalStore, *_: object) -> Catalogue:
        topics = LoneCatalogue(self.store)
        topics.create(Topic(THERE), exist_ok=True)
        return topics

    def elsewhere(self, topic: str) -> DejaQError:
        return Elsewhere(f"topic {topic} is served by b", 50, "b", self.url)

    def refusal(self, topic: str, *, begins: bool = False) -> DejaQError | None:
        return self.elsewhere(topic)

    def fenced(self, topic: str) -> None: ...

    def placed(self, topic: str) -> None: ...

    def settled(self, topic: str) -> None: ...

    def describe(self, topic: str) -> dict[str, Any]:
        return {}

    def act(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        raise self.elsewhere("")

    def open_keys(self, keys: KeyRing) -> None:
        keys.open(self.documents)


@dataclass
class Pair:
    """`near` is connected to; `far` serves the topic; between them a network that may fail."""

    near: FlightServer
    far: FlightServer
    far_broker: Broker
    near_broker: Broker
    proxy: CuttingProxy
    shared: AllElsewhere


@pytest.fixture
def pair() -> Iterator[Pair]:
    settings = BrokerSettings(journal=JournalSettings(url="memory:"))
    far_broker = Broker(settings)
    far_broker.start()
    far_broker.create_topic(Topic(THERE))
    far = FlightServer(far_broker, gate=Gate(far_broker.keys))
    far.start()
    proxy = CuttingProxy(far.port)
    shared = AllElsewhere(InMemory(), f"dejaq://127.0.0.1:{proxy.port}")
    near_broker = Broker(settings, node=shared)
    near_broker.start()
    near = FlightServer(near_broker, gate=Gate(near_broker.keys))
    near.start()
    yield Pair(near, far, far_broker, near_broker, proxy, shared)
    near.stop()
    proxy.close()
    far.stop()
    near_broker.stop()
    far_broker.stop()


def through(pair: Pair, api_key: str | None = None) -> dejaqueue.Client:
    """A client that knows nothing of clusters."""
    return dejaqueue.Client(transport=FlightTransport(pair.near.url, api_key))


def payloads(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def take(client: dejaqueue.Client, count: int) -> list[bytes]:
    """So many messages, acked."""
    got: list[bytes] = []
    with client.consume_batches(THERE, batch_rows=500, prefetch=2_000) as batches:
        for batch in batches:
            got.extend(batch.batch["payload"].to_pylist())
            batch.ack()
            if len(got) >= count:
                return got
    raise AssertionError("the consumer ended")


def test_sends_and_deliveries_go_through(pair: Pair) -> None:
    with through(pair) as client:
        sent = client.send_batch(THERE, [{"payload": one} for one in payloads(5_000)])
        sent.raise_for_status()
        assert client.send(THERE, b"5000") > 0
        assert sorted(take(client, 5_001)) == sorted(payloads(5_001))
        client.send_batch(THERE, [{"payload": b"silent"}], acks="none")
        assert take(client, 1) == [b"silent"]
    assert pair.far_broker.call("stats", {"topic": THERE})["ready"] == 0


def test_actions_and_rows_go_through(pair: Pair) -> None:
    with through(pair) as client:
        client.send_batch(THERE, [{"payload": one, "delay": 3_600} for one in payloads(50)])
        near, far = client.stats(THERE), pair.far_broker.call("stats", {"topic": THERE})
        assert near == TopicStats.from_answer(far)
        assert client.peek(THERE, limit=10).num_rows == 10
    transport = FlightTransport(pair.near.url)
    rows = sum(
        batch.num_rows
        for partition in range(pair.far_broker.topic(THERE).partitions)
        for batch in transport.scan({"topic": THERE, "partition": partition})
    )
    transport.close()
    assert rows == 50


def test_what_the_other_broker_refuses_comes_back_in_its_words(pair: Pair) -> None:
    pair.far_broker.delete_topic(THERE)
    with through(pair) as client:
        with pytest.raises(TopicUnknown, match=THERE):
            client.send(THERE, b"")
        with pytest.raises(TopicUnknown):
            client.stats(THERE)
        with pytest.raises(TopicUnknown):
            client.peek(THERE)
        with pytest.raises(TopicUnknown), client.consume(THERE) as consumer:
            next(consumer)
        pair.far_broker.create_topic(Topic(THERE))
        with pytest.raises(BadRequest, match="counts.by|by"):
            client._action("counts", {"topic": THERE, "by": "weather"})


def test_the_callers_own_key_goes_along(pair: Pair) -> None:
    keys = pair.near_broker.keys
    keys.create("root", ["admin:*"])
    key, secret = keys.create("sender", [f"produce:{THERE}"])
    pair.far_broker.keys.open(pair.shared.documents)
    with through(pair, secret) as client:
        assert client.send(THERE, b"1") >= 0
        with pytest.raises(Forbidden), client.consume(THERE) as consumer:
            next(consumer)
    with through(pair) as client, pytest.raises(Unauthenticated):
        client.send(THERE, b"1")
    pair.far_broker.keys.revoke(key.id)  # on the other broker alone
    with (
        through(pair, secret) as client,
        pytest.raises(Unauthenticated),
    ):
        client.send(THERE, b"2")


def test_who_follows_is_told_where_and_not_passed_on(pair: Pair) -> None:
    direct = FlightTransport(pair.near.url, follows=True)
    with pytest.raises(Elsewhere) as told:
        direct.action("stats", {"topic": THERE}).result(WAIT_S)
    assert told.value.url == pair.shared.url
    direct.close()
    with dejaqueue.Client(pair.near.url) as client:
        assert client.send(THERE, b"1") >= 0
        assert take(client, 1) == [b"1"]


def test_a_call_is_passed_on_once(pair: Pair) -> None:
    pair.shared.url = pair.near.url  # each would pass it on to the other for ever
    transport = FlightTransport(pair.near.url)
    with pytest.raises(Elsewhere):
        transport.action("stats", {"topic": THERE}).result(WAIT_S)
    with pytest.raises(Elsewhere):
        transport.rows({"op": "peek", "topic": THERE}).result(WAIT_S)
    ended: list[DejaQError | None] = []
    over = threading.Event()

    def on_end(error: DejaQError | None) -> None:
        ended.append(error)
        over.set()

    transport.open_consume(ConsumeStream(THERE), lambda _: None, lambda _: None, on_end)
    assert over.wait(WAIT_S)
    assert isinstance(ended[0], Elsewhere)
    transport.close()


def test_streams_outlive_a_network_that_breaks_and_nothing_is_doubled(pair: Pair) -> None:
    with through(pair) as client, client.producer(THERE) as producer:
        answers = []
        for n in range(3_000):
            answers.append(producer.send(b"%d" % n))
            if n % 1_000 == 500:
                pair.proxy.cut()
                pair.proxy.mend()
        producer.flush()
        assert len({answer.result(WAIT_S) for answer in answers}) == 3_000
        got: list[bytes] = []
        with client.consume_batches(THERE, batch_rows=100, prefetch=200, lease_ms=1_000) as batches:
            for batch in batches:
                got.extend(batch.batch["payload"].to_pylist())
                batch.ack(wait=False)
                if len(got) in {500, 1_500}:
                    pair.proxy.cut()
                    pair.proxy.mend()
                if len(set(got)) == 3_000:
                    break
        assert set(got) == set(payloads(3_000))


def test_a_broker_that_stands_still_is_dropped(pair: Pair) -> None:
    transport = FlightTransport(pair.near.url)
    writing = transport.open_write(WriteStream(THERE, "enqueue"))
    batch = pa.record_batch({"payload": pa.array([b"1"], pa.binary())})
    assert writing.send(1, batch).result(WAIT_S).error is None
    over = threading.Event()
    ended: list[DejaQError | None] = []

    def on_end(error: DejaQError | None) -> None:
        ended.append(error)
        over.set()

    begun = threading.Event()
    consuming = transport.open_consume(
        ConsumeStream(THERE), lambda _: begun.set(), lambda _: None, on_end
    )
    consuming.credit(10)
    assert begun.wait(WAIT_S)
    pair.proxy.hang()
    waits = writing.send(2, batch)
    pair.near.forwarding.drop(pair.shared.url)
    with pytest.raises(Unavailable):  # by a reply, or by the end of the stream
        raise waits.result(WAIT_S).error or AssertionError("it cannot have been stored")
    assert over.wait(WAIT_S)
    assert isinstance(ended[0], Unavailable)
    with pytest.raises(Unavailable):
        writing.send(3, batch).result(WAIT_S)
    pair.proxy.cut()
    pair.proxy.mend()
    again = transport.open_write(WriteStream(THERE, "enqueue"))
    assert again.send(1, batch).result(WAIT_S).error is None
    transport.close()


def test_what_waits_for_a_slow_broker_is_bounded(pair: Pair) -> None:
    client = flight.FlightClient(f"grpc://127.0.0.1:{pair.near.port}")
    command = json.dumps({"op": "enqueue", "topic": THERE})
    descriptor = flight.FlightDescriptor.for_command(command.encode())
    megabyte = pa.record_batch({"payload": pa.array([bytes(1 << 20)], pa.binary())})
    writer, replies = client.do_put(descriptor, megabyte.schema)
    writer.write_with_metadata(megabyte, (1).to_bytes(4, "little"))
    assert replies.read() is not None
    pair.proxy.hang()
    written = [0]
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(2, 200):
                writer.write_with_metadata(megabyte, number.to_bytes(4, "little"))
                written[0] = number
        except (pa.ArrowException, OSError):
            done.set()  # it broke while it stood
        done.set()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    pause = threading.Event()
    before, still_since = -1, time.monotonic()
    while time.monotonic() - still_since < 1.5:
        pause.wait(0.05)
        if written[0] != before:
            before, still_since = written[0], time.monotonic()
    assert not done.is_set()
    assert before < 64, "a hundred megabytes were taken for a broker that takes nothing"
    pair.proxy.cut()
    assert done.wait(WAIT_S)
    thread.join(WAIT_S)
    client.close()


def test_a_server_that_stops_ends_what_it_passes_on(pair: Pair) -> None:
    with dejaqueue.Client(pair.far.url) as client:
        client.send(THERE, b"1")
    with through(pair) as client, client.consume(THERE) as consumer:
        assert next(consumer).payload == b"1"
        assert pair.near.stop(WAIT_S), "streams were given up"


def test_a_batch_whose_offsets_lie_is_answered_and_not_written_out_again(pair: Pair) -> None:
    batch = pa.record_batch({"payload": pa.array([b"abcde", b"fghij"])})
    old, new = (np.array(offsets, "<i4").tobytes() for offsets in ([0, 5, 10], [0, 90, 10]))
    with RawPut(pair.near.port, topic=THERE, op="enqueue") as stream:
        for message in [*messages_of(batch), *replaced(messages_of(batch), old, new)[1:]]:
            stream.send(message.metadata, message.body)
        stream.wait()
        good, malformed = sorted(stream.replies, key=lambda reply: reply.number)
    assert (good.error, good.rows) == (None, 2)
    assert isinstance(malformed.error, BadRequest)
    assert "column payload" in str(malformed.error)
    assert b"column payload" in (stream.trailers or b"")
    assert pair.far_broker.call("stats", {"topic": THERE})["scheduled"] == 2
