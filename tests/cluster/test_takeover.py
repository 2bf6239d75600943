"""A broker that is killed is known to be dead long before its lease ends; a rolling restart.

Covered: three `dejaq serve` on one PostgreSQL and one etcd, with a lease of two minutes, so that
waiting for its end would show.
Not covered: how long it takes on a quiet machine (`make bench-cluster`), and machines that die
with everything on them (test_kill.py pauses brokers, tests/chaos cuts networks).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.outage import Probe
from dejaqueue import Client
from dev.services.service import Service
from tests.cluster.served import three_brokers
from tests.cluster.test_kill import owner_of
from tests.crash import test_broker_kill as load
from tests.crash.broker_process import BrokerProcess
from tests.crash.history import History
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash]

LEASE_MS = 120_000
AWAY_SECONDS_MAX = 60.0
"""Of a second or two on a quiet machine, of half a minute on one with a load of 24."""
PARTITIONS = 4


@pytest.fixture
def brokers(postgresql: Service, etcd: Service, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    with three_brokers(tmp_path, postgresql, etcd, LEASE_MS) as made:
        yield made


def test_nobody_waits_for_the_lease_of_a_broker_that_was_killed(
    brokers: list[BrokerProcess],
) -> None:
    url = url_of(brokers)
    with Client(url) as client:
        client.create_topic("t", partitions=PARTITIONS)
    with Probe(url, "t", [range(PARTITIONS)], 0.05) as probe:
        owner = owner_of(brokers, "t")
        since = time.monotonic()
        owner.kill()
        probe.wait_served(since, AWAY_SECONDS_MAX)
        sends, messages = probe.gaps(since)
    assert max(*sends, *messages) < AWAY_SECONDS_MAX
    # Its next life need not wait for the lease of the one before, either.
    began = time.monotonic()
    owner.start()
    assert time.monotonic() - began < AWAY_SECONDS_MAX


def test_a_rolling_restart_loses_nothing__and_nobody_waits_long(
    brokers: list[BrokerProcess],
) -> None:
    url = url_of(brokers)
    history, stop_producing, stop_consuming = History(), threading.Event(), threading.Event()
    with Client(url) as client:
        client.create_topic("rolled", partitions=PARTITIONS)
        client.create_topic("probed", partitions=PARTITIONS)
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

    producer = run(load.produce, url, history, 0, stop_producing, "rolled")
    consumer = run(load.consume, url, history, stop_consuming, "rolled")
    try:
        with Probe(url, "probed", [[0], [1, 2, 3]]) as probe:
            since = time.monotonic()
            for broker in brokers:
                assert broker.stop() == 0
                broker.start()
                until(lambda: members(url) == 3, "all three are members")
                probe.wait_served(time.monotonic(), AWAY_SECONDS_MAX)
            sends, messages = probe.gaps(since)
        assert max(*sends, *messages) < AWAY_SECONDS_MAX
    finally:
        stop_producing.set()
        producer.join(PATIENCE_SECONDS)
        try:
            load.drain(url, "rolled")
        finally:
            stop_consuming.set()
            consumer.join(PATIENCE_SECONDS)
    assert not failures, failures
    assert len(history.acked_us) > 10
    assert history.faults()[:10] == []


def url_of(brokers: list[BrokerProcess]) -> str:
    """All of them."""
    return "dejaq://" + ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)


def members(url: str) -> int:
    """How many brokers there are."""
    with Client(url) as client:
        return len(client.cluster()["nodes"])
