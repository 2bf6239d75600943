"""Exclusive assignment of a topic in shards: its home decides for all of them.

Covered: each partition has one consumer and consumers have even parts, over the shards of three
brokers; who stands by; a consumer that leaves, a broker that leaves, a home that is new.
Not here: that a partition changes hands only when nothing of it is leased (tests/rules/
test_exclusive.py: it is decided in the partition); the home's decisions one by one
(tests/unit/broker/consumers/test_home_assignment.py).
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import Client
from dejaqueue.client import Consumer
from tests.cluster.brokers import patiently
from tests.cluster.spread import SpreadCluster, batch_of
from tests.patience import PATIENCE_SECONDS, until

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpreadCluster]:
    with SpreadCluster() as made:
        yield made


@pytest.fixture
def topic(cluster: SpreadCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with cluster.client() as client:
        client.create_topic(
            name, spread=3, partitions=PARTITIONS, assignment="exclusive", lease_ms=5_000
        )
    until(lambda: sorted(cluster.shard_owners(name)) == ["a", "b", "c"], "an owner for each shard")
    return str(name)


def holders(client: Client, topic: str) -> dict[int, str]:
    """Who has each partition, or gets it next."""
    found: list[dict[str, Any]] = []
    patiently(lambda: found.append(client.assignments(topic)))
    return {row["partition"]: row["next"] or row["consumer"] for row in found[0]["partitions"]}


def parts(client: Client, topic: str) -> list[int]:
    """How many partitions each consumer has, ascending; none while one has nobody."""
    found = holders(client, topic)
    assert sorted(found) == list(range(PARTITIONS))
    return [] if "" in found.values() else sorted(Counter(found.values()).values())


def send_to_all(client: Client, topic: str, count: int, first: int = 0) -> None:
    partitions = pa.array([number % PARTITIONS for number in range(count)], pa.int32())
    assert client.send_batch(topic, batch_of(count, first, partition=partitions)).ok


def test_consumers_at_any_broker_have_even_parts_of_all_shards(
    cluster: SpreadCluster, topic: str
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(cluster.client(name)) for name in "ab"]
        clients.append(stack.enter_context(cluster.raw("c")))
        consumers: list[Consumer] = []
        for expected in ([6], [3, 3], [2, 2, 2]):
            client = clients[len(consumers)]
            consumers.append(stack.enter_context(client.consume(topic)))
            until(lambda e=expected: parts(clients[0], topic) == e, f"{expected}")  # type: ignore[misc]
        before = holders(clients[0], topic)
        consumers[1].close()
        until(lambda: parts(clients[0], topic) == [3, 3], "its parts go to the others")
        after = holders(clients[0], topic)
        stayed = [number for number, name in before.items() if after[number] == name]
        assert len(stayed) == 4  # no more changed hands than those that had to


def test_who_has_nothing_in_any_shard_stands_by(cluster: SpreadCluster, topic: str) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(cluster.client())
        for _ in range(PARTITIONS + 1):
            stack.enter_context(client.consume(topic))
        until(lambda: parts(client, topic) == [1] * PARTITIONS, "one each")
        [idle] = client.assignments(topic)["standby"]
        assert idle not in holders(client, topic).values()


def test_order_is_kept_and_nothing_comes_twice_while_consumers_come_and_go(
    cluster: SpreadCluster, topic: str
) -> None:
    taken: dict[int, list[int]] = defaultdict(list)
    firsts: dict[int, list[int]] = defaultdict(list)  # what is given back is due later than before
    by: set[str] = set()
    lock, stop = threading.Lock(), threading.Event()
    everything = 360

    def consume(name: str, most: int) -> None:
        with cluster.client("a") as client:
            while not stop.is_set():
                with client.consume(
                    topic, prefetch=6, max_messages=most, idle_ms=1_000
                ) as consumer:
                    for message in consumer:
                        with lock:
                            number, partition = int(message.payload[1:]), message.id >> 47
                            taken[partition].append(number)
                            if message.attempt == 1:
                                firsts[partition].append(number)
                            by.add(name)
                        message.ack()

    sizes = (20, 30, 50)
    threads = [
        threading.Thread(target=consume, args=(f"c{n}", most)) for n, most in enumerate(sizes)
    ]
    for thread in threads:
        thread.start()
    with cluster.client("b") as client:
        for first in range(0, everything, 60):
            send_to_all(client, topic, 60, first)
        until(
            lambda: sum(len(set(numbers)) for numbers in taken.values()) == everything,
            "all of them",
        )
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert sorted(taken) == list(range(PARTITIONS))
    for partition, numbers in taken.items():
        assert sorted(numbers) == sorted(set(numbers)), (partition, numbers)
        assert firsts[partition] == sorted(firsts[partition]), (partition, numbers)
    assert len(by) >= 2


def test_the_next_home_leaves_partitions_where_they_are(cluster: SpreadCluster, topic: str) -> None:
    home = cluster.shard_owners(topic)[0]
    others = [name for name in "abc" if name != home]
    with ExitStack() as stack:
        client = stack.enter_context(cluster.client(others[0]))
        for _ in range(3):
            stack.enter_context(client.consume(topic))
        until(lambda: parts(client, topic) == [2, 2, 2], "even parts")
        send_to_all(client, topic, 12)
        before = holders(client, topic)
        if home == "a":  # SpreadCluster.shard_owners asks it
            cluster.lose_touch(home)
            until(lambda: home not in cluster.shard_owners(topic), "another home")
            cluster.be_back(home)
        else:
            cluster.stop(home)
            until(lambda: home not in cluster.shard_owners(topic), "another home")
        until(lambda: parts(client, topic) == [2, 2, 2], "even parts again")
        after = holders(client, topic)
        kept = [number for number in before if before[number] == after[number]]
        assert {number for number in range(PARTITIONS) if number % 3} <= set(kept)
    if home not in cluster.brokers:
        cluster.start(home)
    until(lambda: sorted(cluster.shard_owners(topic)) == ["a", "b", "c"], "all are back")
