"""Subscriptions: both clients, over Flight and in this process, in transactions, by grants."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from dejaqueue.access.roles import Grant, Principal, Role
from dejaqueue.broker.broker import Broker
from dejaqueue.client import AsyncClient, Client
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest, DejaQError, TopicUnknown
from dejaqueue.flight.server import FlightServer
from dejaqueue.local import LocalTransport
from dejaqueue.settings import BrokerSettings, JournalSettings


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
    if request.param == "local":
        with Client(transport=LocalTransport(broker)) as made:
            yield made
    else:
        with Client(request.getfixturevalue("server").url, retry_ms_max=5_000) as made:
            yield made
    for topic in broker.topics():
        broker.delete_topic(topic.name)


def drain(client: Client, count: int, subscription: str = "") -> list[bytes]:
    got: list[bytes] = []
    with client.consume_batches(
        "t", subscription=subscription, max_messages=count, idle_ms=5_000
    ) as batches:
        for batch in batches:
            got += batch.batch.column("payload").to_pylist()
            batch.ack()
    return got


def test_every_subscription_gets_every_message(client: Client) -> None:
    client.create_topic("t", partitions=3)
    made = client.create_subscription("t", "log", order="arrival")
    assert (made["order"], made["start"]) == ("arrival", "new")
    client.create_subscription("t", "slow", paused=True, max_attempts=7)
    payloads = [b"%d" % number for number in range(500)]
    client.send_batch("t", [{"payload": payload, "delay": 3_600} for payload in payloads])
    client.send_batch("t", payloads)
    assert sorted(drain(client, 500)) == sorted(payloads)
    assert sorted(drain(client, 1_000, "log")) == sorted(payloads * 2)
    assert client.stats("t@log")["acked"] == 1_000
    behind = client.stats("t@slow")
    assert (behind["scheduled"], behind["ready"], behind["delivered"]) == (1_000, 500, 0)
    assert client.stats("t")["scheduled"] == 500
    client.create_subscription("t", "slow", paused=False)
    assert sorted(drain(client, 500, "slow")) == sorted(payloads)
    assert sorted(client.subscriptions("t")) == ["log", "slow"]
    client.delete_subscription("t", "log")
    with pytest.raises(TopicUnknown, match="t@log"):
        client.stats("t@log")
    with pytest.raises(BadRequest):
        client.delete_subscription("t", "log")
    with pytest.raises(DejaQError):
        client.send("t@slow", b"x")
    with pytest.raises(BadRequest):
        client.create_subscription("t", "a b")


def test_consume_process_produce_from_a_subscription(client: Client) -> None:
    client.create_topic("t", partitions=2, unnamed=False)
    client.create_topic("out")
    client.create_subscription("t", "s")
    client.send_batch("t", [b"%d" % number for number in range(100)])
    for commit in (False, True):
        with client.consume_batches(
            "t", subscription="s", batch_rows=100, max_messages=100, idle_ms=5_000
        ) as batches:
            for batch in batches:
                transaction = client.transaction()
                transaction.send_batch("out", batch.batch.column("payload").to_pylist())
                transaction.ack(batch)
                transaction.commit() if commit else transaction.abort()
    assert client.stats("out")["scheduled"] == client.stats("t@s")["acked"] == 100
    assert client.stats("t@s")["staged_acks"] == client.stats("out")["staged"] == 0


def test_the_asynchronous_client_works_on_one(server: FlightServer, broker: Broker) -> None:
    async def main() -> list[bytes]:
        got: list[bytes] = []
        async with AsyncClient(server.url) as client:
            await client.create_topic("t")
            await client.create_subscription("t", "s", lease_ms=5_000)
            await client.send("t", b"x")

            async def work(message: object) -> None:
                got.append(message.payload)  # type: ignore[attr-defined]

            await client.run("t", work, subscription="s", max_messages=1)
            assert (await client.stats("t@s"))["acked"] == 1
            assert (await client.subscriptions("t"))["s"]["lease_ms"] == 5_000
            await client.delete_subscription("t", "s")
        return got

    assert asyncio.run(main()) == [b"x"]
    broker.delete_topic("t")


def test_a_grant_for_a_topic_is_one_for_its_subscriptions() -> None:
    who = Principal("p", (Grant(Role.CONSUME, "orders.*"),))
    assert who.may(Role.CONSUME, "orders.new@billing")
    assert who.may(Role.CONSUME, "orders.new@billing=0-2")
    assert not who.may(Role.CONSUME, "mails@orders.new")
    assert not who.may(Role.MANAGE, "orders.new@billing")


def test_one_gets_again_what_the_topic_retains(client: Client) -> None:
    client.create_topic("t", partitions=3, retention_ms=3_600_000)
    client.create_subscription("t", "a")
    sent = sorted(b"%d" % number for number in range(10))
    client.send_batch("t", sent)
    assert sorted(drain(client, 10)) == sorted(drain(client, 10, "a")) == sent
    assert client.seek("t", "a", to="beginning") == (10, 0)
    assert client.stats("t@a").ready == client.stats("t").retained == 10
    assert client.stats("t").retained_from_ms > 0
    assert client.stats("t").ready == 0
    hour_ago = datetime.fromtimestamp(SystemClock().utc_ms() // 1_000 - 3_600, UTC)
    assert client.seek("t", "a", to=hour_ago) == (0, 0)
    assert sorted(drain(client, 10, "a")) == sent
    assert client.seek("t", to=hour_ago).replayed == 10  # the unnamed one, too
    assert client.seek("t", to="end").passed == 10
    client.create_subscription("t", "since", start=hour_ago, order="arrival")
    client.create_subscription("t", "all", start="beginning")
    assert sorted(drain(client, 10, "since")) == sorted(drain(client, 10, "all")) == sent
    for to in ("middle", 1.5, None, -1):
        with pytest.raises(BadRequest):
            client.seek("t", to=to)  # type: ignore[arg-type]
    with pytest.raises(TopicUnknown):
        client.seek("t", "b", to="end")


def test_a_seek_by_filter(client: Client) -> None:
    client.create_topic("t", retention_ms=3_600_000)
    client.create_subscription("t", "a")
    for number in range(4):
        client.send("t", b"%d" % number, group="acme" if number % 2 else "", tags=["x"])
    assert len(drain(client, 4, "a")) == 4
    assert client.seek("t", "a", to="beginning", group="acme", tags_all=["x"]) == (2, 0)
    assert drain(client, 2, "a") == [b"1", b"3"]
    assert client.seek("t", to="end", group="", due_to=SystemClock().now_ms()).passed == 2
    with pytest.raises(BadRequest, match="state"):
        client.seek("t", "a", to="end", state="ready")
    with pytest.raises(BadRequest, match="colour"):
        client.seek("t", "a", to="end", colour="red")  # type: ignore[call-arg]


def test_an_ephemeral_subscription_is_for_who_listens(client: Client) -> None:
    client.create_topic("t", retention_ms=3_600_000)
    client.send("t", b"x")
    names = [client.subscribe("t"), client.subscribe("t", order="arrival", start="beginning")]
    assert len(set(names)) == 2
    assert drain(client, 1, names[1]) == [b"x"]
    client.send("t", b"y")
    assert drain(client, 1, names[0]) == drain(client, 1, names[1]) == [b"y"]
    assert client.subscribe("t", "screen", ephemeral_ms=5_000) == "screen"
    assert client.subscriptions("t")["screen"]["ephemeral_ms"] == 5_000
    for wrong in (0, 999):
        with pytest.raises(BadRequest, match="ephemeral_ms"):
            client.subscribe("t", ephemeral_ms=wrong)


def test_the_asynchronous_client_seeks(server: FlightServer, client: Client) -> None:
    client.create_topic("t", retention_ms=3_600_000)
    client.send("t", "x")
    drain(client, 1)

    async def seek() -> tuple[int, int]:
        async with AsyncClient(server.url) as one:
            return await one.seek("t", to="beginning")

    assert asyncio.run(seek()) == (1, 0)
    assert drain(client, 1) == [b"x"]


def test_it_is_looked_at_by_its_name(client: Client) -> None:
    client.create_topic("t")
    client.create_subscription("t", "log", order="arrival")
    client.send("t", b"x", delay=3_600, tags=["a"])
    assert drain(client, 1, "log") == [b"x"]
    client.send("t", b"y", delay=3_600)
    for name, count in (("t", 2), ("t@log", 1)):
        assert client.counts(name, by="state")["scheduled"] == count
        assert client.peek(name).num_rows == count
    with pytest.raises(DejaQError):
        client.cancel_where("t@log")
