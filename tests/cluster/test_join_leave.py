"""Nodes of an embedded cluster join and leave under sends: nothing that was acknowledged is lost.

Covered: real brokers with JetStream beside each; consumers at brokers that do not serve the topic.
Not covered: nodes that die meanwhile (tests/cluster/membership.py, `make membership`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from dejaqueue import Client
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.outsiders import FlightOutsider, HttpLeases, HttpStream
from tests.cluster.sending import Sending, drained
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.slow]

TOPICS = [f"topic-{number:02}" for number in range(12)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    pytest.importorskip("nats")
    made = EmbeddedCluster(tmp_path, cluster__lease_ms=2_000)
    try:
        made.start("a", "b", "c")
        yield made
    finally:
        made.stop()


def test_nodes_join_and_leave_while_messages_flow(cluster: EmbeddedCluster) -> None:
    with Client(cluster.url) as client:
        for topic in TOPICS:
            client.create_topic(topic)
    sending = Sending(cluster.url, TOPICS)
    # Topics that will move, since their owner leaves; consumed at a broker that stays.
    moving = [topic for topic in TOPICS if cluster.owner(topic) == "a"]
    kinds: Iterator[type[Any]] = itertools.cycle((FlightOutsider, HttpLeases, HttpStream))
    outsiders = [next(kinds)(cluster.brokers["b"], topic) for topic in moving]
    try:
        cluster.start("d")
        until(
            lambda: any(cluster.owner(topic) == "d" for topic in TOPICS), "d serves something", 60
        )
        until(lambda: len(sending.acknowledged) > 2_000, "messages flow")
        _check_status(cluster, "abcd")
        removed = cluster.command("remove", "a", at="b")
        assert removed.returncode == 0, removed.stdout + removed.stderr + cluster.log("b")
        assert cluster.brokers.pop("a").stop() == 0, "it has ended by itself"
        _check_status(cluster, "bcd")
        before = len(sending.acknowledged)
        until(lambda: len(sending.acknowledged) > before + 1_000, "messages flow on")
    finally:
        sending.end()
        until(lambda: all(one.has_all(sending.acknowledged) for one in outsiders), "got all")
        for one in outsiders:
            one.end()
    assert [one.failures for one in outsiders] == [[]] * len(moving)
    assert all(one.got for one in outsiders)
    assert sending.acknowledged <= drained(cluster.url, TOPICS).union(*(o.got for o in outsiders))
    assert not sending.failures
    _check_again(cluster)


def _check_status(cluster: EmbeddedCluster, nodes: str) -> None:
    """Any broker says who is there, who leads, that nobody lags, and the numbers of all topics."""
    for name in nodes:
        with Client(cluster.brokers[name].url) as client:
            found = client.cluster(servers=True)
            # A topic that is just changing hands has nobody who tells of it.
            until(lambda: _topics_of(client.stats()) == TOPICS, "stats of all")
        assert [one["node"] for one in found["nodes"]] == list(nodes)
        servers = {one["server"]: one for one in found["servers"]}
        assert set(servers) == set(nodes)
        assert {one["state"] for one in servers.values()} == {"whole"}
        assert sum(one["meta_leader"] for one in servers.values()) == 1
        with httpx.Client(base_url=cluster.http_url(name), timeout=PATIENCE_SECONDS) as http:
            until(lambda: _topics_of(http.get("/v1/stats").json()) == TOPICS, "by HTTP")
            metrics = http.get("/metrics").text
        for server in nodes:
            assert f'dejaq_journal_copies{{server="{server}"}}' in metrics
    told = cluster.command("status", TOPICS[0], at=nodes[-1])
    assert [told.stdout.count(role) for role in ("leader", "follower")] == [1, 2], told.stderr


def _topics_of(stats: Mapping[str, Any]) -> list[str]:
    """Nothing while somebody was silent: who is busy for a second is asked again."""
    return [] if stats["silent"] else sorted(stats["topics"])


def _check_again(cluster: EmbeddedCluster) -> None:
    """What is left of three keeps three; and a fourth would be needed to go on."""
    refused = cluster.command("remove", "b", at="c")
    assert refused.returncode != 0
    assert "let another one join first" in refused.stderr
