"""SIGKILL of a broker whose topic has two subscriptions and forgets what it retained all the while.

Covered: rules 1 to 6 in each subscription, while retention lets go of messages, segments roll and
snapshots are taken. Not covered: power cuts (tests/simulation, kind `views`).
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue import Client
from tests.crash.broker_process import BrokerProcess
from tests.crash.history import History
from tests.crash.test_broker_kill import TOPIC, consume, drain, produce
from tests.patience import PATIENCE_SECONDS, until

CYCLES = int(os.environ.get("DEJAQ_KILL_CYCLES", "2"))
VIEWS = ("billing", "urgent")
RETAINED_MS = 700

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900 + 30 * CYCLES)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=150,
    )
    process.start()
    yield process
    process.kill()


def test_each_subscription_gets_everything_once__sigkill_while_messages_are_forgotten(
    broker: BrokerProcess,
) -> None:
    seed = int(os.environ.get("DEJAQ_KILL_SEED", random.randrange(1 << 30)))
    random.seed(seed)
    print(f"DEJAQ_KILL_SEED={seed}")
    with Client(broker.url) as client:
        client.create_topic(TOPIC, partitions=2, unnamed=False, retention_ms=RETAINED_MS)
        client.create_subscription(TOPIC, "billing")
        client.create_subscription(TOPIC, "urgent", order="priority")
    sent = History()
    histories = {name: seen_by_another(sent) for name in VIEWS}
    stop_producing, stop_consuming = threading.Event(), threading.Event()
    with ThreadPoolExecutor(4) as threads:
        producing = [
            threads.submit(produce, broker.url, sent, worker, stop_producing, TOPIC, 0.03)
            for worker in range(2)
        ]
        consuming = [
            threads.submit(consume, broker.url, history, stop_consuming, f"{TOPIC}@{name}")
            for name, history in histories.items()
        ]
        try:
            for _ in range(CYCLES):
                before = {name: len(one.acked_us) for name, one in histories.items()}
                until(
                    lambda before=before: all(  # type: ignore[misc]
                        len(histories[name].acked_us) > count + 100
                        for name, count in before.items()
                    ),
                    "both subscriptions are consumed",
                )
                broker.kill()
                broker.start()
        finally:
            stop_producing.set()
            for future in producing:
                future.result(PATIENCE_SECONDS)
            try:
                for name in VIEWS:
                    drain(broker.url, f"{TOPIC}@{name}")
            finally:
                stop_consuming.set()
        for future in consuming:
            future.result(PATIENCE_SECONDS)
    for name, history in histories.items():
        print(f"{name}: sent={len(sent.sent)} acked={len(history.acked_us)}")
        assert [f"{name}: {fault}" for fault in history.faults()[:5]] == []
    with Client(broker.url) as client:
        until(lambda: not client.stats(TOPIC).retained, "all of it is old enough")
    assert broker.stop() == 0


def seen_by_another(sent: History) -> History:
    """A history of other deliveries of the same messages."""
    return History(
        sent.tried,
        sent.sent,
        sent.moved,
        sent.moved_us,
        sent.unsure,
        sent.cancelled_us,
        is_one_of_many=True,
        lock=sent.lock,
    )
