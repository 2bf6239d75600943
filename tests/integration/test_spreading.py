"""Partitions as a user meets them, in process and over the wire: pause, exclusive, growing.

Not covered: hand-over and routing in detail (tests/rules/test_exclusive.py, test_growing.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.flight.server import FlightServer
from dejaqueue.local import LocalTransport
from dejaqueue.settings import BrokerSettings, JournalSettings


@pytest.fixture(params=["flight", "local"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    if request.param == "local":
        made = Client(transport=LocalTransport(broker))
    else:
        made = Client(f"dejaq://127.0.0.1:{server.port}")
    with made:
        yield made
    server.stop()
    broker.stop()


def payloads(client: Client, topic: str, idle_ms: int) -> list[bytes]:
    with client.consume(topic, idle_ms=idle_ms, auto_ack=True) as consumer:
        return [message.payload for message in consumer]


def test_a_paused_topic_keeps_its_messages_until_it_goes_on(client: Client) -> None:
    client.create_topic("t")
    assert client.pause_topic("t").paused
    client.send("t", "a")
    assert payloads(client, "t", 200) == []
    assert not client.resume_topic("t").paused
    assert payloads(client, "t", 1_000) == [b"a"]
    with pytest.raises(TopicUnknown):
        client.pause_topic("nowhere")


def test_an_observer_sees_who_has_what(client: Client) -> None:
    client.create_topic("t", partitions=3, assignment="exclusive")
    found = client.assignments("t")
    assert (found["topic"], found["assignment"]) == ("t", "exclusive")
    assert [part["consumer"] for part in found["partitions"]] == ["", "", ""]
    with client.consume("t", idle_ms=5_000) as consumer:
        # A partition whose message came has its consumer.
        assert client.send_batch("t", [{"payload": "a", "partition": p} for p in range(3)]).ok
        for _, message in zip(range(3), consumer, strict=False):
            message.ack()
        holders = {part["consumer"] for part in client.assignments("t")["partitions"]}
        assert len(holders) == 1
        assert "" not in holders
    with pytest.raises(TopicUnknown):
        client.assignments("nowhere")


def test_an_observer_sees_who_has_what_of_a_subscription(client: Client) -> None:
    client.create_topic("t", partitions=2)
    client.create_subscription("t", "log", assignment="exclusive")
    assert client.assignments("t")["assignment"] == "shared"
    with client.consume("t", subscription="log", idle_ms=5_000) as consumer:
        client.send_batch("t", [{"payload": "a", "partition": p} for p in range(2)])
        for _, message in zip(range(2), consumer, strict=False):
            message.ack()
        found = client.assignments("t@log")
        assert found["assignment"] == "exclusive"
        assert all(part["consumer"] for part in found["partitions"])
        assert not any(part["consumer"] for part in client.assignments("t")["partitions"])
    with pytest.raises(TopicUnknown):
        client.assignments("t@nowhere")


def test_a_key_stays_one_when_the_topic_grows(client: Client) -> None:
    client.create_topic("t")
    keys = [f"k{number}" for number in range(50)]
    rows = [{"payload": key, "key": key, "due": 4_000_000_000_000} for key in keys]
    assert client.send_batch("t", rows).ok
    assert client.alter_topic("t", partitions=5).partitions == 5
    assert not client.send_batch("t", rows).ok
    assert client.stats("t")["scheduled"] == 50
    assert client.cancel("t", keys=keys).ok
    assert client.send_batch("t", rows).ok
    with pytest.raises(BadRequest, match="partitions: at least 5"):
        client.alter_topic("t", partitions=2)


def test_a_spread_changes_nothing__where_a_broker_is_alone(client: Client) -> None:
    client.create_topic("t", partitions=2, spread=2)
    with client.producer("t") as producer:
        for payload in (b"a", b"b"):
            producer.send_batch([{"payload": payload}]).result().raise_for_status()
    assert sorted(payloads(client, "t", 300)) == [b"a", b"b"]
    client.delete_topic("t")
    with pytest.raises(TopicUnknown):
        client.send("t", b"c")


def test_partitions_may_be_left_to_the_broker(client: Client) -> None:
    made = client.create_topic("t", partitions="auto")
    assert (made.partitions, made.auto_partitions) == (1, True)
    assert client.create_topic("t", partitions="auto", exist_ok=True) == made
