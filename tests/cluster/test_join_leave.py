"""Nodes of an embedded cluster join and leave under sends: nothing that was acknowledged is lost.

Covered: real brokers with JetStream beside each; consumers at brokers that do not serve the topic.
Not covered: nodes that die meanwhile (tests/cluster/join_leave.py, `make membership`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dejaqueue import Client
from tests.cluster.brokers import until
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.outsiders import FlightOutsider, HttpLeases, HttpStream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TOPICS = [f"topic-{number}" for number in range(6)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    pytest.importorskip("nats")
    made = EmbeddedCluster(tmp_path, cluster__lease_ms=2_000)
    try:
        made.start("a", "b", "c")
        yield made
    finally:
        made.stop()


class Sending:
    """A producer's thread: what was answered, and what was only tried."""

    def __init__(self, url: str, topics: list[str]) -> None:
        self.acknowledged: set[bytes] = set()
        self.tried: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url, topics))
        self._thread.start()

    def _run(self, url: str, topics: list[str]) -> None:
        number = 0
        with Client(url) as client:
            while not self._stop.is_set():
                topic = topics[number % len(topics)]
                payloads = [f"{topic}/{number}/{row}".encode() for row in range(20)]
                number += 1
                self.tried.update(payloads)
                client.send_batch(topic, [{"payload": one} for one in payloads]).raise_for_status()
                self.acknowledged.update(payloads)
                self._stop.wait(0.01)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_nodes_join_and_leave_while_messages_flow(cluster: EmbeddedCluster) -> None:
    with Client(cluster.url) as client:
        for topic in TOPICS:
            client.create_topic(topic)
    sending = Sending(cluster.url, TOPICS)
    outsiders = [
        kind(cluster.brokers["b"], topic)
        for kind, topic in zip((FlightOutsider, HttpLeases, HttpStream), TOPICS[:3], strict=True)
    ]
    try:
        cluster.start("d")
        joined = [topic for topic in TOPICS if _moves_to(cluster, topic, "d")]
        until(lambda: len(sending.acknowledged) > 2_000, "messages flow")
        _check_status(cluster, "abcd")
        removed = cluster.command("remove", "a", at="b")
        assert removed.returncode == 0, removed.stdout + removed.stderr + cluster.log("b")
        del cluster.brokers["a"]
        _check_status(cluster, "bcd")
        before = len(sending.acknowledged)
        until(lambda: len(sending.acknowledged) > before + 1_000, "messages flow on")
    finally:
        sending.end()
        until(lambda: all(one.has_all(sending.acknowledged) for one in outsiders), "got all")
        for one in outsiders:
            one.end()
    assert joined
    assert _left(cluster, TOPICS[3:]) >= {
        one for one in sending.acknowledged if one.split(b"/")[0].decode() in TOPICS[3:]
    }
    _check_again(cluster)


def _moves_to(cluster: EmbeddedCluster, topic: str, node: str) -> bool:
    return cluster.owner(topic) == node


def _left(cluster: EmbeddedCluster, topics: list[str]) -> set[bytes]:
    """Everything that is in these topics, read out."""
    found: set[bytes] = set()
    with Client(cluster.url) as client:
        for topic in topics:
            for batch in client.consume_batches(topic, idle_ms=3_000):
                found.update(batch.batch["payload"].to_pylist())
                batch.ack()
    return found


def _check_status(cluster: EmbeddedCluster, nodes: str) -> None:
    """Any broker says who is there, who leads, that nobody lags, and the numbers of all topics."""
    for name in nodes:
        told = cluster.command("status", "--json", at=name)
        assert told.returncode == 0, told.stderr
        found = json.loads(told.stdout)
        assert [one["node"] for one in found["nodes"]] == list(nodes)
        servers = {one["server"]: one for one in found["servers"]}
        assert set(servers) == set(nodes)
        assert {one["state"] for one in servers.values()} == {"whole"}
        assert sum(one["meta_leader"] for one in servers.values()) == 1
        with Client(cluster.brokers[name].url) as client:
            stats = client.stats()
            assert (sorted(stats["topics"]), stats["silent"]) == (TOPICS, [])
        port = cluster.brokers[name].http_port
        told_by_http = httpx.get(f"http://127.0.0.1:{port}/v1/stats", timeout=20).json()
        assert sorted(told_by_http["topics"]) == TOPICS
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=20).text
        for server in nodes:
            assert f'dejaq_journal_copies{{server="{server}"}}' in metrics


def _check_again(cluster: EmbeddedCluster) -> None:
    """What is left of three keeps three; and a fourth would be needed to go on."""
    refused = cluster.command("remove", "b", at="c")
    assert refused.returncode != 0
    assert "let another one join first" in refused.stderr
