"""Transactions on topics in shards, each on a broker of its own: all of it counts, or nothing.

Covered: sends and acks on shards of three brokers, by clients that follow and by such as do not,
over HTTP, in branches and as epochs of a sink; a broker that leaves before the decision.
Not here: topics of two brokers (test_transactions_apart.py), the same among faults
(tests/simulation/cluster), Spark's writer (tests/spark/test_cluster.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dejaqueue import Client
from dejaqueue.client import branch
from dejaqueue.errors import DuplicateKey, Refused
from tests.cluster.brokers import patiently
from tests.cluster.spread import SpreadCluster, batch_of, shards_of
from tests.patience import PATIENCE_SECONDS, until

SHARDS = {0, 1, 2}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpreadCluster]:
    with SpreadCluster() as made:
        yield made


@pytest.fixture(params=["follows", "raw"])
def client(cluster: SpreadCluster, request: pytest.FixtureRequest) -> Iterator[Client]:
    with cluster.client("b") if request.param == "follows" else cluster.raw("b") as made:
        yield made


@pytest.fixture
def topics(cluster: SpreadCluster, request: pytest.FixtureRequest) -> tuple[str, str]:
    """An input and an output, both in three shards."""
    name = request.node.name.replace("[", "-").replace("]", "")
    names = f"{name}.in", f"{name}.out"
    with cluster.client() as client:
        for one in names:
            client.create_topic(one, spread=3, partitions=6)
    for one in names:
        until(lambda n=one: sorted(cluster.shard_owners(n)) == ["a", "b", "c"], "owners")  # type: ignore[misc]
    return names


def keyed(count: int, word: str = "k") -> pa.RecordBatch:
    """Messages whose keys send them to every shard."""
    return batch_of(count, key=pa.array([f"{word}{number}" for number in range(count)]))


def seen(client: Client, topic: str) -> list[bytes]:
    """What may be delivered, or is."""
    pages: list[list[bytes]] = []
    patiently(lambda: pages.append(client.peek(topic, limit=1_000)["payload"].to_pylist()))
    return sorted(pages[0])


def payloads(count: int) -> list[bytes]:
    return sorted(f"p{number}".encode() for number in range(count))


def test_inputs_and_outputs_of_all_shards_count_together(
    topics: tuple[str, str], client: Client
) -> None:
    source, target = topics
    client.send_batch(source, keyed(60))
    taken = 0
    with client.consume_batches(source, batch_rows=50, idle_ms=3_000) as batches:
        for batch in batches:
            with client.transaction() as transaction:
                keys = pa.array([f"o{one}" for one in batch.ids])
                sent = transaction.send_batch(
                    target, pa.record_batch({"payload": batch.batch["payload"], "key": keys})
                )
                transaction.ack(batch)
                assert len(seen(client, target)) == taken
                assert sum(row["staged"] for row in client.transactions(target)) == len(sent.ids)
            taken += len(batch)
            assert len(seen(client, target)) == taken
            if taken == 60:
                break
    assert seen(client, target) == payloads(60)
    assert seen(client, source) == []
    assert client.transactions(source) == client.transactions(target) == []
    assert client.stats(source)["acked"] == 60
    ids = client.peek(target, limit=100)["id"].to_pylist()
    assert set(shards_of(ids)) == SHARDS


def test_an_abort_forgets_all_of_it__and_inputs_come_again(
    topics: tuple[str, str], client: Client
) -> None:
    source, target = topics
    client.send_batch(source, keyed(12))
    with client.consume(source, idle_ms=5_000, prefetch=30) as consumer:
        first = [next(consumer) for _ in range(12)]
        assert set(shards_of([one.id for one in first])) == SHARDS
        with pytest.raises(ZeroDivisionError), client.transaction() as transaction:
            transaction.ack(first)
            transaction.send_batch(target, keyed(12))
            1 / 0  # noqa: B018
        again = [next(consumer) for _ in range(12)]
        assert {(one.id, one.attempt) for one in again} == {(one.id, 2) for one in first}
        with client.transaction() as transaction:
            transaction.ack(again)
    assert seen(client, source) == seen(client, target) == []


def test_keys_of_what_is_staged_are_taken_in_every_shard(
    topics: tuple[str, str], client: Client
) -> None:
    _, target = topics
    transaction = client.transaction()
    assert transaction.send_batch(target, keyed(12)).ok
    for number in range(12):
        with pytest.raises(DuplicateKey):
            client.send(target, b"other", key=f"k{number}")
    transaction.abort()
    assert client.send_batch(target, keyed(12)).ok


def test_one_lost_lease_in_one_shard_spoils_all_shards(
    topics: tuple[str, str], client: Client
) -> None:
    source, target = topics
    client.send_batch(source, keyed(12))
    with client.consume(source, idle_ms=5_000, prefetch=30) as consumer:
        messages = [next(consumer) for _ in range(12)]
        messages[0].ack()
        transaction = client.transaction()
        transaction.send_batch(target, keyed(12))
        with pytest.raises(Refused, match="LEASE_LOST"):
            transaction.ack(messages)
        with pytest.raises(Refused, match="not whole"):
            transaction.commit()
    assert seen(client, target) == []
    assert client.transactions(target) == []


def test_branches_that_won_count_in_every_shard(topics: tuple[str, str], client: Client) -> None:
    _, target = topics
    core = client._core
    begun = branch.begin(core, target, 60_000)
    places: set[str] = set()
    for name in ("0.1", "1.1", "0.2"):  # task 0 was done twice
        hand = branch.Branch(core, target, f"{begun.name}~{name}")
        hand.send(keyed(12, f"task{name[0]}-"))
        places |= set(hand.finish().places)
    assert {int(place.rpartition("/")[2]) % 3 for place in places} == SHARDS
    assert seen(client, target) == []
    body = {"transaction": begun.name, "participants": sorted(places), "branches": ["0.2", "1.1"]}
    core.call("commit_transaction", body)
    assert seen(client, target) == sorted(payloads(12) * 2)
    assert client.transactions(target) == []


def test_an_epoch_of_a_sink_is_committed_once(topics: tuple[str, str], client: Client) -> None:
    _, target = topics
    core = client._core
    for epoch in range(3):
        for turn in (1, 2):  # the driver died, and asks again
            begun = branch.begin(core, target, 60_000, query="q", epoch=epoch)
            assert begun.is_committed == (turn == 2)
            hand = branch.Branch(core, target, f"{begun.name}~0.{turn}")
            hand.send(keyed(12, f"{epoch}.{turn}-"))
            places = hand.finish().places
            ends = {"until_ms": begun.until_ms, "participants": places, "branches": [f"0.{turn}"]}
            core.call("commit_epoch", {"topic": target, "query": "q", "epoch": epoch, **ends})
    assert seen(client, target) == sorted(payloads(12) * 3)
    assert client.transactions(target) == []


def test_over_http_any_broker_stages_and_decides(
    cluster: SpreadCluster, topics: tuple[str, str]
) -> None:
    source, target = topics
    messages = [{"payload": f"p{number}", "key": f"k{number}"} for number in range(12)]

    def call(path: str, body: dict[str, Any], name: str) -> dict[str, Any]:
        answer = http.post(f"{cluster.url(name)}/v1{path}", json=body)
        assert answer.status_code < 300, answer.text
        return dict(answer.json()) if answer.content else {}

    with httpx.Client(timeout=PATIENCE_SECONDS) as http, cluster.client("b") as client:
        client.send_batch(source, keyed(12))
        for end, left in (("abort", 0), ("commit", 12)):
            begun = call("/transactions", {"topic": source}, "a")["transaction"]
            of = f"?transaction={begun}"
            sent = call(f"/topics/{target}/messages{of}", {"messages": messages}, "b")
            places = set(sent["participants"])
            assert len({int(place.rpartition("/")[2]) % 3 for place in places}) == 3
            leased: list[dict[str, Any]] = []
            while len(leased) < 12:
                more = call(f"/topics/{source}/lease", {"max": 12, "wait_ms": 5_000}, "c")
                leased += more["messages"]
            held = [{"id": one["id"], "attempt": one["attempt"]} for one in leased]
            acked = call(f"/topics/{source}/ack{of}", {"messages": held}, "c")
            places |= set(acked["participants"])
            assert seen(client, target) == []
            decision = {"transaction": begun, "participants": sorted(places)}
            call(f"/transactions/{end}", decision, "b")
            assert len(seen(client, target)) == left
        assert seen(client, source) == []


@pytest.mark.parametrize("commits", [True, False])
def test_a_broker_that_leaves_before_the_decision_tears_nothing(
    cluster: SpreadCluster, topics: tuple[str, str], commits: bool
) -> None:
    source, target = topics
    with cluster.client("a") as client:
        client.send_batch(source, keyed(12))
        with client.consume(source, idle_ms=5_000, prefetch=30) as consumer:
            messages = [next(consumer) for _ in range(12)]
            transaction = client.transaction(timeout=300)
            transaction.send_batch(target, keyed(12))
            transaction.ack(messages)
        cluster.stop("c")
        until(lambda: set(cluster.shard_owners(target)) == {"a", "b"}, "others have its shards")
        patiently(transaction.commit if commits else transaction.abort)
        left = [[], payloads(12)] if commits else [payloads(12), []]
        until(lambda: [seen(client, one) for one in topics] == left, "all of it, or nothing")
        assert client.transactions(source) == client.transactions(target) == []
    cluster.start("c")
    until(lambda: "c" in cluster.shard_owners(target), "c is back")
