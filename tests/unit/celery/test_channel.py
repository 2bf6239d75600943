"""A channel of kombu against a broker: exchanges, settling, prefetch, times, `revoke`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

import dejaqueue.celery
from dejaqueue.celery.link import Arrivals, Take
from dejaqueue.client import Client
from dejaqueue.clock import SystemClock
from dejaqueue.errors import DejaQError
from tests.patience import PATIENCE_SECONDS, until

CLOCK = SystemClock()
SCHEME = dejaqueue.celery.Transport.driver_type


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with Connection(url, transport_options={"retry_ms_max": 5_000}) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"q{CLOCK.now_us()}"


def received(connection: Connection, queues: list[Queue], count: int, **options: Any) -> list[Any]:
    """So many messages, with their queue, acked."""
    got: list[Any] = []

    def take(body: Any, message: Any) -> None:
        got.append((message.delivery_info["routing_key"], body))
        message.ack()

    with Consumer(connection, queues, callbacks=[take], **options):
        while len(got) < count:
            connection.drain_events(timeout=PATIENCE_SECONDS)
    return sorted(got)


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_an_exchange_leads_where_it_should__also_from_another_process(
    connection: Connection, url: str, name: str, kind: str
) -> None:
    exchange = Exchange(f"{name}-{kind}", kind)
    keys = {"direct": ["a", "b"], "topic": ["a.#", "b.*"], "fanout": ["", ""]}[kind]
    queues = [Queue(f"{name}.{i}", exchange, routing_key=key) for i, key in enumerate(keys)]
    for queue in queues:
        queue(connection.default_channel).declare()
    expected = {"direct": 1, "topic": 1, "fanout": 2}[kind]
    # Another client, as another process has it: it knows the exchange, and none of its queues.
    with Connection(url, transport_options={"name": f"other-{kind}"}) as other:
        producer = Producer(other, exchange=exchange)
        producer.publish({"n": 1}, routing_key="a" if kind == "direct" else "a.x.y")
        sizes = [connection.default_channel._size(queue.name) for queue in queues]
    assert sum(sizes) == expected
    assert sizes[0] == 1
    assert len(received(connection, queues, expected)) == expected


def test_an_eta_waits_at_the_broker(connection: Connection, client: Client, name: str) -> None:
    queue = Queue(name, routing_key=name)
    queue(connection.default_channel).declare()
    eta = datetime.now(UTC) + timedelta(hours=1)  # noqa: TID251 - as Celery makes it
    headers = {"task": "add", "id": f"{name}-id", "eta": eta.isoformat()}
    connection.Producer().publish([1], routing_key=name, exchange="", headers=headers)
    found = client.get(name, key=f"{name}-id")
    assert found is not None
    assert found.state == "scheduled"
    assert abs(found.due_ms - eta.timestamp() * 1000) <= 1


def test_revoke_cancels_at_the_broker(connection: Connection, client: Client, name: str) -> None:
    Queue(name, routing_key=name)(connection.default_channel).declare()
    producer = connection.Producer()
    for retries in (0, 3):
        headers = {"task": "add", "id": f"{name}-id", "retries": retries}
        producer.publish([1], routing_key=name, exchange="", headers=headers)
    assert client.counts(name)["ready"] == 2
    control = Exchange(f"{name}.pidbox", "fanout", durable=False)
    command = {"method": "revoke", "arguments": {"task_id": [f"{name}-id"]}}
    producer.publish(command, exchange=control, declare=[control], routing_key="")
    assert client.counts(name)["ready"] == 0


def test_a_queue_that_lives_with_its_consumer_goes_with_it(
    connection: Connection, client: Client, name: str
) -> None:
    queue = Queue(name, routing_key=name, auto_delete=True, durable=False)
    with connection.channel() as channel:
        bound = queue(channel)
        bound.declare()
        connection.Producer().publish(1, routing_key=name, exchange="")
        assert received(connection, [queue], 1) == [(name, 1)]
        bound.delete()
    assert name not in {topic.name for topic in client.topics()}


def test_what_a_closed_channel_did_not_ack_comes_again_at_once(
    connection: Connection, name: str
) -> None:
    queue = Queue(name, routing_key=name)
    first: list[Any] = []
    channel = connection.channel()
    consumer = Consumer(channel, [queue], callbacks=[lambda _, message: first.append(message)])
    consumer.consume()
    connection.Producer().publish(1, routing_key=name, exchange="")
    connection.drain_events(timeout=PATIENCE_SECONDS)
    assert first[0].delivery_info["redelivered"] is False
    channel.close()
    again = queue(connection.default_channel).get()
    while again is None:
        again = queue(connection.default_channel).get()
    assert again.delivery_info["redelivered"] is True
    again.ack()


def test_prefetch_counts_what_is_not_acked__and_can_change(
    connection: Connection, name: str
) -> None:
    queue = Queue(name, routing_key=name)
    got: list[Any] = []
    channel = connection.channel()
    channel.basic_qos(0, 2, False)
    consumer = Consumer(channel, [queue], callbacks=[lambda _, message: got.append(message)])
    consumer.consume()
    for number in range(5):
        connection.Producer().publish(number, routing_key=name, exchange="")

    def drain(count: int) -> None:
        while len(got) < count:
            connection.drain_events(timeout=PATIENCE_SECONDS)

    drain(2)
    assert channel._size(name) == 3
    got[0].ack()
    drain(3)
    channel.basic_qos(0, 5, False)
    drain(5)
    for message in got[1:]:
        message.ack()
    assert sorted(message.payload for message in got) == [0, 1, 2, 3, 4]
    consumer.cancel()


def test_a_priority_queue_hands_out_the_highest_first(connection: Connection, name: str) -> None:
    queue = Queue(name, routing_key=name, max_priority=10)
    bound = queue(connection.default_channel)
    bound.declare()
    for priority in (0, 3, 9):
        connection.Producer().publish(priority, routing_key=name, exchange="", priority=priority)
    taken = [bound.get(no_ack=True).payload for _ in range(3)]
    assert taken == [9, 3, 0]


def test_all_that_came_is_handed_over_at_once(connection: Connection, name: str) -> None:
    queue = Queue(name, routing_key=name)
    producer = connection.Producer()
    for n in range(3):
        producer.publish(n, routing_key=name, exchange="", declare=[queue])
    got: list[Any] = []
    with Consumer(connection, [queue], callbacks=[lambda body, _: got.append(body)], no_ack=True):
        until(lambda: len(connection.transport._arrivals) == 3, "all to come")
        connection.drain_events(timeout=PATIENCE_SECONDS)
    assert got == [0, 1, 2]


def test_a_message_of_others_is_a_dead_letter(
    connection: Connection, client: Client, name: str
) -> None:
    client.create_topic(f"{name}.dead")
    queue = Queue(name, routing_key=name)
    queue(connection.default_channel).declare()
    client.send(name, b"tea is ready")
    connection.Producer().publish(1, routing_key=name, exchange="")
    assert received(connection, [queue], 1) == [(name, 1)]
    until(lambda: client.counts(f"{name}.dead").get("ready"), "the dead letter")


def test_a_queue_that_was_deleted_is_made_again_by_a_message(
    connection: Connection, client: Client, name: str
) -> None:
    queue = Queue(name, routing_key=name)
    queue(connection.default_channel).declare()
    client.delete_topic(name)
    assert connection.default_channel._size(name) == 0
    connection.Producer().publish(1, routing_key=name, exchange="")
    assert received(connection, [queue], 1) == [(name, 1)]


def test_what_comes_before_a_consumer_has_its_number_is_acked_as_its_own(
    connection: Connection, client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that wait already come on a thread of the link, at once."""
    queue = Queue(name, routing_key=name)
    channel = connection.default_channel
    queue(channel).declare()
    for n in range(2):
        connection.Producer().publish([n], routing_key=name, exchange="")
    consume = channel.link.consume

    def slow(topic: str, prefetch: int, take: Take) -> int:
        came = threading.Event()

        def took(arrivals: Arrivals | DejaQError) -> None:
            take(arrivals)
            came.set()

        number: int = consume(topic, prefetch, took)
        if topic == name:
            assert came.wait(PATIENCE_SECONDS)
        return number

    monkeypatch.setattr(channel.link, "consume", slow)
    assert len(received(connection, [queue], 2)) == 2
    until(lambda: client.stats(name).acked == 2, "both are acked")
