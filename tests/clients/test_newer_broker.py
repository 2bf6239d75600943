"""Covers: an answer with more in it than a client knows does not break it, this one or ours.

Fields of JSON answers and errors, bytes behind frames, columns (docs/wire.md, "Answers may grow").
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue import Client
from dejaqueue.errors import TopicExists, TopicUnknown
from dejaqueue.flight.server import FlightServer
from tests.answers import is_ok
from tests.clients.drivers import ClientError, Driver
from tests.clients.newer_broker import NewerBroker


@pytest.fixture
def newer(server: FlightServer) -> Iterator[NewerBroker]:
    broker = NewerBroker(server.port)
    yield broker
    broker.close()


@pytest.fixture
def client(alone: Driver, newer: NewerBroker) -> Iterator[Driver]:
    """The client, connected to the newer broker, which has the topic `t`."""
    alone.call("connect", url=f"dejaq://127.0.0.1:{newer.port}")
    alone.call("create_topic", topic="t")
    yield alone
    alone.end()


def test_a_client_of_another_language_works_with_a_newer_broker(client: Driver) -> None:
    sent = client.send("t", b"a", b"b", key="") | client.send("t", b"c", key="k")
    assert sent["statuses"] == ["OK"]
    assert client.send("t", b"d", key="k")["statuses"] == ["DUPLICATE"]
    assert client.call("stats", topic="t")["scheduled"] == 3
    assert len(client.call("peek", topic="t")["rows"]) == 3
    client.call("consume", topic="t")
    found = client.receive(3)
    assert [row["payload"] for row in found] == [b"a", b"b", b"c"]
    ids = [row["id"] for row in found]
    assert client.call("ack", ids=ids[:1])["statuses"] == ["OK"]
    assert client.call("ack", ids=ids)["statuses"] == ["LEASE_LOST", "OK", "OK"]
    client.call("begin", topic="t", timeout_ms=10_000)
    client.send("t", b"e", do="tx_send")
    client.call("commit")
    (last,) = client.receive(1)
    assert last["payload"] == b"e"
    with pytest.raises(ClientError) as unknown:
        client.send("nobody", b"x")
    assert (unknown.value.number, unknown.value.fields["field"]) == (11, "topic")
    client.call("close_consumer")
    client.call("close")


def test_our_client_works_with_a_newer_broker(newer: NewerBroker) -> None:
    with Client(f"dejaq://127.0.0.1:{newer.port}") as client:
        assert client.create_topic("t").name == "t"
        assert [topic.name for topic in client.topics()] == ["t"]
        client.send_batch("t", [{"payload": b"a"}, {"payload": b"b", "key": "k"}])
        assert client.stats("t")["scheduled"] == 2
        assert sorted(client.peek("t")["payload"].to_pylist()) == [b"a", b"b"]
        assert client.counts("t")
        for message in client.consume("t", max_messages=2):
            assert is_ok(message.ack(wait=True))
        with client.transaction() as transaction:
            transaction.send_batch("t", [{"payload": b"c"}])
        assert [m.payload for m in client.consume("t", max_messages=1)] == [b"c"]
        with pytest.raises(TopicUnknown):
            client.send("nobody", b"x")
        with pytest.raises(TopicExists):
            client.create_topic("t", lease_ms=5_000)
