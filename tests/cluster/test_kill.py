"""SIGKILL and SIGSTOP of real brokers of a cluster under load; then rules 1 to 6 are checked.

Covered: three `dejaq serve` on one PostgreSQL and one etcd; clients that know all of them.
Not covered: death of the servers beneath (tests/conformance).
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dev.services.service import Service
from tests.cluster.served import three_brokers
from tests.crash import test_broker_kill as load
from tests.crash.broker_process import BrokerProcess
from tests.crash.history import History
from tests.patience import PATIENCE_SECONDS

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
    seed = int(os.environ.get("DEJAQ_KILL_SEED", random.randrange(1 << 30)))
    random.seed(seed)
    print(f"DEJAQ_KILL_SEED={seed}")
    url = "dejaq://" + ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    history, stop_producing, stop_consuming = History(), threading.Event(), threading.Event()
    with Client(url) as client:
        client.create_topic(TOPIC, partitions=4)
    failures: list[BaseException] = []

    def run(function: Callable[..., None], *arguments: object) -> threading.Thread:
        def guarded() -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - shown at the end of the test
                failures.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    producers = [run(load.produce, url, history, n, stop_producing, TOPIC) for n in range(2)]
    consumers = [run(load.consume, url, history, stop_consuming, TOPIC) for _ in range(2)]
    try:
        for cycle in range(CYCLES):
            threading.Event().wait(random.uniform(1.0, 2.0))
            broker = owner_of(brokers, TOPIC)
            if cycle % 2:
                os.kill(broker.pid, signal.SIGSTOP)
                threading.Event().wait(2 * LEASE_MS / 1_000)
                os.kill(broker.pid, signal.SIGCONT)
            else:
                broker.kill()
                threading.Event().wait(1.5 * LEASE_MS / 1_000)
                broker.start()
    finally:
        stop_producing.set()
        for thread in producers:
            thread.join(PATIENCE_SECONDS)
        try:
            load.drain(url, TOPIC)
        finally:
            stop_consuming.set()
            for thread in consumers:
                thread.join(PATIENCE_SECONDS)
    assert not failures, failures
    print(f"sent={len(history.sent)} got={len(history.deliveries)} acked={len(history.acked_us)}")
    assert len(history.acked_us) > 100
    assert history.faults()[:10] == []


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
