"""Who serves what, as brokers join, leave, die and sleep; what was acknowledged is never lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import Elsewhere, TryLater
from dejaqueue.model import Topic
from tests.cluster.brokers import Cluster, patiently, payloads, send
from tests.patience import until

TOPICS = [f"topic-{number}" for number in range(12)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


def _lacks(broker: Broker, topic: str) -> bool:
    return topic not in [one.name for one in broker.topics()]


def test_a_topic_made_anywhere_has_one_owner_and_the_others_know_who(cluster: Cluster) -> None:
    for name in "abc":
        cluster.start(name)
    for topic in TOPICS:
        cluster.brokers["a"].create_topic(Topic(topic))
    for topic in TOPICS:
        owner = cluster.owner(topic)
        assert send(owner, topic, ["x"]) == [0]
        for name, broker in cluster.brokers.items():
            if broker is owner:
                continue

            def is_told(broker=broker, topic=topic, owner=owner) -> bool:  # type: ignore[no-untyped-def]
                with pytest.raises(TryLater) as told:
                    broker.runtime(topic)
                node = getattr(told.value, "node", "")
                return isinstance(told.value, Elsewhere) and cluster.brokers.get(node) is owner

            until(is_told, f"{name} knows who serves {topic}")
    until(
        lambda: len({owner for topic in TOPICS for owner in cluster.owners(topic)}) > 1,
        "who joined later has been given its part",
    )


def test_who_joins_gets_a_share_and_nothing_is_lost(cluster: Cluster) -> None:
    first = cluster.start("a")
    for topic in TOPICS:
        first.create_topic(Topic(topic, partitions=2))
        rows = [f"{topic}-{n}" for n in range(10)]
        patiently(partial(send, first, topic, rows))
    second = cluster.start("b")
    until(lambda: any(second.serves(topic) for topic in TOPICS), "the new one serves something")
    for topic in TOPICS:
        cluster.send_to_owner(topic, ["more"])
        assert cluster.payloads(topic) == sorted(["more", *(f"{topic}-{n}" for n in range(10))])


def test_who_leaves_hands_over(cluster: Cluster) -> None:
    for name in "ab":
        cluster.start(name)
    for topic in TOPICS:
        cluster.brokers["a"].create_topic(Topic(topic))
        send(cluster.owner(topic), topic, ["kept"])
    cluster.stop("a")
    for topic in TOPICS:
        until(partial(cluster.brokers["b"].serves, topic), f"b serves {topic}")
        assert payloads(cluster.brokers["b"], topic) == ["kept"]


def test_who_dies_is_followed_when_its_lease_is_over(cluster: Cluster) -> None:
    for name in "ab":
        cluster.start(name)
    for topic in TOPICS:
        cluster.brokers["a"].create_topic(Topic(topic))
        send(cluster.owner(topic), topic, ["kept"])
    cluster.dealt()
    dead = cluster.brokers["b"]
    assert any(dead.serves(topic) for topic in TOPICS)
    cluster.lose_touch("b")
    for topic in TOPICS:
        until(partial(cluster.brokers["a"].serves, topic), f"a serves {topic}")
        assert payloads(cluster.brokers["a"], topic) == ["kept"]
    until(lambda: not any(dead.serves(topic) for topic in TOPICS), "b has let go")
    cluster.be_back("b")
    until(lambda: any(dead.serves(topic) for topic in TOPICS), "it has a share again")


def test_an_owner_that_slept_too_long_can_store_nothing(cluster: Cluster) -> None:
    for name in "ab":
        cluster.start(name)
    for topic in TOPICS:
        cluster.brokers["a"].create_topic(Topic(topic))
        send(cluster.owner(topic), topic, ["kept"])
    cluster.dealt()
    slept = cluster.brokers["b"]
    topics = [topic for topic in TOPICS if slept.serves(topic)]
    assert topics
    cluster.lose_touch("b", unaware=True)
    for topic in topics:
        until(partial(cluster.brokers["a"].serves, topic), f"a serves {topic}")
        send(cluster.brokers["a"], topic, ["of the new owner"])
    for topic in topics:
        with pytest.raises(Exception, match=r"ends at|between|served|touch|position|tail|owner"):
            send(slept, topic, ["of the old owner"])
        assert payloads(cluster.brokers["a"], topic) == ["kept", "of the new owner"]
    cluster.be_back("b")
    until(lambda: any(slept.serves(topic) for topic in TOPICS), "it has a share again")
    for topic in TOPICS:
        assert "of the old owner" not in cluster.payloads(topic)


def _lease_ms(cluster: Cluster) -> int:
    """Of the topic; 0 while it goes from one broker to another."""
    try:
        return cluster.owner("t").runtime("t").topic.lease_ms
    except TryLater:
        return 0


def test_a_topic_that_is_altered_or_deleted_is_so_for_all(cluster: Cluster) -> None:
    for name in "ab":
        cluster.start(name)
    cluster.brokers["a"].create_topic(Topic("t"))
    patiently(lambda: send(cluster.owner("t"), "t", ["old"]))
    for name in "ab":
        cluster.brokers[name].alter_topic("t", {"lease_ms": 77_000 if name == "a" else 88_000})
    until(lambda: _lease_ms(cluster) == 88_000, "it is altered")
    cluster.owner("t").delete_topic("t")
    for broker in cluster.brokers.values():
        until(partial(_lacks, broker, "t"), "it is gone")
    cluster.brokers["b"].create_topic(Topic("t"))
    assert payloads(cluster.owner("t"), "t") == []
