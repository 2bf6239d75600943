"""What makes a client pleasant: values as JSON, moves by a length of time, one message's facts.

Each with the client over the wire and in one process, and the asynchronous one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import AsyncClient, Client
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest
from dejaqueue.flight.server import FlightServer
from dejaqueue.local import LocalTransport
from dejaqueue.model import RowStatus
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS

CLOCK = SystemClock()
IDLE_MS = int(PATIENCE_SECONDS * 1000)


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
        server = request.getfixturevalue("server")
        with Client(server.url, retry_ms_max=5_000) as made:
            yield made


@pytest.fixture
def topic(client: Client) -> Iterator[str]:
    name = f"topic-{CLOCK.now_us()}"
    client.create_topic(name)
    yield name
    client.delete_topic(name)


VALUE = {"to": "alice", "lines": [1, 2.5, None, True], "é": "ü"}


def test_values_are_sent_as_json_on_every_way(client: Client, topic: str) -> None:
    client.send(topic, json=VALUE)
    client.send_batch(topic, [{"json": VALUE}])
    with client.producer(topic) as producer:
        producer.send(json=VALUE)
    with client.transaction() as transaction:
        transaction.send(topic, json=VALUE)
    client.send(topic, json=None)
    with client.consume(topic, max_messages=5, idle_ms=IDLE_MS) as messages:
        found = []
        for message in messages:
            found.append((message.payload, message.json()))
            message.ack()
    text = '{"to":"alice","lines":[1,2.5,null,true],"é":"ü"}'.encode()
    assert sorted(found, key=str) == sorted([(text, VALUE)] * 4 + [(b"null", None)], key=str)


def test_a_payload_that_is_no_json_is_refused_by_its_id(client: Client, topic: str) -> None:
    message_id = client.send(topic, b"{")
    with client.consume(topic, max_messages=1, idle_ms=IDLE_MS) as messages:
        message = next(messages)
        with pytest.raises(BadRequest, match=f"payload of message {message_id}"):
            message.json()
        message.ack()


def test_payload_or_json(client: Client, topic: str) -> None:
    with pytest.raises(BadRequest, match="payload or json, not both"):
        client.send(topic, b"x", json={})
    with pytest.raises(BadRequest, match="payload"):
        client.send(topic)
    with client.producer(topic) as producer, pytest.raises(BadRequest, match=r"json\.when"):
        producer.send(json={"when": object()})


def test_moves_by_a_length_of_time(client: Client, topic: str) -> None:
    due_ms = CLOCK.now_ms() + 3_600_000
    client.send_batch(topic, [{"payload": b"x", "due": due_ms, "key": key} for key in "ab"])
    assert client.move(topic, key="a", by=timedelta(minutes=-10)) is RowStatus.OK
    assert client.move(topic, keys=["a", "b"], by=[60, -60]).ok
    dues = dict(zip(*_columns(client.peek(topic), "key", "due"), strict=True))
    assert dues == {"a": due_ms - 540_000, "b": due_ms - 60_000}
    before_ms = CLOCK.now_ms()
    assert client.move(topic, key="a", delay=7_200) is RowStatus.OK
    moved_ms = client.peek(topic, keys=["a"])["due"][0].as_py()
    assert before_ms + 7_200_000 <= moved_ms <= CLOCK.now_ms() + 7_200_001


def test_changes_on_condition(client: Client, topic: str) -> None:
    due_ms = CLOCK.now_ms() + 3_600_000
    message_id = client.send(topic, b"x", due=due_ms)
    assert client.move(topic, id=message_id, by=1, if_due=due_ms) is RowStatus.OK
    assert client.move(topic, id=message_id, by=1, if_due=due_ms) is RowStatus.CHANGED
    assert client.cancel(topic, id=message_id, if_due=due_ms) is RowStatus.CHANGED
    seen = client.cancel(topic, ids=[message_id], if_due=due_ms + 1_000)
    assert seen.ok
    with pytest.raises(BadRequest, match=r"one of due, delay, by, got: 'delay, by'"):
        client.move(topic, id=message_id, delay=1, by=1)


def test_one_message_as_it_is(client: Client, topic: str) -> None:
    due_ms = CLOCK.now_ms() + 3_600_000
    message_id = client.send(topic, json=[1], due=due_ms, key="k", tags=["t"], headers={"a": "b"})
    found = client.get(topic, key="k")
    assert found is not None
    assert found == client.get(topic, id=message_id)
    assert (found.id, found.state, found.due_ms, found.attempts) == (
        *(message_id, "scheduled", due_ms),
        0,
    )
    assert (found.json(), found.tags, found.headers) == ([1], ("t",), (("a", "b"),))
    client.cancel(topic, key="k")
    assert client.get(topic, key="k") is None
    assert client.get(topic, id=message_id) is None
    client.send(topic, b"now", key="k")
    with client.consume(topic, max_messages=1, idle_ms=IDLE_MS) as messages:
        message = next(messages)
        leased = client.get(topic, key="k")
        assert leased is not None
        assert (leased.state, leased.attempts, leased.payload) == ("leased", 1, b"now")
        message.ack()
    for names in ({}, {"id": 1, "key": "k"}, {"key": 5}):
        with pytest.raises(BadRequest):
            client.get(topic, **names)


def _columns(table: pa.Table, *names: str) -> list[list[object]]:
    return [table[name].to_pylist() for name in names]


def test_what_a_person_reads_of_each(client: Client, topic: str, server: FlightServer) -> None:
    with Client(server.url, name="me") as named:
        assert repr(named) == f"<Client {server.url} name='me'>"
    assert repr(named) == f"<Client {server.url} name='me', closed>"
    ids = client.send_batch(topic, [{"payload": b"abc", "key": "k"}, {"payload": b""}]).ids
    consumer = client.consume(topic)
    assert repr(consumer) == f"<Consumer of {topic}, not open yet>"
    with consumer:
        assert repr(consumer) == f"<Consumer of {topic}, open>"
        message = next(consumer)
        shown = f"<Message id={ids[0]} due={message.due.isoformat()} attempt=1 key='k' payload=3 B"
        assert repr(message) == f"{shown}>"
        message.ack()
        assert repr(message) == f"{shown}, settled>"
    assert repr(consumer) == f"<Consumer of {topic}, closed>"
    with client.consume_batches(topic) as batches:
        batch = next(batches)
        assert repr(batch) == f"<MessageBatch of 1 messages, ids {ids[1]} to {ids[1]}>"
        batch.ack()
        assert repr(batch).endswith(", settled>")
    with client.producer(topic) as producer:
        assert repr(producer) == f"<Producer to {topic}, 0 streams open>"
    assert repr(producer) == f"<Producer to {topic}, closed>"
    with client.transaction() as transaction:
        assert repr(transaction) == "<Transaction without a name yet, open>"
        transaction.send(topic, b"x")
        assert transaction.name in repr(transaction)
    assert repr(transaction).endswith(", committed>")


def test_values_of_the_asynchronous_client(server: FlightServer) -> None:
    async def main() -> object:
        async with AsyncClient(server.url) as client:
            await client.create_topic("asynchronous")
            await client.send("asynchronous", json=VALUE)
            async for message in client.consume("asynchronous", max_messages=1):
                value = message.json()
                await message.ack()
            await client.delete_topic("asynchronous")
            return value

    assert asyncio.run(main()) == VALUE


def test_who_looks_after_a_consumer_that_is_gone_gives_back_what_it_had(
    client: Client, topic: str
) -> None:
    sent = client.send(topic, b"at work")
    with client.consume(topic) as gone:
        message = next(gone)
        given = client.nack(topic, ids=[message.id], attempts=[message.attempt], reason="killed")
        assert given.only() is RowStatus.OK
        again = next(gone)
        assert (again.id, again.attempt) == (sent, 2)
        stale = client.nack(topic, ids=[message.id], attempts=[message.attempt])
        assert stale.only() is RowStatus.LEASE_LOST
        again.ack()
