"""Transactions and at-most-once consumers: both clients, over Flight and in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import AsyncClient, Client
from dejaqueue.errors import BadRequest, DuplicateKey, Refused
from dejaqueue.flight.server import FlightServer
from dejaqueue.local import LocalTransport
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.answers import is_ok


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    running = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def server(broker: Broker) -> Iterator[FlightServer]:
    running = FlightServer(broker)
    running.start()
    yield running
    running.stop()


@pytest.fixture(params=["flight", "local"])
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Client]:
    broker.create_topic(Topic("in", partitions=3))
    broker.create_topic(Topic("out", partitions=2))
    if request.param == "local":
        with Client(transport=LocalTransport(broker)) as made:
            yield made
    else:
        server = request.getfixturevalue("server")
        with Client(server.url, retry_ms_max=5_000) as made:
            yield made
    broker.delete_topic("in")
    broker.delete_topic("out")


def drain(client: Client, topic: str, count: int) -> list[bytes]:
    got: list[bytes] = []
    with client.consume_batches(topic, max_messages=count, idle_ms=5_000) as batches:
        for batch in batches:
            got += batch.batch.column("payload").to_pylist()
            batch.ack()
    return got


def live(client: Client, topic: str) -> int:
    stats = client.stats(topic)
    return int(stats["scheduled"]) + int(stats["leased"])


def test_consume_process_produce(client: Client) -> None:
    client.send_batch("in", [b"%d" % n for n in range(300)])
    taken = 0
    with client.consume_batches("in", batch_rows=50, max_messages=300, idle_ms=5_000) as batches:
        for batch in batches:
            with client.transaction() as transaction:
                payloads = batch.batch.column("payload").to_pylist()
                transaction.send_batch("out", [b"<" + payload + b">" for payload in payloads])
                transaction.ack(batch)
                assert live(client, "out") == taken
            taken += len(batch)
            assert live(client, "out") == taken
    assert sorted(drain(client, "out", 300)) == sorted(b"<%d>" % n for n in range(300))
    assert live(client, "in") == live(client, "out") == 0
    assert client.stats("in")["acked"] == 300


def test_an_exception_aborts__inputs_come_again(client: Client) -> None:
    client.send("in", b"a")
    consumer = client.consume("in", idle_ms=5_000)
    message = next(consumer)
    with pytest.raises(ZeroDivisionError), client.transaction() as transaction:
        transaction.ack(message)
        transaction.send("out", b"b")
        assert [row["staged"] for row in client.transactions("out")] == [1]
        assert [row["acked"] for row in client.transactions("in")] == [1]
        1 / 0  # noqa: B018
    again = next(consumer)
    assert (again.id, again.attempt) == (message.id, 2)
    assert is_ok(again.ack(wait=True))
    consumer.close()
    assert client.transactions("in") == client.transactions("out") == []
    assert live(client, "out") == 0


def test_explicit_ends(client: Client) -> None:
    transaction = client.transaction(timeout=5)
    assert transaction.name == ""
    transaction.send("in", b"a", key="k", delay=0.01)
    with pytest.raises(DuplicateKey):
        transaction.send("in", b"b", key="k")
    transaction.commit()
    transaction.commit()
    with pytest.raises(Refused, match="committed"):
        transaction.abort()
    with pytest.raises(Refused, match="over"):
        transaction.send("in", b"c")
    assert drain(client, "in", 1) == [b"a"]
    with client.transaction() as other:
        other.send("in", b"d")
        other.abort()
    client.transaction().commit()
    assert live(client, "in") == 0


def test_a_lost_lease_spoils_the_whole(client: Client) -> None:
    client.send("in", b"a")
    consumer = client.consume("in", idle_ms=5_000)
    message = next(consumer)
    assert is_ok(message.ack(wait=True))
    transaction = client.transaction()
    transaction.send("out", b"b")
    with pytest.raises(Refused, match="LEASE_LOST"):
        transaction.ack(message)
    with pytest.raises(Refused, match="not whole"):
        transaction.commit()
    consumer.close()
    assert live(client, "out") == 0
    assert client.transactions("out") == []


def test_its_time_is_over(client: Client) -> None:
    transaction = client.transaction(timeout=0.2)
    transaction.send("in", b"a")
    sees = client.consume("in", idle_ms=400)
    assert list(sees) == []
    with pytest.raises(Refused, match="aborted"):
        transaction.commit()
    assert client.transactions("in") == []


def test_nonsense(client: Client) -> None:
    for timeout in (0, 1e9):
        with pytest.raises(BadRequest, match="timeout"):
            client.transaction(timeout=timeout)
    with pytest.raises(BadRequest, match="messages or batches"):
        client.transaction().ack([object()])  # type: ignore[list-item]
    with pytest.raises(BadRequest), client.transaction() as transaction:
        transaction.send("no such topic", b"a")


def test_auto_ack__done_when_sent(client: Client) -> None:
    client.send_batch("in", [b"%d" % n for n in range(1_000)])
    with client.consume("in", auto_ack=True, max_messages=500, idle_ms=5_000) as consumer:
        one = next(consumer)
        with pytest.raises(BadRequest, match="nack"):
            one.nack()
        settled = one.ack(wait=True)
        assert settled is not None
        assert settled.ok
        one.ack(wait=False)
        with pytest.raises(BadRequest, match="auto_ack"):
            client.transaction().ack(one)
        assert len({message.payload for message in consumer} | {one.payload}) == 500
    rest = np.zeros(0, dtype=np.int64)
    with client.consume_batches("in", auto_ack=True, max_messages=500, idle_ms=5_000) as batches:
        for batch in batches:
            assert None not in batch.batch.column("payload").to_pylist()
            rest = np.concatenate([rest, batch.ids])
    assert len(np.unique(rest)) == 500
    stats = client.stats("in")
    assert (stats["scheduled"], stats["leased"], stats["acked"]) == (0, 0, 1_000)


def test_auto_ack__an_exception_gives_nothing_back(client: Client) -> None:
    client.send("in", b"a")
    with (
        pytest.raises(ZeroDivisionError),
        client.consume("in", auto_ack=True, idle_ms=5_000) as consumer,
    ):
        next(consumer)
        1 / 0  # noqa: B018
    assert live(client, "in") == 0


def test_asynchronous(server: FlightServer, client: Client) -> None:
    client.send("in", b"a")

    async def main() -> None:
        async with AsyncClient(server.url) as other:
            async with other.consume("in", max_messages=1, idle_ms=5_000) as consumer:
                async for message in consumer:
                    async with other.transaction() as transaction:
                        await transaction.send("out", message.payload * 2)
                        await transaction.ack(message)
            assert await other.transactions("in") == []

    asyncio.run(main())
    assert drain(client, "out", 1) == [b"aa"]
    assert live(client, "in") == 0
