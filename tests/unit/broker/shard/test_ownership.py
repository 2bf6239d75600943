"""A broker that is alone owns what it has; in a cluster each topic's name is asked."""

from __future__ import annotations

from typing import Any

from dejaqueue.broker.shard.ownership import LoneOwnership
from dejaqueue.broker.topic.cluster_port import TopicOwnership
from dejaqueue.errors import Unavailable


def test_nothing_is_another_s_for_who_is_alone() -> None:
    mine = LoneOwnership()
    mine.fenced()
    assert mine.refusal() is None


def test_the_cluster_is_asked_about_the_topic() -> None:
    refused = Unavailable("it is another's")
    asked: list[tuple[str, str]] = []

    class Cluster:
        def refusal(self, topic: str, *, begins: bool = False) -> Unavailable:
            asked.append(("refusal", topic))
            return refused

        def fenced(self, topic: str) -> None:
            asked.append(("fenced", topic))

    cluster: Any = Cluster()
    ownership = TopicOwnership(cluster, "t~1of3")
    assert ownership.refusal() is refused
    ownership.fenced()
    assert asked == [("refusal", "t~1of3"), ("fenced", "t~1of3")]


def test_what_was_let_go_of_is_nobody_s_by_the_former_ownership() -> None:
    """The broker may serve the topic again, by another one; somebody else did meanwhile."""

    class Cluster:
        def refusal(self, topic: str) -> None:
            return None

    cluster: Any = Cluster()
    former, present = TopicOwnership(cluster, "t"), TopicOwnership(cluster, "t")
    assert former.refusal() is None
    former.end()
    assert isinstance(former.refusal(), Unavailable)
    assert present.refusal() is None
