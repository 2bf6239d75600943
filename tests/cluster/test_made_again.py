"""Topics that are deleted and made again, at any broker.

Covered: what the owner acknowledges after that is in the journals of the new topic; deletion in two
steps, and who finishes it; nothing of a deleted topic stays; ids go on.
Not here: catalogues alone (tests/unit/cluster/test_catalogue.py), and the same among faults
(tests/simulation/cluster).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.cluster import ownership
from dejaqueue.cluster.catalogue import KEY
from dejaqueue.cluster.node import Node
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import DejaQError, TopicUnknown, Unavailable
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from tests.cluster.brokers import Cluster, patiently, payloads, send
from tests.patience import PATIENCE_SECONDS, until
from tests.server_fixtures import served

TOPICS = [f"topic-{number}" for number in range(6)]
SERVERS = {
    "etcd": lambda port, name: f"etcd://127.0.0.1:{port}/{name}",
    "nats": lambda port, name: f"nats://127.0.0.1:{port}?prefix={name}",
    "postgresql": lambda port, name: f"postgresql://dejaq@127.0.0.1:{port}/postgres",
}


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def coordinator(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], Coordinator] | None]:
    kind = str(request.param)
    if kind == "memory":
        yield None
    elif kind == "sqlite":
        yield lambda: open_coordinator(f"sqlite:///{tmp_path}/facts.db")
    else:
        for server in served(kind):
            url = SERVERS[kind](server.port, uuid.uuid4().hex[:8])
            yield lambda url=url: open_coordinator(url)  # type: ignore[misc]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


def other(cluster: Cluster, topic: str) -> str:
    """The name of a broker that does not serve a topic."""
    return next(name for name in cluster.brokers if not cluster.brokers[name].serves(topic))


def kept(cluster: Cluster) -> list[str]:
    """What the server of records has."""
    assert isinstance(cluster.records, MemoryRecordStore)
    return sorted({*(topic for topic, _ in cluster.records.logs), *cluster.records.objects})


def facts(cluster: Cluster, prefix: str) -> list[str]:
    return [fact.key.removeprefix(prefix) for fact in cluster.facts.find(prefix)]


def test_what_is_acknowledged_after_a_topic_was_made_again_stays(
    coordinator: Callable[[], Coordinator] | None,
) -> None:
    with Cluster(coordinator=coordinator) as cluster:
        for name in "ab":
            cluster.start(name)
        for topic in TOPICS:
            cluster.brokers["a"].create_topic(Topic(topic))
            cluster.send_to_owner(topic, ["old"])
        cluster.dealt()
        for topic in TOPICS:
            owner = cluster.owners(topic)[0]
            stranger = cluster.brokers["a" if owner == "b" else "b"]
            stranger.delete_topic(topic)
            stranger.create_topic(Topic(topic))
            # Whoever served it before may do so for a moment; what it acknowledges counts.
            patiently(partial(_send_at, cluster, owner, topic))
        cluster.stop("a")
        for topic in TOPICS:
            until(partial(cluster.brokers["b"].serves, topic), f"b serves {topic}")
            assert cluster.payloads(topic) == ["new"]


def _send_at(cluster: Cluster, owner: str, topic: str) -> None:
    """Send to who served it before; if another one does now, there."""
    try:
        send(cluster.brokers[owner], topic, ["new"])
    except DejaQError:
        send(cluster.owner(topic), topic, ["new"])


def test_an_owner_that_slept_stores_nothing_in_a_topic_that_was_deleted(
    cluster: Cluster,
) -> None:
    """It may store something in the topic that was made after it: then that is there."""
    for name in "ab":
        cluster.start(name)
    for topic in TOPICS:
        cluster.brokers["a"].create_topic(Topic(topic))
        send(cluster.owner(topic), topic, ["old"])
    cluster.dealt()
    slept = cluster.brokers["b"]
    topics = [topic for topic in TOPICS if slept.serves(topic)]
    assert topics
    acknowledged = set()
    cluster.lose_touch("b", unaware=True)
    for topic in topics:
        patiently(partial(_deleted, cluster.brokers["a"], topic))
        patiently(partial(cluster.brokers["a"].create_topic, Topic(topic)))
        with suppress(DejaQError):
            send(slept, topic, ["of the old owner"])
            acknowledged.add(topic)
    cluster.be_back("b")
    for topic in topics:
        expected = ["of the old owner"] if topic in acknowledged else []
        until(partial(_has, cluster, topic, expected), f"{expected} in {topic}")


def _has(cluster: Cluster, topic: str, expected: list[str]) -> bool:
    return cluster.payloads(topic) == expected


def _deleted(broker: object, topic: str) -> None:
    try:
        broker.delete_topic(topic)  # type: ignore[attr-defined]
    except TopicUnknown:
        return


def test_nothing_of_a_deleted_topic_stays(cluster: Cluster) -> None:
    for name in "abc":
        cluster.start(name)
    cluster.brokers["a"].create_topic(Topic("stays"))
    send(cluster.owner("stays"), "stays", ["kept"])
    owners = len(facts(cluster, ownership.PREFIX))
    before = kept(cluster)
    for topic in TOPICS:
        cluster.brokers["a"].create_topic(Topic(topic, partitions=2))
        send(cluster.owner(topic), topic, ["old"] * 4)
    for topic in TOPICS:
        cluster.brokers[other(cluster, topic)].delete_topic(topic)
    until(lambda: kept(cluster) == before, f"{kept(cluster)} is {before}")
    assert len(facts(cluster, ownership.PREFIX)) == owners, "slots, and not topics"
    assert payloads(cluster.owner("stays"), "stays") == ["kept"]


def test_what_a_broker_began_to_delete_others_finish(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        cluster.start(name)
    cluster.dealt()
    cluster.brokers["a"].create_topic(Topic("t"))
    send(cluster.owner("t"), "t", ["old"])
    dies = cluster.owners("t")[0]
    drop = RecordJournalStore.drop

    def fails_there(self: RecordJournalStore, topic: str) -> None:
        if self is cluster.brokers[dies].store:
            raise Unavailable("the broker died here", 100)
        drop(self, topic)

    monkeypatch.setattr(RecordJournalStore, "drop", fails_there)
    monkeypatch.setattr("dejaqueue.cluster.node.SETTLED_SECONDS_MAX", 0.2)
    with pytest.raises(Unavailable, match="is being deleted"):
        cluster.brokers[dies].delete_topic("t")
    assert "t" not in [topic.name for topic in cluster.brokers[dies].topics()]
    assert any(name.startswith("t.") for name in kept(cluster))
    cluster.lose_touch(dies)
    until(lambda: not any("t." in name for name in kept(cluster)), "another one finishes it")
    survivor = next(name for name in cluster.brokers if name != dies)
    patiently(lambda: cluster.brokers[survivor].create_topic(Topic("t")))


def test_what_a_broker_began_to_make_does_not_stay(cluster: Cluster) -> None:
    cluster.start("a")
    doomed = cluster.start("b")

    def dies(name: str, number: int) -> None:
        doomed.store.make(f"{name}.{number}")
        cluster.lose_touch("b")
        raise Unavailable("the broker died here", 100)

    cluster.brokers["a"].create_topic(Topic("t"))
    doomed._catalogue.use = dies  # type: ignore[method-assign]
    with pytest.raises(DejaQError):
        cluster.lose_touch("b", unaware=True)
        send(doomed, "t", ["into journals that the catalogue does not know"])
    patiently(lambda: _deleted(cluster.brokers["a"], "t"))
    until(lambda: not any("t." in name for name in kept(cluster)), "nothing of it is left")


def test_a_coordinator_that_forgets_its_bell_deletes_nothing(cluster: Cluster) -> None:
    for name in "ab":
        cluster.start(name)
    for topic in TOPICS:
        cluster.brokers["a"].create_topic(Topic(topic))
        send(cluster.owner(topic), topic, ["kept"])
    cluster.dealt()
    runtimes = {topic: cluster.owner(topic).runtime(topic) for topic in TOPICS}
    cluster.coordinators["a"].delete(KEY)
    for name in "ab":
        cluster.nodes[name]._see_topics()
        cluster.nodes[name].round()
    for topic in TOPICS:
        assert cluster.owner(topic).runtime(topic) is runtimes[topic]
        assert payloads(cluster.owner(topic), topic) == ["kept"]


def test_an_ack_that_comes_late_settles_nothing_of_the_topic_made_after_it(
    cluster: Cluster,
) -> None:
    """Ids of a name go on behind those that it gave before, at whichever broker."""
    for name in "ab":
        cluster.start(name)
    first = cluster.brokers["a"].create_topic(Topic("t", partitions=2))
    patiently(lambda: send(cluster.owner("t"), "t", ["x"] * 20))
    patiently(lambda: _deleted(cluster.brokers[other(cluster, "t")], "t"))
    patiently(lambda: cluster.brokers["b"].create_topic(first))
    patiently(lambda: send(cluster.owner("t"), "t", ["y"] * 20))
    assert sum(partition_beginnings(cluster.owner("t"), "t")) >= 20


def partition_beginnings(broker: Broker, topic: str) -> list[int]:
    """The sequence of the first message of each partition."""
    runtime = broker.runtime(topic)
    looks = [runtime.look(n, lambda core: core.engine.state.rules.ids_from) for n in range(2)]
    return [look.result(PATIENCE_SECONDS) for look in looks]


def test_journals_that_were_dropped_are_not_made_by_who_serves_them(cluster: Cluster) -> None:
    broker = cluster.start("a")
    broker.create_topic(Topic("t"))
    send(cluster.owner("t"), "t", ["old"])
    assert isinstance(broker.store, RecordJournalStore)
    journals = broker._catalogue.journals("t")
    broker.give("t", drain=False)
    broker.store.drop(journals)
    node = cluster.nodes["a"]
    assert isinstance(node, Node)
    node.round()
    with pytest.raises(Unavailable):
        send(broker, "t", ["into journals that nobody made"])
    assert not any(journals in name for name in kept(cluster))
