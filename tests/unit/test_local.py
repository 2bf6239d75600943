"""The broker in the user's own process: what the client's port promises, kept without a wire.

Not covered: what calls do (tests/rules, over this transport).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dejaqueue
from dejaqueue.broker.broker import Broker
from dejaqueue.client.transport import Delivery
from dejaqueue.errors import BadRequest, DejaQError, Locked, TopicUnknown, Unavailable
from dejaqueue.local import LocalTransport
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing import VirtualClock
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Ping, Pong, Settle, SettleOp

SECONDS_MAX = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t"))
    yield broker
    broker.stop()


@pytest.fixture
def transport(broker: Broker) -> Iterator[LocalTransport]:
    transport = LocalTransport(broker)
    yield transport
    transport.close()


def batch(*payloads: bytes) -> pa.RecordBatch:
    return pa.record_batch({"payload": pa.array(payloads, pa.binary())})


class Heard:
    """What a consumer hears, and on which thread."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.pongs: list[Pong] = []
        self.ends: list[DejaQError | None] = []
        self.threads: set[str] = set()
        self._something = threading.Condition()

    def _hear(self, into: list[Any], one: Any) -> None:
        with self._something:
            into.append(one)
            self.threads.add(threading.current_thread().name)
            self._something.notify_all()

    def open(self, transport: LocalTransport, stream: ConsumeStream | None = None) -> Any:
        return transport.open_consume(
            stream or ConsumeStream("t"),
            lambda one: self._hear(self.deliveries, one),
            lambda one: self._hear(self.pongs, one),
            lambda one: self._hear(self.ends, one),
        )

    def wait(self, into: list[Any], count: int = 1) -> None:
        with self._something:
            assert self._something.wait_for(lambda: len(into) >= count, SECONDS_MAX)


def test_a_batch_is_answered_with_its_ids(transport: LocalTransport) -> None:
    channel = transport.open_write(WriteStream("t"))
    replies = [channel.send(number, batch(b"a", b"b")) for number in (7, 8)]
    told = [reply.result(SECONDS_MAX) for reply in replies]
    assert [(reply.number, reply.rows) for reply in told] == [(7, 2), (8, 2)]
    assert len({one for reply in told for one in reply.all_ids().tolist()}) == 4
    channel.close()


def test_a_channel_closes_when_all_is_answered__and_takes_no_more(
    transport: LocalTransport,
) -> None:
    channel = transport.open_write(WriteStream("t"))
    replies = [channel.send(number, batch(b"a")) for number in range(20)]
    channel.close()
    assert all(reply.done() for reply in replies)
    with pytest.raises(Unavailable, match="the channel is closed"):
        channel.send(99, batch(b"a"))


def test_without_acks_a_batch_is_answered_before_it_is_durable(
    transport: LocalTransport, broker: Broker
) -> None:
    channel = transport.open_write(WriteStream("t", acks="none"))
    reply = channel.send(1, batch(b"a", b"b", b"c"))
    assert reply.done()
    assert reply.result().rows == 3
    channel.close()


def test_a_batch_of_wrong_columns_is_refused_when_it_is_sent(transport: LocalTransport) -> None:
    channel = transport.open_write(WriteStream("t"))
    channel.send(1, batch(b"a")).result(SECONDS_MAX)
    with pytest.raises(BadRequest, match="colour"):
        channel.send(2, pa.record_batch({"payload": [b"a"], "colour": ["red"]}))
    channel.close()


def test_deliveries_come_on_a_thread_of_their_own_for_as_much_credit_as_was_given(
    transport: LocalTransport,
) -> None:
    transport.open_write(WriteStream("t")).send(1, batch(b"a", b"b", b"c")).result(SECONDS_MAX)
    heard = Heard()
    channel = heard.open(transport)
    channel.credit(2)
    heard.wait(heard.deliveries)
    rows = sum(one.batch.num_rows for one in heard.deliveries)
    assert rows <= 2
    head = heard.deliveries[0].head
    assert head.rows == heard.deliveries[0].batch.num_rows
    settled = channel.settle(
        Settle(SettleOp.ACK, 5, lease_ids=np.array([head.lease_id], dtype=np.int64))
    )
    assert settled.result(SECONDS_MAX).number == 5
    channel.ping(Ping(3, 17))
    heard.wait(heard.pongs)
    assert (heard.pongs[0].number, heard.pongs[0].client_us) == (3, 17)
    assert heard.threads == {"dejaq-deliveries"}


def test_a_consumer_hears_once_that_it_is_closed__and_its_leases_end(
    transport: LocalTransport, broker: Broker
) -> None:
    transport.open_write(WriteStream("t")).send(1, batch(b"a")).result(SECONDS_MAX)
    heard = Heard()
    channel = heard.open(transport)
    channel.credit(1)
    heard.wait(heard.deliveries)
    channel.close()
    channel.close()
    assert heard.ends == [None]
    again = Heard()
    again.open(transport).credit(1)
    again.wait(again.deliveries)
    assert again.deliveries[0].batch["attempts"].to_pylist() == [2]


def test_a_consumer_may_close_from_its_own_callback(transport: LocalTransport) -> None:
    heard = Heard()
    channels: list[Any] = []
    closing = transport.open_consume(
        ConsumeStream("t"),
        lambda one: channels[0].close(),
        lambda one: None,
        lambda one: heard._hear(heard.ends, one),
    )
    channels.append(closing)
    closing.credit(1)
    transport.open_write(WriteStream("t")).send(1, batch(b"a")).result(SECONDS_MAX)
    heard.wait(heard.ends)
    assert heard.ends == [None]


def test_a_consumer_hears_why_the_broker_ended_it(
    transport: LocalTransport, broker: Broker
) -> None:
    heard = Heard()
    heard.open(transport)
    broker.call("delete_topic", {"name": "t"})
    heard.wait(heard.ends)
    assert isinstance(heard.ends[0], TopicUnknown)


def test_errors_of_calls_are_in_their_futures(transport: LocalTransport) -> None:
    with pytest.raises(TopicUnknown):
        transport.action("describe_topic", {"name": "nothing"}).result(SECONDS_MAX)
    with pytest.raises(TopicUnknown):
        transport.rows({"op": "peek", "topic": "nothing"}).result(SECONDS_MAX)
    found = transport.rows({"op": "peek", "topic": "t"}).result(SECONDS_MAX)
    assert found.num_rows == 0


def test_a_closed_transport_answers_everything_with_that(broker: Broker) -> None:
    transport = LocalTransport(broker)
    heard = Heard()
    heard.open(transport)
    transport.close()
    transport.close()
    assert heard.ends == [None], "its channels are closed with it"
    for call in (
        lambda: transport.open_write(WriteStream("t")),
        lambda: heard.open(transport),
        lambda: transport.action("topics", {}).result(SECONDS_MAX),
        lambda: transport.rows({"op": "peek", "topic": "t"}).result(SECONDS_MAX),
    ):
        with pytest.raises(Unavailable, match="the client is closed"):
            call()
    assert broker.call("describe_topic", {"name": "t"})["name"] == "t", "the broker is not ours"


def test_an_opened_directory_is_this_processes_until_it_is_closed(tmp_path: Path) -> None:
    with dejaqueue.open(tmp_path) as first:
        first.create_topic("t")
        first.send("t", b"kept", delay=3_600)
        with pytest.raises(Locked):
            dejaqueue.open(tmp_path)
    with dejaqueue.open(tmp_path) as second:
        assert second.peek("t", limit=9)["payload"].to_pylist() == [b"kept"]


def test_settings_stand_in_for_the_path(tmp_path: Path) -> None:
    settings = BrokerSettings(journal=JournalSettings(url="memory:"))
    with dejaqueue.open(tmp_path / "unused", settings=settings) as client:
        client.create_topic("t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opened_before", [True, False])
def test_a_clock_that_is_moved_by_hand__next_week_in_no_time(opened_before: bool) -> None:
    clock, week = VirtualClock(), timedelta(days=7)
    with dejaqueue.open("memory:", clock=clock) as queue:
        queue.create_topic("t", lease_ms=1_000)
        consumer = queue.consume("t", max_messages=2, idle_ms=10**12)
        if opened_before:
            consumer.open()
        queue.send("t", b"next week", due=clock.now() + week, key="k")
        clock.advance(week - timedelta(milliseconds=1))
        found = queue.get("t", key="k")
        assert found is not None
        assert found.state in ("scheduled", "leased")  # leased ahead, to be held until its time
        clock.advance(ms=1)
        message = next(consumer)
        assert (message.payload, message.lateness_us) == (b"next week", 0)
        assert message.due == clock.now()
        clock.advance(week)  # the lease ends, as nobody extends it in no time: it comes again
        again = next(consumer)
        assert (again.key, again.attempt) == ("k", 2)
        assert again.ack(wait=True).ok
        consumer.close()
