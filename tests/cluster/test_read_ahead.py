"""Real brokers hand a topic over under load: what came between reading ahead and the end is there.

Covered: three `dejaq serve` on PostgreSQL and etcd, and three with JetStream beside each.
Not covered: how long it takes (`make bench-cluster`); what goes wrong on the way (the simulation).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dev.services.service import Service
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.sending import Sending, drained
from tests.cluster.served import three_brokers
from tests.cluster.test_kill import owner_of
from tests.cluster.test_takeover import members, url_of
from tests.crash.broker_process import BrokerProcess
from tests.patience import until

pytestmark = [pytest.mark.crash]

TOPIC, LEASE_MS = "ahead", 5_000
READ = re.compile(
    rf"topic {TOPIC}, partition \d+: read in \d+ ms, with (\d+) entries after the snapshot, "
    r"(\d+) of them ahead"
)
LEVELS = '{"dejaqueue.broker": "debug"}'
HAND_OVERS_MAX = 10


@pytest.fixture
def on_postgresql(
    postgresql: Service, etcd: Service, tmp_path: Path
) -> Iterator[list[BrokerProcess]]:
    with three_brokers(tmp_path, postgresql, etcd, LEASE_MS, log__levels=LEVELS) as made:
        yield made


@pytest.fixture
def on_jetstream(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    pytest.importorskip("nats")
    cluster = EmbeddedCluster(tmp_path, cluster__lease_ms=LEASE_MS, log__levels=LEVELS)
    try:
        cluster.start("a", "b", "c")
        yield list(cluster.brokers.values())
    finally:
        cluster.stop()


def test_nothing_that_came_since_is_lost__on_postgresql(on_postgresql: list[BrokerProcess]) -> None:
    assert _lost_under_load(on_postgresql) == set()


def test_nothing_that_came_since_is_lost__on_jetstream(on_jetstream: list[BrokerProcess]) -> None:
    assert _lost_under_load(on_jetstream) == set()


def _lost_under_load(brokers: list[BrokerProcess]) -> set[bytes]:
    """Restart the owner until a partition was read ahead, and got something after that; what was
    acknowledged and is not there."""
    url = url_of(brokers)
    with Client(url) as client:
        client.create_topic(TOPIC, partitions=4)
    sending = Sending(url, [TOPIC])
    try:
        for _ in range(HAND_OVERS_MAX):
            _flows_on(lambda: len(sending.acknowledged))
            owner = owner_of(brokers, TOPIC)
            assert owner.stop() == 0
            _flows_on(lambda: len(sending.acknowledged))
            found = _read(brokers)
            owner.start()
            until(lambda: members(url) == 3, "all three are members")
            if any(0 < ahead < count for count, ahead in found):
                break
        else:
            raise AssertionError(f"nothing came after it was read ahead: {found}")
    finally:
        sending.end()
    assert not sending.failures
    assert sending.acknowledged
    return sending.acknowledged - drained(url, [TOPIC])


def _flows_on(count: Callable[[], int]) -> None:
    before = count()
    until(lambda: count() > before + 200, "messages flow")


def _read(brokers: list[BrokerProcess]) -> list[tuple[int, int]]:
    """Entries behind a snapshot, and those of them that were read ahead, of each reading."""
    texts = [broker.log_text() for broker in brokers]
    return [(int(one[1]), int(one[2])) for text in texts for one in READ.finditer(text)]
