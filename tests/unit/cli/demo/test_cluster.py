"""Three brokers of the demo: started together, killed, put to sleep. Real ones: tests/cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import dejaqueue
from dejaqueue.cli.demo import cluster as module
from dejaqueue.cli.demo.cluster import NODES, ClusterProcesses
from dejaqueue.errors import Unavailable


class Broker:
    """A broker's process that nobody started; each waits until all are told to start."""

    together = threading.Barrier(len(NODES))
    fails = ""

    def __init__(self, directory: Path, log: Path, options: Sequence[str]) -> None:
        self.node = options[options.index("--node") + 1]
        self.options = list(options)
        self.told: list[str] = []
        self.url = ""
        self.pid = 100 + NODES.index(self.node)

    def start(self) -> None:
        if not self.told:
            self.together.wait(20)
        self.told.append("start")
        if self.fails == self.node:
            raise Unavailable(f"{self.node} did not start")
        self.url = f"dejaq://127.0.0.1:{self.pid}"

    def kill(self) -> None:
        self.told.append("kill")

    def stop(self) -> int:
        self.told.append("stop")
        return 0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterProcesses:
    monkeypatch.setattr(module, "BrokerProcess", Broker)
    monkeypatch.setattr(Broker, "together", threading.Barrier(len(NODES)))
    monkeypatch.setattr(module, "SLEEP_SECONDS", 0.01)
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.01)
    return ClusterProcesses(tmp_path, tmp_path)


def brokers_of(cluster: ClusterProcesses) -> list[Broker]:
    return cast(list[Broker], list(cluster._brokers.values()))


def owned_by(monkeypatch: pytest.MonkeyPatch, *nodes: str) -> None:
    class Client:
        def __init__(self, url: str) -> None:
            assert url.startswith("dejaq://127.0.0.1:100,")

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *error: object) -> None: ...

        def cluster(self, topic: str) -> dict[str, Any]:
            return {"topics": [{"topic": topic, "node": node} for node in nodes]}

    monkeypatch.setattr(dejaqueue, "Client", Client)


def test_brokers_start_together__know_each_other_and_a_secret__and_all_end(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    with cluster:
        addresses = [f"127.0.0.1:{100 + place}" for place in range(3)]
        assert cluster.url == "dejaq://" + ",".join(addresses)
    brokers = brokers_of(cluster)
    assert [broker.told for broker in brokers] == [["start", "stop"]] * 3
    places = {broker.options[broker.options.index("--cluster") + 1] for broker in brokers}
    [nodes] = places
    assert [part.partition("=")[0] for part in nodes.split(",")] == list(NODES)
    [secret] = {Path(broker.options[-1].partition("=")[2]) for broker in brokers}
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.parent == tmp_path


def test_where_one_does_not_start_none_is_left(
    cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broker, "fails", "b")
    with pytest.raises(Unavailable, match="b did not start"), cluster:
        pytest.fail("it did")
    assert [broker.told for broker in brokers_of(cluster)] == [["start", "stop"]] * 3


def test_the_owner_of_the_topic_is_killed_and_comes_back(
    cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned_by(monkeypatch, "", "b")
    with cluster:
        assert cluster.kill_owner("t").startswith("broker b,")
        assert brokers_of(cluster)[1].told == ["start", "kill", "start"]
        assert brokers_of(cluster)[0].told == ["start"]


def test_the_owner_of_the_topic_is_stopped_and_goes_on(
    cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned_by(monkeypatch, "c")
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    with cluster:
        assert cluster.put_owner_to_sleep("t").startswith("broker c,")
    assert sent == [(102, signal.SIGSTOP), (102, signal.SIGCONT)]


def test_a_topic_without_an_owner_is_an_error(
    cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned_by(monkeypatch, "")
    with cluster, pytest.raises(Unavailable, match="topic t has no owner"):
        cluster.kill_owner("t")
