"""One broker becomes three while it runs, three become five, and five three again; rules 1 to 6.

Covered: `dejaq serve` on one PostgreSQL and one etcd, a topic in three shards and one in none,
under load; which brokers serve at each stage; how long a send and a delivery wait.
Not covered: a broker whose journals are files here, which is moved by a backup (test_backup.py);
servers of JetStream that join and leave (test_join_leave.py).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dejaqueue import Client
from dev.services.service import Service
from tests.cluster.served import brokers_to_start, members
from tests.cluster.waits import Waits, under_load
from tests.crash.broker_process import BrokerProcess
from tests.patience import until

pytestmark = [pytest.mark.crash]

LEASE_MS = 5_000
TOPIC = "grows"
TOPICS = 12
WAIT_MS_MAX = 1_000
"""Of a send or a delivery at a planned hand-over, on a machine that has nothing else to do."""


def served_by(broker: BrokerProcess) -> set[str]:
    """The brokers that serve anything."""
    with Client(broker.url) as client:
        return {one["node"] for one in client.cluster()["topics"] if one["node"]}


def _grow_and_shrink(brokers: list[BrokerProcess]) -> Waits:
    first = brokers[0]
    first.start()
    with Client(first.url) as client:
        for number in range(TOPICS):
            client.create_topic(f"other{number}")
    with under_load(first.url, TOPIC) as waits:
        for names, change in (
            ("a", "one broker"),
            ("abc", "one becomes three"),
            ("abcde", "three become five"),
            ("abe", "five become three"),
        ):
            for name, broker in zip("abcde", brokers, strict=True):
                if name in names and not broker.is_up:
                    broker.start()
                elif name not in names and broker.is_up:
                    assert broker.stop() == 0
            until(lambda names=names: set(members(first)) == set(names), f"members {names}")  # type: ignore[misc]
            until(lambda names=names: served_by(first) == set(names), f"{names} serve")  # type: ignore[misc]
            threading.Event().wait(1.5)
            waits.mark(change)
    return waits


def test_one_becomes_three_becomes_five_becomes_three__under_load(
    postgresql: Service, etcd: Service, tmp_path: Path
) -> None:
    with brokers_to_start(tmp_path, postgresql, etcd, LEASE_MS, "abcde") as brokers:
        waits = _grow_and_shrink(brokers)
    assert len(waits.longest) == 4


@pytest.mark.may_skip
@pytest.mark.skipif(os.environ.get("DEJAQ_RELIABILITY") != "all", reason="make reliability")
def test_no_send_or_delivery_waits_longer_than_a_second__planned_hand_over(
    postgresql: Service, etcd: Service, tmp_path: Path
) -> None:
    with brokers_to_start(tmp_path, postgresql, etcd, LEASE_MS, "abcde") as brokers:
        waits = _grow_and_shrink(brokers)
    assert max(max(pair) for pair in waits.longest.values()) <= WAIT_MS_MAX, waits.longest
