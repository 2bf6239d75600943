"""SIGKILL of a real broker while messages die and letters go back: none is lost, none is doubled.

Covered: rule 18 over the wire, with snapshots, rolling segments and copied rows. Not covered: each
step by itself (tests/rules/test_rule_18_crashes.py).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client, DejaQError
from dejaqueue.errors import Unavailable
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.crash]

TOPIC, DEAD = "work", "work.dead"
CYCLES = int(os.environ.get("DEJAQ_KILL_CYCLES_OF_PARTS", "6"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=100,
    )
    process.start()
    yield process
    process.kill()


def produce(url: str, sent: list[bytes], stop: threading.Event) -> None:
    """Messages that expire soon, or are to be refused."""
    with Client(url, retry_ms_max=1_000 * PATIENCE_SECONDS) as client:
        for turn in range(1 << 30):
            if stop.is_set():
                return
            rows: list[dict[str, Any]] = [
                {"payload": b"%d-%d" % (turn, row), "key": f"{turn}-{row}"}
                | ({"ttl": 0.05, "delay": 0.1} if row % 2 else {})
                for row in range(random.randint(1, 60))
            ]
            client.send_batch(TOPIC, rows)
            sent.extend(bytes(row["payload"]) for row in rows)
            stop.wait(0.01)


def refuse(url: str, stop: threading.Event) -> None:
    """A consumer that can do nothing."""
    while not stop.is_set():
        # On a machine that is very busy a broker may need longer to be back than clients wait.
        with contextlib.suppress(Unavailable), Client(url) as client:
            for batch in client.consume_batches(TOPIC, idle_ms=300, lease_ms=500):
                if random.random() < 0.2:
                    continue  # forgotten: its lease ends
                try:
                    batch.nack(reason="no", dead=random.random() < 0.5)
                except DejaQError:
                    continue


def wait_for_letters(client: Client, count: int) -> None:
    """Return when so many letters are there and nothing is on its way."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        work, dead = client.stats(TOPIC), client.stats(DEAD)
        on_way = work["scheduled"] + work["leased"] + work["dead"] + dead["dead"]
        if on_way == 0 and dead["scheduled"] >= count:
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{work['scheduled']=} {work['leased']=} {work['dead']=} {dead['dead']=}")


def letters(client: Client) -> Counter[bytes]:
    return Counter(client.dead_letters(DEAD, limit=1_000_000)["payload"].to_pylist())


def test_every_message_ends_as_one_letter_and_comes_back_once(broker: BrokerProcess) -> None:
    with Client(broker.url) as client:
        client.create_topic(TOPIC, partitions=2, max_attempts=1)
        client.create_topic(DEAD, partitions=2)
    sent: list[bytes] = []
    stop_sending, stop_refusing = threading.Event(), threading.Event()
    producer = threading.Thread(target=produce, args=(broker.url, sent, stop_sending))
    refuser = threading.Thread(target=refuse, args=(broker.url, stop_refusing))
    producer.start()
    refuser.start()
    try:
        for _ in range(CYCLES):
            threading.Event().wait(random.uniform(0.2, 0.8))
            broker.kill()
            broker.start()
        stop_sending.set()
        producer.join(PATIENCE_SECONDS)
        with Client(broker.url) as client:
            wait_for_letters(client, len(sent))
            assert letters(client) == Counter(sent)
    finally:
        stop_sending.set()
        stop_refusing.set()
        producer.join(PATIENCE_SECONDS)
        refuser.join(PATIENCE_SECONDS)
    assert len(sent) > 100
    come_back(broker, sent)


def come_back(broker: BrokerProcess, sent: list[bytes]) -> None:
    """Send all letters back, and kill the broker meanwhile."""
    killer = threading.Timer(0.03, broker.kill)
    killer.start()
    try:
        with Client(broker.url, retry_ms_max=500) as client:
            client.redrive(DEAD)
    except DejaQError:
        pass  # some are on their way, some are not
    killer.join()
    broker.start()
    with Client(broker.url) as client:
        client.redrive(DEAD)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while client.stats(DEAD)["dead"] and time.monotonic() < deadline:
            threading.Event().wait(0.1)
        back = Counter(client.peek(TOPIC, limit=1_000_000)["payload"].to_pylist())
        assert back == Counter(sent)
        assert not letters(client)
