"""Both clients, and the in-process one, against a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import AsyncClient, Client
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest, DuplicateKey, TopicExists, TopicUnknown, Unavailable
from dejaqueue.flight.server import FlightServer
from dejaqueue.local import LocalTransport
from dejaqueue.model import RowStatus
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.answers import is_ok
from tests.patience import PATIENCE_SECONDS

CLOCK = SystemClock()


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


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    from dejaqueue.model import Topic

    name = f"topic-{abs(id(request))}"
    broker.create_topic(Topic(name))
    yield name
    broker.delete_topic(name)


@pytest.fixture(params=["flight", "local"])
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Client]:
    if request.param == "local":
        with Client(transport=LocalTransport(broker)) as made:
            yield made
    else:
        server = request.getfixturevalue("server")
        with Client(server.url, retry_ms_max=5_000) as made:
            yield made


def in_ms(ms: int) -> int:
    return CLOCK.now_ms() + ms


def drain(client: Client, topic: str, count: int) -> list[bytes]:
    got: list[bytes] = []
    with client.consume_batches(topic, max_messages=count, idle_ms=5_000) as batches:
        for batch in batches:
            got += batch.batch.column("payload").to_pylist()
            settled = batch.ack()
            assert settled is not None
            assert settled.ok
    return got


def test_topics(client: Client) -> None:
    made = client.create_topic("made", lease_ms=1_000)
    assert client.create_topic("made", lease_ms=1_000) == made
    with pytest.raises(TopicExists):
        client.create_topic("made", lease_ms=2_000)
    with pytest.raises(TopicExists):
        client.create_topic("made", lease_ms=1_000, exist_ok=False)
    assert client.alter_topic("made", lease_ms=3_000).lease_ms == 3_000
    assert client.topic("made").lease_ms == 3_000
    assert "made" in [topic.name for topic in client.topics()]
    client.delete_topic("made")
    with pytest.raises(TopicUnknown):
        client.topic("made")
    with pytest.raises(TopicUnknown):
        client.send("made", b"x")
    with pytest.raises(TopicUnknown):
        next(client.consume("made"))


def test_the_life_of_a_message(client: Client, topic: str) -> None:
    message_id = client.send(
        topic, "tea", key="k", delay=0.03, group="g", tags=["hot"], headers={"a": "b"}
    )
    with pytest.raises(DuplicateKey) as caught:
        client.send(topic, b"tea", key="k")
    assert caught.value.id == message_id
    with client.consume(topic, idle_ms=5_000) as consumer:
        message = next(consumer)
        assert CLOCK.now_us() >= message.due_ms * 1000
        assert (message.id, message.payload, message.key) == (message_id, b"tea", "k")
        assert (message.group, message.tags, message.headers) == ("g", ("hot",), {"a": "b"})
        assert message.attempt == 1
        assert is_ok(message.nack(delay=timedelta(milliseconds=20)))
        assert message.ack(wait=True) is RowStatus.LEASE_LOST
        again = next(consumer)
        assert (again.id, again.attempt) == (message_id, 2)
        assert is_ok(again.extend(30))
        assert is_ok(again.ack(wait=True))
    assert client.stats(topic)["scheduled"] == 0


def test_never_early_and_everything_once(client: Client, topic: str) -> None:
    dues = in_ms(60) + np.random.default_rng(1).integers(0, 120, 2_000)
    sent = client.send_batch(
        topic, pa.table({"payload": [b"%d" % n for n in range(2_000)], "due": dues})
    )
    assert sent.ok
    seen: list[int] = []
    with client.consume_batches(topic, max_messages=2_000, idle_ms=5_000) as batches:
        for batch in batches:
            assert (batch.dues_ms * 1000 <= CLOCK.now_us()).all()
            seen += batch.ids.tolist()
            batch.ack(wait=False)
        lateness = batches.lateness()
    assert sorted(seen) == sorted(sent.ids.tolist())
    assert lateness.count == 2_000


def test_moves_cancels_and_looks(client: Client, topic: str) -> None:
    sent = client.send_batch(
        topic, [{"payload": b"%d" % n, "due": in_ms(60_000 + n), "key": f"k{n}"} for n in range(10)]
    )
    assert client.cancel(topic, keys=["k0", "nobody"]).statuses.tolist() == [
        RowStatus.OK,
        RowStatus.NOT_FOUND,
    ]
    assert client.cancel(topic, id=int(sent.ids[1])).ok
    assert client.move(topic, ids=sent.ids[2:4], due=[in_ms(30_000), in_ms(10_000)]).ok
    rows = client.peek(topic, limit=2).to_pylist()
    assert [row["key"] for row in rows] == ["k3", "k2"]
    assert client.peek(topic, keys=["k5"]).num_rows == 1
    assert client.peek(topic, ids=sent.ids[:3].tolist(), state="scheduled").num_rows == 1
    assert client.peek(topic, due_from=in_ms(31_000)).num_rows == 6
    assert client.move(topic, key="k9", due=in_ms(-1)).ok
    assert drain(client, topic, 1) == [b"9"]


def test_a_thousand_threads_worth_of_singles(client: Client, topic: str) -> None:
    ids: list[int] = []

    def send() -> None:
        ids.extend([client.send(topic, b"x") for _ in range(20)])

    threads = [threading.Thread(target=send) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 640
    assert len(drain(client, topic, 640)) == 640


def test_a_producer(client: Client, topic: str) -> None:
    with client.producer(topic, batch_rows=100, linger_ms=2) as producer:
        singles = [producer.send(b"%d" % n) for n in range(250)]
        batch = producer.send_batch(pa.table({"payload": [b"b"] * 10_000}))
        assert len({one.result(PATIENCE_SECONDS) for one in singles}) == 250
        assert len(batch.result(PATIENCE_SECONDS)) == 10_000
    assert len(drain(client, topic, 10_250)) == 10_250


def test_bad_input_names_field_and_limit(client: Client, topic: str) -> None:
    with pytest.raises(BadRequest, match="payload"):
        client.send(topic, b"x" * (2 << 20))
    with pytest.raises(BadRequest, match="key"):
        client.send(topic, b"x", key="k" * 300)
    with pytest.raises(BadRequest, match="tags"):
        client.send(topic, b"x", tags=["t"] * 17)
    assert client.send(topic, b"fine") >= 0


def test_acks_that_nobody_waits_for_arrive(client: Client, topic: str) -> None:
    client.send_batch(topic, [b"x"] * 2_500)
    with client.consume(topic, max_messages=2_500, idle_ms=5_000) as consumer:
        assert sum(1 for message in consumer if message.ack(wait=False) is None) == 2_500
    stats = client.stats(topic)
    assert (stats["leased"], stats["scheduled"], stats["acked"]) == (0, 0, 2_500)


def test_what_a_consumer_leaves_comes_to_the_next_at_once(client: Client, topic: str) -> None:
    client.send_batch(topic, [b"x"] * 100)
    with client.consume(topic, prefetch=100) as first:
        kept = next(first)
        assert is_ok(kept.ack(wait=True))
    assert len(drain(client, topic, 99)) == 99


def test_leases_are_extended_while_the_application_works(client: Client, topic: str) -> None:
    client.send(topic, b"x")
    with client.consume(topic, lease_ms=1_000) as consumer:
        message = next(consumer)
        with client.consume(topic, idle_ms=2_500) as other:
            assert list(other) == []
        assert is_ok(message.ack(wait=True))


def test_leases_of_many_small_deliveries_are_extended_too(client: Client, topic: str) -> None:
    with client.consume(topic, lease_ms=2_000) as consumer:
        messages = []
        for number in range(200):
            client.send(topic, b"%d" % number)  # a delivery of its own: it is taken at once
            messages.append(next(consumer))
        with client.consume(topic, idle_ms=4_000) as other:
            assert list(other) == []
        assert all(is_ok(message.ack(wait=True)) for message in messages)
        assert {message.attempt for message in messages} == {1}


def test_a_lease_that_is_not_extended_ends(client: Client, topic: str) -> None:
    client.send(topic, b"x")
    with client.consume(topic, lease_ms=500, auto_extend=False) as consumer:
        message = next(consumer)
        again = next(consumer)
        assert again.attempt == 2
        assert message.ack(wait=True) is RowStatus.LEASE_LOST
        assert is_ok(again.ack(wait=True))


def test_a_batch_whose_lease_ended_has_a_status_for_each_message(
    client: Client, topic: str
) -> None:
    client.send_batch(topic, [b"x"] * 3)
    with client.consume_batches(topic, lease_ms=500, auto_extend=False) as consumer:
        batch = next(consumer)
        assert len(batch) == 3
        again = next(consumer)
        lost = batch.ack()
        assert lost is not None
        assert lost.statuses.tolist() == [RowStatus.LEASE_LOST] * 3
        assert is_ok(again.ack(wait=True))


def test_messages_can_be_acked_after_the_loop(client: Client, topic: str) -> None:
    client.send_batch(topic, [b"x"] * 10)
    messages = list(client.consume(topic, idle_ms=200))
    late_id = client.send(topic, b"late")
    assert len(messages) == 10
    assert all(is_ok(message.ack(wait=True)) for message in messages)
    (late,) = client.consume(topic, max_messages=1, idle_ms=5_000)
    assert late.id == late_id
    assert is_ok(late.ack(wait=True))
    for thread in threading.enumerate():
        if thread.name == "dejaq-abandon":  # consumers that are done close behind our back
            thread.join(PATIENCE_SECONDS)


def test_asynchronous(server: FlightServer, topic: str) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            await client.connect()
            ids = await asyncio.gather(
                *[client.send(topic, b"%d" % n, due=in_ms(50 + n % 20)) for n in range(200)]
            )
            assert len(set(ids)) == 200
            seen = []
            async with client.consume(topic, max_messages=200, idle_ms=5_000) as consumer:
                async for message in consumer:
                    assert CLOCK.now_us() >= message.due_ms * 1000
                    seen.append(message.id)
                    await message.ack(wait=False)
            assert sorted(seen) == sorted(ids)
            assert (await client.stats(topic))["acked"] == 200
            assert (await client.cancel(topic, ids=ids)).counts() == {RowStatus.NOT_FOUND: 200}

    asyncio.run(main())


def test_a_server_that_comes_back_is_found_again(broker: Broker, topic: str) -> None:
    first = FlightServer(broker)
    first.start()
    port = first.port
    with Client(first.url, retry_ms_max=20_000) as client:
        client.send(topic, b"before")
        with client.consume(topic) as consumer:
            before = next(consumer)
            first.stop()
            sender: Callable[[], Any] = lambda: client.send(topic, b"meanwhile")  # noqa: E731
            thread = threading.Thread(target=sender)
            thread.start()
            second = FlightServer(broker, port=port)
            second.start()
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
            meanwhile = next(consumer)
            assert meanwhile.payload == b"meanwhile"
            assert is_ok(before.ack(wait=True))
            assert is_ok(meanwhile.ack(wait=True))
    second.stop()


def test_nobody_there() -> None:
    with Client("dejaq://127.0.0.1:1", retry_ms_max=100) as client:
        with pytest.raises(Unavailable):
            client.connect()
        with pytest.raises(Unavailable):
            client.send("t", b"x")
        with pytest.raises(Unavailable):
            next(client.consume("t"))


def test_a_restart_keeps_what_was_sent(tmp_path: Path) -> None:
    import dejaqueue

    with dejaqueue.open(tmp_path / "queue") as client:
        client.create_topic("t")
        sent = client.send_batch("t", [b"%d" % n for n in range(1_000)])
    with dejaqueue.open(tmp_path / "queue") as client:
        assert client.peek("t", limit=10_000).num_rows == 1_000
        assert client.cancel("t", ids=sent.ids[:10]).ok
        assert len(drain(client, "t", 990)) == 990
