"""SIGKILL and SIGSTOP of real brokers of a cluster under load; then rules 1 to 6 are checked.

Covered: three `dejaq serve` on one PostgreSQL and one etcd; clients that know all of them.
Not covered: death of the servers beneath (tests/conformance).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dev.services.service import Service
from tests.cluster.disturbed import check_disturbed
from tests.cluster.served import three_brokers
from tests.crash.broker_process import BrokerProcess

pytestmark = [pytest.mark.crash]

CYCLES = int(os.environ.get("DEJAQ_KILL_CYCLES", "3"))
LEASE_MS = 2_000
TOPIC = "kill"


@pytest.fixture
def brokers(postgresql: Service, etcd: Service, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    with three_brokers(tmp_path, postgresql, etcd, LEASE_MS, journal__snapshot_entries=150) as made:
        yield made


def test_nothing_is_lost_early_or_twice__brokers_of_a_cluster_die_and_sleep(
    brokers: list[BrokerProcess],
) -> None:
    def disturb(turn: int) -> None:
        broker = owner_of(brokers, TOPIC)
        if turn % 2:
            os.kill(broker.pid, signal.SIGSTOP)
            threading.Event().wait(2 * LEASE_MS / 1_000)
            os.kill(broker.pid, signal.SIGCONT)
        else:
            broker.kill()
            threading.Event().wait(1.5 * LEASE_MS / 1_000)
            broker.start()

    url = "dejaq://" + ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    check_disturbed(url, TOPIC, CYCLES, disturb)


def owner_of(brokers: list[BrokerProcess], topic: str) -> BrokerProcess:
    """The broker that serves a topic."""
    for broker in brokers:
        with Client(broker.url) as client:
            found = client.cluster(topic)
        urls = {node["node"]: node["url"] for node in found["nodes"]}
        for other in brokers:
            if urls.get(found["topics"][0]["node"]) == other.url:
                return other
    raise AssertionError(f"nobody serves {topic}")
