"""Three brokers and a bucket, and no other server: killed, paused, and the bucket away.

Covered: three `dejaq serve` whose journals and coordinator are in one bucket of S3's protocol;
rules 1 to 6 over SIGKILL, SIGSTOP past the lease, a bucket that is away for longer than the lease.
Not covered: the contract of the coordinator (tests/conformance/test_coordinator_bucket.py).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.outage import Probe
from dejaqueue import Client
from dejaqueue.testing.cutting_proxy import CuttingProxy
from tests.cluster.disturbed import check_disturbed
from tests.cluster.test_kill import owner_of
from tests.crash.broker_process import BrokerProcess
from tests.object_store import S3Server, s3_server
from tests.patience import until

ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
pytestmark = [
    pytest.mark.crash,
    pytest.mark.may_skip,
    pytest.mark.skipif(not ALL, reason="takes minutes: DEJAQ_RELIABILITY=all"),
]

LEASE_MS = 10_000
"""Moto's server is slow on a busy machine: with five seconds nobody renewed in time."""
AWAY_SECONDS = float(os.environ.get("DEJAQ_BUCKET_AWAY_SECONDS", "12"))
TAKEN_SECONDS_MAX = 60.0
"""Of the lease and some seconds on a quiet machine."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuttingProxy]:
    port = urlsplit(server.endpoint).port
    assert port is not None
    with CuttingProxy(port) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{made.port}")
        yield made


@pytest.fixture
def brokers(server: S3Server, proxy: CuttingProxy, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    url = f"{server.new_bucket()}/queues?between_ms=20"
    made = [
        BrokerProcess(
            url,
            tmp_path / f"{name}.log",
            cluster__coordinator="journal",
            cluster__node=name,
            cluster__lease_ms=LEASE_MS,
            journal__snapshot_entries=150,
        )
        for name in "abc"
    ]
    try:
        for broker in made:
            broker.start()
        yield made
    finally:
        for broker in made:
            broker.kill()


def url_of(brokers: list[BrokerProcess]) -> str:
    return "dejaq://" + ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)


def slots_of(url: str) -> Counter[str]:
    """How many topics each broker serves."""
    with Client(url) as client:
        return Counter(topic["node"] for topic in client.cluster()["topics"])


def test_topics_are_spread__and_those_of_a_broker_whose_machine_died_are_taken_over(
    brokers: list[BrokerProcess], proxy: CuttingProxy
) -> None:
    url = url_of(brokers)
    until(lambda: members(url) == 3, "all three are members")
    with Client(url) as client:
        for number in range(12):
            client.create_topic(f"t{number}")
        client.create_topic("probed", partitions=2)
    until(lambda: len(slots_of(url)) == 3 and "" not in slots_of(url), "each serves some")
    with Probe(url, "probed", [[0, 1]], 0.05) as probe:
        broker = owner_of(brokers, "probed")
        since = time.monotonic()
        # With its witness, as a machine dies: the others hear nothing, and wait for its lease.
        for pid in (witness_of(broker.pid), broker.pid):
            os.kill(pid, signal.SIGKILL)
        probe.wait_served(time.monotonic(), TAKEN_SECONDS_MAX)
        print(f"machine died: served again after {time.monotonic() - since:.1f} s")
        broker.kill()
        broker.start()
        until(lambda: members(url) == 3, "all three are members again")
        probe.wait_served(time.monotonic(), TAKEN_SECONDS_MAX)
        broker = owner_of(brokers, "probed")
        since = time.monotonic()
        broker.kill()
        probe.wait_served(since + 0.2, TAKEN_SECONDS_MAX)
        print(f"process died: served again after {time.monotonic() - since:.1f} s")
    until(lambda: len(slots_of(url_of([b for b in brokers if b.is_up]))) == 2, "two serve all")


def test_nothing_is_lost_early_or_twice__killed__paused_and_the_bucket_away(
    brokers: list[BrokerProcess], proxy: CuttingProxy
) -> None:
    url, topic = url_of(brokers), "disturbed"
    until(lambda: members(url) == 3, "all three are members")

    def pause() -> None:
        broker = owner_of(brokers, topic)
        os.kill(broker.pid, signal.SIGSTOP)
        threading.Event().wait(1.6 * LEASE_MS / 1_000)
        os.kill(broker.pid, signal.SIGCONT)

    def kill() -> None:
        broker = owner_of(brokers, topic)
        broker.kill()
        broker.start()

    def away() -> None:
        proxy.cut()
        threading.Event().wait(AWAY_SECONDS)
        proxy.mend()
        until(lambda: members(url) == 3, "all three are members again")

    turns = (pause, kill, away)
    check_disturbed(url, topic, len(turns), lambda turn: turns[turn](), acked_min=10)


def witness_of(pid: int) -> int:
    """The process that says that this one is dead."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        if "witness" in Path(f"/proc/{child}/cmdline").read_text():
            return int(child)
    raise AssertionError(f"{pid} has no witness: {children}")


def members(url: str) -> int:
    """How many brokers there are."""
    with Client(url) as client:
        return len(client.cluster()["nodes"])
