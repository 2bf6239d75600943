"""Covers: connections and brokers that go away: nothing is lost and nothing is there twice.

Not covered: lanes that break alone (test_lanes.py, test_java_lanes.py); networks that fail in
other ways (tests/chaos, with our own client).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dejaqueue import Client
from tests.clients.drivers import Driver
from tests.clients.relay import Relay
from tests.crash.broker_process import BrokerProcess
from tests.integration.access_fixture import Site

BATCHES = 120


class Relays:
    """What is between the client and both ports of the broker."""

    def __init__(self, site: Site) -> None:
        self.flight, self.http = Relay(site.flight.port), Relay(site.http.port)
        assert site.broker.lane is not None
        site.broker.lane = replace(site.broker.lane, port=self.http.port)

    def mute(self, *, is_mute: bool) -> None:
        """What the broker says is lost, or is not."""
        self.flight.mute = self.http.mute = is_mute

    def cut(self) -> None:
        """Break all connections that are open; new ones are taken."""
        self.http.cut()
        self.flight.cut()

    def close(self) -> None:
        """End."""
        self.http.close()
        self.flight.close()


@pytest.fixture
def relays(site: Site) -> Iterator[Relays]:
    between = Relays(site)
    yield between
    between.close()


@pytest.fixture
def far(alone: Driver, relays: Relays) -> Driver:
    """The client, connected to the broker by relays, with the topic `t`."""
    alone.call("connect", url=f"dejaq://127.0.0.1:{relays.flight.port}")
    alone.call("create_topic", topic="t")
    return alone


def test_a_batch_whose_reply_was_lost_is_not_there_twice(
    far: Driver, relays: Relays, ours: Client
) -> None:
    far.send("t", b"first")
    relays.mute(is_mute=True)
    far.begin("send", topic="t", rows=[{"payload": "", "key": "second"}])
    assert [m.key for m in ours.consume("t", max_messages=2)] == [None, "second"]  # it is in
    relays.mute(is_mute=False)
    relays.cut()
    answer = far.answer()
    assert answer["statuses"] == ["OK"]
    assert ours.stats("t")["enqueued"] == 2


def test_a_consumer_goes_on_after_its_connection_broke(
    far: Driver, relays: Relays, ours: Client
) -> None:
    far.call("consume", topic="t", lease_ms=600_000)
    ours.send_batch("t", [{"payload": b"a"}, {"payload": b"b"}])
    first, second = far.receive(2)
    relays.cut()
    ours.send("t", b"c")
    (third,) = far.receive(1)
    assert third["payload"] == b"c"
    # Leases outlive the stream: settled by id and attempt on the new one.
    ids = [row["id"] for row in (first, second, third)]
    assert far.call("ack", ids=ids)["statuses"] == ["OK"] * 3
    assert far.receive(1, wait_ms=50) == []


@pytest.mark.parametrize("single", [False, True], ids=["batches", "one by one"])
def test_a_broker_is_killed_while_messages_are_on_their_way(
    alone: Driver, tmp_path: Path, *, single: bool
) -> None:
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log")
    broker.start()
    try:
        alone.call("connect", url=broker.url, retry_ms=60_000)
        alone.call("create_topic", topic="t")
        alone.begin("flood", topic="t", batches=BATCHES, single=single, wait_ms=10)
        with Client(broker.url) as watching:
            seen = len(list(watching.consume("t", max_messages=BATCHES)))  # it is in the middle
        assert seen == BATCHES
        broker.kill()
        broker.start()
        assert alone.answer()["sent"] == BATCHES * 10
        alone.call("consume", topic="t")
        with Client(broker.url) as ours:
            assert ours.stats("t")["enqueued"] == BATCHES * 10
    finally:
        broker.kill()


def test_a_consumer_and_a_producer_outlive_a_restart(alone: Driver, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log")
    broker.start()
    try:
        alone.call("connect", url=broker.url, retry_ms=60_000)
        alone.call("create_topic", topic="t")
        alone.call("consume", topic="t", lease_ms=600_000)
        alone.send("t", b"a")
        (before,) = alone.receive(1)
        assert broker.stop() == 0
        broker.start()
        alone.send("t", b"b")
        (after,) = alone.receive(1)
        assert after["payload"] == b"b"
        assert alone.call("ack", ids=[before["id"], after["id"]])["statuses"] == ["OK", "OK"]
    finally:
        broker.kill()
