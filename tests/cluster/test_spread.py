"""A topic in shards, each on a broker of its own: any client at any broker, all messages once.

Three brokers with real ports in one process; journals and facts outlive them.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import Client
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.model import RowStatus
from dejaqueue.settings import DispatchSettings
from tests.cluster.spread import SpreadCluster, batch_of, shards_of
from tests.patience import PATIENCE_SECONDS, until

HOUR_MS = 3_600_000
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpreadCluster]:
    with SpreadCluster() as made:
        yield made


@pytest.fixture
def topic(cluster: SpreadCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with cluster.client() as client:
        client.create_topic(name, spread=3)
    until(lambda: sorted(cluster.shard_owners(name)) == ["a", "b", "c"], "an owner for each shard")
    return str(name)


@pytest.fixture(params=["follows", "raw"])
def client(cluster: SpreadCluster, request: pytest.FixtureRequest) -> Iterator[Client]:
    with cluster.client("b") if request.param == "follows" else cluster.raw("b") as made:
        yield made


def take(client: Client, topic: str, count: int, **options: Any) -> list[bytes]:
    """Consume and ack so many messages, and see that there are no more."""
    found = []
    for message in client.consume(topic, idle_ms=3_000, max_messages=count, **options):
        found.append(message.payload)
        message.ack()
    return found


def live(client: Client, topic: str) -> int:
    """Messages that are not done."""
    stats = client.stats(topic)
    return int(stats["scheduled"] + stats["leased"])


def test_shards_are_dealt_to_the_brokers(cluster: SpreadCluster, topic: str) -> None:
    with cluster.client() as client:
        rows = client.cluster(topic)["topics"]
    assert sorted(row["node"] for row in rows) == ["a", "b", "c"]
    assert [(row["topic"], row["shard"], row["spread"]) for row in rows] == [
        (topic, shard, 3) for shard in range(3)
    ]


def test_what_is_sent_anywhere_is_consumed_anywhere_once(
    cluster: SpreadCluster, topic: str, client: Client
) -> None:
    ids = []
    for first in range(0, 120, 20):
        keys = pa.array([f"k{number}" for number in range(first, first + 20)])
        ids += client.send_batch(topic, batch_of(20, first, key=keys)).ids.tolist()
    assert set(shards_of(ids)) == {0, 1, 2}
    assert len(set(ids)) == 120
    found = take(client, topic, 120)
    assert sorted(found) == sorted(f"p{number}".encode() for number in range(120))
    stats = client.stats(topic)
    assert stats["topic"] == topic
    assert stats["ready"] == stats["leased"] == 0
    assert len(stats["partitions"]) == 3


def test_a_key_and_a_group_stay_in_one_shard__rows_without_are_dealt_by_batch(
    cluster: SpreadCluster, topic: str, client: Client
) -> None:
    groups = pa.array(["x", "y", "z", "x", "y", "z"])
    first = client.send_batch(topic, batch_of(6, group=groups)).ids
    again = client.send_batch(topic, batch_of(6, group=groups)).ids
    assert shards_of(first) == shards_of(again)
    assert shards_of(first)[:3] == shards_of(first)[3:]
    plain = [client.send_batch(topic, batch_of(5)).ids for _ in range(6)]
    assert all(len(set(shards_of(ids))) == 1 for ids in plain)
    assert {shards_of(ids)[0] for ids in plain} == {0, 1, 2}


def test_a_key_is_live_once(topic: str, client: Client) -> None:
    keys = pa.array([f"k{number}" for number in range(12)])
    first = client.send_batch(topic, batch_of(12, key=keys))
    again = client.send_batch(topic, batch_of(12, key=keys))
    assert (again.statuses == RowStatus.DUPLICATE).all()
    assert again.ids.tolist() == first.ids.tolist()


def test_messages_are_moved_and_cancelled_by_id_and_by_key(topic: str, client: Client) -> None:
    due = pa.array([2_000_000_000_000] * 12)
    keys = pa.array([f"k{number}" for number in range(12)])
    ids = client.send_batch(topic, batch_of(12, key=keys, due=due)).ids
    assert not client.move(topic, ids=ids[:4], due=2_100_000_000_000).statuses.any()
    assert not client.cancel(topic, keys=[f"k{number}" for number in range(4, 8)]).statuses.any()
    assert (client.cancel(topic, ids=ids[4:8]).statuses == RowStatus.NOT_FOUND).all()
    page = client.peek(topic, limit=100).to_pylist()
    assert [row["id"] for row in page[4:]] == sorted(ids[:4].tolist())
    assert {row["id"] for row in page[:4]} == set(ids[8:].tolist())
    assert [row["due"] for row in page] == sorted(row["due"] for row in page)
    assert len(client.peek(topic, keys=["k0", "k9", "nobody"]).to_pylist()) == 2


def test_pages_leave_nothing_out(topic: str, client: Client) -> None:
    dues = pa.array([2_000_000_000_000 + (number * 7) % 50 for number in range(200)])
    groups = pa.array([f"g{number % 40}" for number in range(200)])
    client.send_batch(topic, batch_of(200, due=dues, group=groups))
    transport = client._core.transport
    seen, after = [], None
    while True:
        ticket = {"op": "peek", "topic": topic, "limit": 7, "after": after}
        page = transport.rows(ticket).result()
        seen += [(row["due"], row["id"]) for row in page.to_pylist()]
        following = (page.schema.metadata or {}).get(b"next")
        if following is None:
            break
        after = json.loads(following)
    assert len(seen) == 200
    assert seen == sorted(seen)
    assert client.counts(topic, by="group", limit=3) == {"g0": 5, "g1": 5, "g10": 5}
    assert sum(client.counts(topic, by="group", limit=1_000).values()) == 200
    assert client.counts(topic)["scheduled"] == 200
    found = client.histogram(
        topic, due_from=2_000_000_000_000, due_to=2_000_000_000_050, bucket=0.01
    )
    assert found.counts.tolist() == [40] * 5
    assert client.move_where(topic, group="g3", by=60) == 5
    assert client.cancel_where(topic, group="g3", dry_run=True) == 5
    assert client.purge(topic) == 200


def test_bad_input_refuses_the_whole_batch(topic: str, client: Client) -> None:
    keys = pa.array([f"k{number}" for number in range(11)] + ["k" * 300])
    with pytest.raises(BadRequest, match="key"):
        client.send_batch(topic, batch_of(12, key=keys))
    assert live(client, topic) == 0
    with pytest.raises(BadRequest, match="spread"):
        client.create_topic("no", spread=3, partitions=4)
    with pytest.raises(BadRequest, match="spread"):
        client.create_topic("no", spread=2, dead_letter=topic)
    with pytest.raises(TopicUnknown):
        client.send("no", b"x")


def test_dead_letters_are_where_their_messages_were__and_go_back(
    topic: str, client: Client
) -> None:
    keys = pa.array([f"k{number}" for number in range(12)])
    ids = client.send_batch(topic, batch_of(12, key=keys)).ids
    for message in client.consume(topic, idle_ms=3_000, max_messages=12):
        message.nack(dead=True, reason="no")
    dead = f"{topic}.dead"

    def letters() -> int:
        try:
            return live(client, dead)
        except TopicUnknown:
            return 0

    until(lambda: letters() == 12, "all letters")
    found = client.dead_letters(dead).to_pylist()
    assert sorted(Counter(shards_of([row["id"] for row in found]))) == sorted(set(shards_of(ids)))
    origins = [dict(row["headers"])["dejaq-dead-origin"] for row in found]
    assert set(origins) == {topic}
    assert client.redrive(dead).moved == 12
    assert sorted(take(client, topic, 12)) == sorted(f"p{number}".encode() for number in range(12))


def test_cron_entries_go_where_their_names_belong(cluster: SpreadCluster, client: Client) -> None:
    name = f"cron-{id(client)}"
    client.create_topic(name, kind="cron", spread=3)
    cron = client.cron(name)
    for number in range(9):
        cron.put(f"entry-{number}", cron="0 0 1 1 *", payload=b"x")
    assert [entry.name for entry in cron.entries()] == [f"entry-{number}" for number in range(9)]
    assert cron.get("entry-4").cron == "0 0 1 1 *"
    assert [entry.paused for entry in cron.pause("entry-1", "entry-2")] == [True, True]
    ids = [cron.run(f"entry-{number}") for number in range(9)]
    assert len(set(shards_of(ids))) > 1
    assert cron.drop("entry-1", "entry-7", "nobody") == 2
    assert len(take(client, name, 9)) == 9


def test_filters_and_prefetch_of_one(topic: str, client: Client) -> None:
    tags = pa.array([["red"] if number % 2 else ["blue"] for number in range(40)])
    keys = pa.array([f"k{number}" for number in range(40)])
    client.send_batch(topic, batch_of(40, tags=tags, key=keys))
    red = take(client, topic, 20, tags_any=["red"], prefetch=1)
    assert sorted(red) == sorted(f"p{number}".encode() for number in range(40) if number % 2)
    assert live(client, topic) == 20


def test_consumers_at_different_brokers_share_the_work(cluster: SpreadCluster, topic: str) -> None:
    taken: dict[str, list[bytes]] = {name: [] for name in "abc"}
    ready = threading.Barrier(4)

    def consume(name: str) -> None:
        with (
            cluster.client(name) as client,
            client.consume(topic, idle_ms=2_000, prefetch=10) as consumer,
        ):
            ready.wait(PATIENCE_S)
            for message in consumer:
                taken[name].append(message.payload)
                message.ack()

    threads = [threading.Thread(target=consume, args=(name,)) for name in taken]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE_S)
    with cluster.client("c") as client:
        for first in range(0, 600, 50):
            keys = pa.array([f"k{number}" for number in range(first, first + 50)])
            client.send_batch(topic, batch_of(50, first, key=keys))
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    everything = [payload for found in taken.values() for payload in found]
    assert sorted(everything) == sorted(f"p{number}".encode() for number in range(600))
    assert all(taken.values()), {name: len(found) for name, found in taken.items()}


def test_over_http_any_broker_answers_for_all_shards(cluster: SpreadCluster, topic: str) -> None:
    with httpx.Client(
        base_url=f"{cluster.url('c')}/v1/topics/{topic}", timeout=PATIENCE_SECONDS
    ) as http:
        ids = []
        for number in range(12):
            sent = http.post("/messages", json={"payload": f"p{number}", "key": f"k{number}"})
            assert sent.status_code == 201, sent.text
            ids.append(int(sent.json()["id"]))
        assert len(set(shards_of(ids))) > 1
        many = [{"payload": f"q{number}", "key": f"q{number}"} for number in range(12)]
        sent = http.post("/messages", json={"messages": many})
        assert sent.status_code == 201, sent.text
        repeated = http.post("/messages", json=many[0])
        assert repeated.status_code == 409, repeated.text
        page = http.get("/messages", params={"limit": 100}).json()["messages"]
        assert len(page) == 24
        assert http.get(f"/messages/{ids[5]}").json()["key"] == "k5"
        assert http.get("/stats").json()["scheduled"] == 24
        for names in ([{"key": "k0"}, {"key": "k2"}], [{"id": str(one)} for one in ids[3:5]]):
            cancelled = http.post("/cancel", json={"messages": names})
            assert [row["status"] for row in cancelled.json()["messages"]] == ["OK", "OK"]
        taken: dict[str, Any] = {}
        for _ in range(60):
            answer = http.post("/lease", json={"max": 4, "wait_ms": 2_000})
            assert answer.status_code == 200, answer.text
            messages = answer.json()["messages"]
            if not messages:
                break
            held = [{"id": one["id"], "attempt": one["attempt"]} for one in messages]
            acked = http.post("/ack", json={"messages": held})
            assert {row["status"] for row in acked.json()["messages"]} == {"OK"}, acked.text
            taken |= {one["id"]: one["payload"] for one in messages}
        assert len(taken) == 20
        stats = http.get("/stats").json()
        assert stats["scheduled"] == stats["leased"] == 0


def test_one_broker_leaves_while_messages_are_consumed(cluster: SpreadCluster, topic: str) -> None:
    found: Counter[bytes] = Counter()
    done = threading.Event()

    def consume() -> None:
        with cluster.client("a") as client:
            for message in client.consume(topic, prefetch=30, idle_ms=20_000):
                found[message.payload] += 1
                message.ack()
                if len(found) == 900:
                    break
        done.set()

    thread = threading.Thread(target=consume)
    thread.start()
    with cluster.client("b") as client:
        for first in range(0, 900, 30):
            if first == 300:
                cluster.stop("c")
            keys = pa.array([f"k{number}" for number in range(first, first + 30)])
            statuses = client.send_batch(topic, batch_of(30, first, key=keys)).statuses
            assert np.isin(statuses, [RowStatus.OK, RowStatus.DUPLICATE]).all()
        thread.join(PATIENCE_SECONDS)
    assert done.is_set()
    print(f"{found.total()} deliveries")
    assert set(found) == {f"p{number}".encode() for number in range(900)}
    assert set(cluster.shard_owners(topic)) == {"a", "b"}
    cluster.start("c")
    until(lambda: sorted(cluster.shard_owners(topic)) == ["a", "b", "c"], "c has a shard again")


def test_one_broker_dies_while_messages_are_consumed(cluster: SpreadCluster, topic: str) -> None:
    dead = next(name for name in cluster.shard_owners(topic) if name in "bc")
    alive = next(name for name in "bc" if name != dead)
    with cluster.client("a") as client, cluster.client(alive) as sender:
        keys = pa.array([f"k{number}" for number in range(60)])
        assert len(set(shards_of(sender.send_batch(topic, batch_of(60, key=keys)).ids))) == 3
        consumer = client.consume(topic, prefetch=30, idle_ms=20_000)
        found: Counter[bytes] = Counter()
        try:
            for message in consumer:
                found[message.payload] += 1
                message.ack()
                if len(found) == 20:
                    cluster.lose_touch(dead)
                    cluster.proxies[dead].cut()
                if len(found) == 60:
                    break
            consumer.close()
            # The consumer may have had all of them at hand before anybody took over.
            until(lambda: dead not in cluster.shard_owners(topic), f"{dead} has let go")
            more = sender.send_batch(
                topic, batch_of(60, 60, key=pa.array([f"m{k}" for k in range(60)]))
            )
            assert len(set(shards_of(more.ids))) == 3
            assert len(take(client, topic, 60)) == 60
        finally:  # whatever failed, the tests after it have three brokers
            cluster.proxies[dead].mend()
            cluster.be_back(dead)
    until(lambda: dead in cluster.shard_owners(topic), f"{dead} has a shard again")


def test_partitions_are_added_and_the_topic_is_deleted(cluster: SpreadCluster, topic: str) -> None:
    with cluster.client("b") as client:
        keys = [f"k{number}" for number in range(24)]
        first = client.send_batch(topic, batch_of(24, key=pa.array(keys)))
        client.alter_topic(topic, partitions=9)
        until(lambda: len(client.stats(topic)["partitions"]) == 9, "all brokers know")
        again = client.send_batch(topic, batch_of(24, key=pa.array(keys)))
        assert again.ids.tolist() == first.ids.tolist()
        more = client.send_batch(topic, batch_of(24, key=pa.array([f"m{k}" for k in keys])))
        assert max(int(one >> 47) for one in more.ids) > 2
        ranges = client._core.transport.action("scan_ranges", {"name": topic}).result()
        assert [part["partition"] for part in ranges["partitions"]] == list(range(9))
        scanned = 0
        transport: Any = client._core.transport
        for part in range(9):
            for batch in transport.scan({"topic": topic, "partition": part}):
                scanned += batch.num_rows
        assert scanned == 48
        client.delete_topic(topic)
        with pytest.raises(TopicUnknown):
            client.send(topic, b"x")
        client.create_topic(topic)
        client.send(topic, b"alone now")
        assert take(client, topic, 1) == [b"alone now"]


def test_partitions_are_added_by_themselves_to_every_shard(cluster: SpreadCluster) -> None:
    busy = DispatchSettings(partition_rows_per_s=20)
    for broker in cluster.brokers.values():
        broker._roster = replace(broker._roster, settings=busy)
    with cluster.client("c") as client:
        assert client.create_topic("hot", spread=3, partitions="auto").partitions == 3
        until(lambda: sorted(cluster.shard_owners("hot")) == ["a", "b", "c"], "owners")
        due = cluster.brokers["c"].clock.utc_ms() + HOUR_MS // 2
        dues, keys = pa.array([due] * 90), pa.array([f"k{number}" for number in range(90)])
        client.send_batch("hot", batch_of(90, due=dues, key=keys))
        until(
            lambda: cluster.brokers["c"].topic("hot", newest=True).partitions >= 6,
            "more partitions",
        )
        count = cluster.brokers["c"].topic("hot", newest=True).partitions
        assert count % 3 == 0
        until(lambda: len(client.stats("hot")["partitions"]) >= count, "all brokers know")
        again = client.send_batch("hot", batch_of(90, due=dues, key=keys))
        assert set(again.statuses) == {RowStatus.DUPLICATE}
        assert live(client, "hot") == 90


def test_a_subscription_has_every_message_of_all_shards_once(topic: str, client: Client) -> None:
    client.create_subscription(topic, "billing")
    sent = sorted(b"%d" % number for number in range(30))
    for payload in sent:
        client.send(topic, payload)
    assert sorted(take(client, topic, 30)) == sent
    assert sorted(take(client, topic, 30, subscription="billing")) == sent
    assert client.stats(f"{topic}@billing")["scheduled"] == live(client, topic) == 0


def test_a_cap_holds_for_a_group_wherever_it_lies(cluster: SpreadCluster) -> None:
    with cluster.client() as client:
        client.create_topic("capped", kind="fair", spread=3, group_in_flight_max=1)
        groups = [f"g{number}" for number in range(6)]
        for group in groups * 3:
            client.send("capped", group.encode(), group=group)
        held = list(client.consume("capped", idle_ms=1_500, prefetch=50))
        assert sorted(one.payload.decode() for one in held) == groups


def test_a_subscription_goes_back_in_every_shard(topic: str, client: Client) -> None:
    client.alter_topic(topic, retention_ms=3_600_000)
    client.create_subscription(topic, "a")
    keys = pa.array([f"k{number}" for number in range(12)])
    sent = sorted(client.send_batch(topic, batch_of(12, key=keys)).ids.tolist())

    def drain() -> list[int]:
        got = []
        for message in client.consume(topic, subscription="a", idle_ms=5_000, max_messages=12):
            got.append(message.id)
            message.ack()
        return sorted(got)

    assert drain() == sent
    assert client.seek(topic, "a", to="beginning") == (12, 0)
    assert client.stats(f"{topic}@a").ready == client.stats(topic).retained == 12
    assert drain() == sent
    assert client.seek(topic, to="end") == (0, 12)
