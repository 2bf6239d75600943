"""Acks of single messages, which do not wait for each other: what is promised of them.

How they are gathered: tests/unit/client/consuming/test_settle_batches.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import AsyncClient, Client
from dejaqueue.client.consuming import settling
from dejaqueue.clock import SystemClock
from dejaqueue.errors import DejaQError, Unauthenticated, Unavailable
from dejaqueue.flight.server import FlightServer
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.cutting_proxy import CuttingProxy
from tests.integration.access_fixture import MINE, Site, give_keys, make_topics, running
from tests.patience import PATIENCE_SECONDS

ROWS = 2_000
IDLE_MS = int(PATIENCE_SECONDS * 1_000)


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t"))
    yield broker
    broker.stop()


@pytest.fixture
def server(broker: Broker) -> Iterator[FlightServer]:
    server = FlightServer(broker)
    server.start()
    yield server
    server.stop()


def left(broker: Broker, topic: str = "t") -> int:
    stats = broker.call("stats", {"topic": topic})
    return int(stats["scheduled"]) + int(stats["leased"])


def test_when_the_iteration_has_ended_all_are_durable(broker: Broker, server: FlightServer) -> None:
    with Client(server.url) as client:
        client.send_batch("t", [b"x"] * ROWS)
        for message in client.consume("t", max_messages=ROWS, idle_ms=IDLE_MS):
            assert message.ack() is None
        assert left(broker) == 0


def test_when_the_consumer_is_closed_all_are_durable(broker: Broker, server: FlightServer) -> None:
    with Client(server.url) as client:
        client.send_batch("t", [b"x"] * ROWS)
        with client.consume("t", idle_ms=IDLE_MS) as consumer:
            for _ in range(ROWS):
                next(consumer).ack()
        assert left(broker) == 0


def test_coroutines_do_not_wait_either(broker: Broker, server: FlightServer) -> None:
    async def consume() -> None:
        async with AsyncClient(server.url) as client:
            await client.send_batch("t", [b"x"] * ROWS)
            async for message in client.consume("t", max_messages=ROWS, idle_ms=IDLE_MS):
                await message.ack()

    asyncio.run(consume())
    assert left(broker) == 0


def test_an_ack_after_the_iteration_is_durable_when_it_returns(
    broker: Broker, server: FlightServer
) -> None:
    with Client(server.url) as client:
        client.send_batch("t", [b"x"] * 3)
        messages = list(client.consume("t", max_messages=3, idle_ms=IDLE_MS))
        for count, message in enumerate(messages, 1):
            message.ack()
            assert left(broker) == 3 - count


def test_no_more_than_a_bound_are_on_their_way(
    broker: Broker, server: FlightServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a bound of one, each frame of acks is answered before the next message is acked."""
    monkeypatch.setattr(settling, "UNANSWERED_MAX", 1)
    most = 0
    with Client(server.url) as client:
        client.send_batch("t", [b"x"] * 50)
        with client.consume("t", idle_ms=IDLE_MS) as consumer:
            for _ in range(50):
                next(consumer).ack()
                consumer._core._together.flush()
                most = max(most, len(consumer._core._settling._unanswered))
    assert most <= 2
    assert left(broker) == 0


def test_an_ack_that_failed_is_raised_by_a_later_call_or_by_closing() -> None:
    with running() as site:
        give_keys(site)
        make_topics(site.broker)
        with Client(site.flight.url, api_key=site.keys["root"]) as client:
            client.send_batch(MINE, [b"x"] * 10)
        assert isinstance(_error_of_acks(site), Unauthenticated)


def _error_of_acks(site: Site) -> DejaQError | None:
    """What a consumer hears whose key is revoked between two acks."""
    with Client(site.flight.url, api_key=site.keys["consume mine"]) as taker:
        consumer = taker.consume(MINE, idle_ms=IDLE_MS)
        try:
            next(consumer).ack()
            site.broker.keys.revoke("consume.m")
            until_us = SystemClock().now_us() + int(PATIENCE_SECONDS * 1e6)
            while SystemClock().now_us() < until_us:
                next(consumer).ack()
            consumer.close()
        except DejaQError as error:
            return error
    return None


def test_acks_that_find_no_broker_fail_at_closing(server: FlightServer) -> None:
    proxy = CuttingProxy(server.port)
    with Client(f"dejaq://127.0.0.1:{proxy.port}", retry_ms_max=200) as client:
        client.send_batch("t", [b"x"] * 10)
        consumer = client.consume("t", idle_ms=IDLE_MS)
        message = next(consumer)
        proxy.cut()
        message.ack()
        with pytest.raises(Unavailable):
            consumer.close()
    proxy.close()
