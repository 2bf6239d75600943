"""What the shards of a topic have to agree on about its subscriptions, at three brokers.

Covered: an exclusive subscription is dealt out over all shards; one that is ephemeral stays while
anybody consumes it or has a message of it at any shard, and ends when nobody does.
Not covered: exclusive assignment itself (test_spread_exclusive.py: the same code), and when nobody
counts as there (tests/unit/broker/topic/test_attendance.py).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

import pytest

from dejaqueue.client import Consumer
from dejaqueue.topic_names import shard_name, subscription_name
from tests.cluster.spread import SpreadCluster, batch_of
from tests.cluster.test_spread_exclusive import PARTITIONS, parts, send_to_all
from tests.patience import until

EPHEMERAL_MS = 1_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpreadCluster]:
    with SpreadCluster() as made:
        yield made


def make(cluster: SpreadCluster, topic: str, **settings: object) -> None:
    """A topic in three shards with a subscription."""
    with cluster.client() as client:
        client.create_topic(topic, spread=3, partitions=PARTITIONS)
        client.create_subscription(topic, "s", **settings)  # type: ignore[arg-type]
    until(lambda: sorted(cluster.shard_owners(topic)) == ["a", "b", "c"], "an owner for each shard")


def test_an_exclusive_one_is_dealt_out_over_all_shards(cluster: SpreadCluster) -> None:
    make(cluster, "dealt", assignment="exclusive")
    with ExitStack() as stack:
        clients = [stack.enter_context(cluster.client(name)) for name in "ab"]
        clients.append(stack.enter_context(cluster.raw("c")))
        consumers: list[Consumer] = []
        for expected in ([6], [3, 3], [2, 2, 2]):
            client = clients[len(consumers)]
            consumers.append(stack.enter_context(client.consume("dealt", subscription="s")))
            until(lambda e=expected: parts(clients[0], "dealt@s") == e, f"{expected}")  # type: ignore[misc]
        assert clients[0].assignments("dealt")["assignment"] == "shared"
        send_to_all(clients[0], "dealt", 60)
        by: dict[int, set[int]] = {}
        got: Counter[bytes] = Counter()
        for number, consumer in enumerate(consumers):
            for message in islice(consumer, 60 // len(consumers)):
                by.setdefault(message.id >> 47, set()).add(number)
                got[message.payload] += 1
                message.ack()
        assert set(got.values()) == {1}
        assert len(got) == 60
        assert [len(by[partition]) for partition in range(PARTITIONS)] == [1] * PARTITIONS
        consumers[0].close()
        until(lambda: parts(clients[1], "dealt@s") == [3, 3], "its parts go to the others")


def test_an_ephemeral_one_stays_while_anybody_is_there_and_ends_then(
    cluster: SpreadCluster,
) -> None:
    make(cluster, "ends", ephemeral_ms=EPHEMERAL_MS)
    with cluster.client("b") as client:
        with client.consume("ends", subscription="s"):
            threading.Event().wait(3 * EPHEMERAL_MS / 1_000)
            assert "s" in client.subscriptions("ends")
        until(lambda: not client.subscriptions("ends"), "nobody consumes it")
        client.create_subscription("ends", "s", ephemeral_ms=EPHEMERAL_MS)
        until(lambda: not client.subscriptions("ends"), "nobody ever consumed this one")


@pytest.mark.parametrize("shard", [1, 2])
def test_a_message_in_hand_at_another_shard_keeps_an_ephemeral_one(
    cluster: SpreadCluster, shard: int
) -> None:
    topic = f"held-{shard}"
    make(cluster, topic, ephemeral_ms=EPHEMERAL_MS)
    owner = cluster.brokers[cluster.shard_owners(topic)[shard]]
    seen = subscription_name(shard_name(topic, shard, 3), "s")
    with cluster.client() as client:
        assert client.send_batch(topic, batch_of(1, partition=[shard])).ok
        asked = {"topic": seen, "partition": shard, "rows": 1, "lease_ms": 60_000}
        claim = owner.call("claim", asked)["claim"]
        threading.Event().wait(3 * EPHEMERAL_MS / 1_000)
        assert "s" in client.subscriptions(topic)
        owner.call("ack_claims", {"topic": seen, "claims": {str(shard): [claim]}})
        until(lambda: not client.subscriptions(topic), "nothing is in hand")
