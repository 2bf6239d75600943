"""Limits of a topic in shards: exact over all of them, and where the load is.

Not here: the home's decisions among faults (tests/unit/broker/topic/test_home_allotments.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest

from dejaqueue import Client
from dejaqueue.client.stats import TopicStats
from dejaqueue.errors import DejaQError, ResourceExhausted
from tests.cluster.brokers import patiently
from tests.cluster.spread import SpreadCluster, batch_of, shards_of
from tests.patience import PATIENCE_SECONDS, until

LIMIT = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpreadCluster]:
    with SpreadCluster() as made:
        yield made


@pytest.fixture
def topic(cluster: SpreadCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with cluster.client() as client:
        client.create_topic(name, spread=3, partitions=6, max_backlog_count=LIMIT)
    until(lambda: sorted(cluster.shard_owners(name)) == ["a", "b", "c"], "an owner for each shard")
    return str(name)


def live(client: Client, topic: str) -> int:
    found: list[TopicStats] = []
    patiently(lambda: found.append(client.stats(topic)))
    return found[0].scheduled + found[0].leased


def to_partition(number: int, count: int) -> pa.RecordBatch:
    return batch_of(count, partition=pa.array([number] * count, pa.int32()))


@pytest.mark.parametrize("kind", ["follows", "raw"])
def test_one_shard_may_take_all_of_the_limit_and_no_more(
    cluster: SpreadCluster, topic: str, kind: str
) -> None:
    with cluster.client("b") if kind == "follows" else cluster.raw("b") as client:
        assert client.send_batch(topic, to_partition(1, LIMIT)).ok  # far above an even share
        for partition in range(6):
            with pytest.raises(ResourceExhausted, match=f"max_backlog_count is {LIMIT}"):
                client.send_batch(topic, to_partition(partition, 1))
        taken = 0
        for message in client.consume(topic, idle_ms=3_000, max_messages=10):
            message.ack()
            taken += 1
        assert taken == 10
        patiently(lambda: client.send_batch(topic, to_partition(2, 10)))  # it follows the load
        with pytest.raises(ResourceExhausted):
            client.send_batch(topic, to_partition(1, 1))
        assert live(client, topic) == LIMIT


def test_producers_at_all_brokers_never_exceed_it_together(
    cluster: SpreadCluster, topic: str
) -> None:
    taken: list[int] = []
    most: list[int] = []
    lock, stop = threading.Lock(), threading.Event()

    def produce(name: str) -> None:
        with cluster.client(name) as client:
            for number in range(60):
                try:
                    keys = pa.array([f"{name}{number}-{row}" for row in range(2)])
                    sent = client.send_batch(topic, batch_of(2, key=keys))
                except DejaQError:  # a part of the batch may be in
                    continue
                with lock:
                    taken.extend(sent.ids.tolist())

    def watch() -> None:
        with cluster.client("a") as client:
            while not stop.is_set():
                most.append(live(client, topic))

    threads = [threading.Thread(target=produce, args=(name,)) for name in "abc"]
    watcher = threading.Thread(target=watch)
    for thread in (*threads, watcher):
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    stop.set()
    watcher.join(PATIENCE_SECONDS)
    assert max(most) <= LIMIT
    with cluster.client("c") as client:
        assert len(taken) <= live(client, topic) <= LIMIT
        # What is left is not lost between the shards.
        for number in range(LIMIT):
            if live(client, topic) == LIMIT:
                break
            patiently(lambda n=number: client.send(topic, b"x", key=f"last{n}"))  # type: ignore[misc]
        assert live(client, topic) == LIMIT
    assert len(set(shards_of(taken))) == 3


def test_the_limit_holds_when_brokers_leave_and_when_it_is_altered(
    cluster: SpreadCluster, topic: str
) -> None:
    with cluster.client("a") as client:
        for partition in range(3):
            client.send_batch(topic, to_partition(partition, 8))
        cluster.stop("c")
        until(lambda: set(cluster.shard_owners(topic)) == {"a", "b"}, "others have its shards")
        patiently(lambda: client.send_batch(topic, to_partition(2, 6)))
        assert live(client, topic) == LIMIT
        assert _is_full(client, topic, 0)
        client.alter_topic(topic, max_backlog_count=LIMIT + 5)
        patiently(lambda: client.send_batch(topic, to_partition(0, 5)))
        client.alter_topic(topic, max_backlog_count=10)
        for partition in range(3):
            until(lambda p=partition: _is_full(client, topic, p), "full")  # type: ignore[misc]
        assert live(client, topic) == LIMIT + 5
    cluster.start("c")
    until(lambda: "c" in cluster.shard_owners(topic), "c is back")


def _is_full(client: Client, topic: str, partition: int) -> bool:
    try:
        client.send_batch(topic, to_partition(partition, 6))
    except ResourceExhausted:
        return True
    raise AssertionError("it was let in")


def test_a_producer_has_one_rate_whichever_shards_it_sends_to(cluster: SpreadCluster) -> None:
    with cluster.client("b") as client:
        client.create_topic("rated", spread=3, producer_rate_max=60)
    until(lambda: sorted(cluster.shard_owners("rated")) == ["a", "b", "c"], "owners")
    with Client(cluster._address("b"), name="billing") as client:
        assert client.send_batch("rated", to_partition(0, 40)).ok  # above a third of the rate
        with pytest.raises(ResourceExhausted, match="producer_rate_max is 60"):
            for _ in range(PATIENCE_TRIES):
                for partition in (1, 2):
                    client.send_batch("rated", to_partition(partition, 20))
        with httpx.Client(timeout=PATIENCE_SECONDS) as http:
            sent = http.post(f"{cluster.url('c')}/v1/topics/rated/messages", json={"payload": "x"})
            assert sent.status_code == 201, sent.text  # another producer


PATIENCE_TRIES = 50
"""A producer that is slower than its rate, on a machine that is that slow, is never refused."""
