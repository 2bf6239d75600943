"""SIGKILL of a real broker in the middle of transactions; and of an at-most-once consumer's broker.

Covered: consume-process-produce over restarts (each input has exactly one output), commits whose
answer is lost, rule 5's exception for auto_ack.
Not covered: every single step of a commit (tests/crash/test_transactions.py).
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client, DejaQError
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.crash]

CYCLES = int(os.environ.get("DEJAQ_KILL_CYCLES_OF_PARTS", "5"))
INPUTS = 3_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "journals",
        tmp_path / "broker.log",
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=150,
    )
    process.start()
    yield process
    process.kill()


def carry(url: str, stop: threading.Event, failures: list[BaseException]) -> None:
    """Inputs to outputs, in transactions, until told to stop."""
    while not stop.is_set():
        try:
            with (
                Client(url, retry_ms_max=5_000) as client,
                client.consume_batches("in", batch_rows=5, prefetch=100, idle_ms=500) as batches,
            ):
                for batch in batches:
                    with client.transaction(timeout=2) as transaction:
                        payloads = batch.batch.column("payload").to_pylist()
                        transaction.send_batch("out", payloads)
                        transaction.ack(batch)
                    if stop.is_set():
                        break
        except DejaQError:
            continue  # refused, or no broker: what it had comes again
        except BaseException as wrong:  # noqa: BLE001 - shown at the end of the test
            failures.append(wrong)
            return


def test_each_input_has_one_output__sigkill_under_load(broker: BrokerProcess) -> None:
    with Client(broker.url) as client:
        client.create_topic("in", partitions=2, lease_ms=2_000)
        client.create_topic("out", partitions=2)
        client.send_batch("in", [b"%d" % n for n in range(INPUTS)])
    stop, failures = threading.Event(), list[BaseException]()
    carriers = [threading.Thread(target=carry, args=(broker.url, stop, failures)) for _ in range(2)]
    for carrier in carriers:
        carrier.start()
    try:
        for _ in range(CYCLES):
            stop.wait(random.uniform(0.05, 0.5))
            broker.kill()
            broker.start()
        with Client(broker.url) as client:
            for _ in range(600):
                stats = client.stats("in")
                if not stats["scheduled"] + stats["leased"] + len(client.transactions("in")):
                    break
                threading.Event().wait(0.1)
    finally:
        stop.set()
        for carrier in carriers:
            carrier.join(PATIENCE_SECONDS)
    assert not failures, failures
    got: Counter[bytes] = Counter()
    with Client(broker.url) as client:
        assert client.stats("in")["scheduled"] == 0
        with client.consume_batches("out", batch_rows=1_000, idle_ms=3_000) as batches:
            for batch in batches:
                got.update(batch.batch.column("payload").to_pylist())
                batch.ack()
    assert [payload for payload, count in got.items() if count > 1] == []
    assert len(got) == INPUTS


def test_what_was_sent_with_auto_ack_never_comes_again(broker: BrokerProcess) -> None:
    with Client(broker.url) as client:
        client.create_topic("in", partitions=2)
        client.send_batch("in", [b"%d" % n for n in range(INPUTS)])
        seen: Counter[bytes] = Counter()
        with client.consume("in", auto_ack=True, prefetch=50, max_messages=100) as consumer:
            seen.update(message.payload for message in consumer)
        assert len(seen) == 100
        first = client.consume("in", auto_ack=True, prefetch=50)
        seen.update([next(first).payload])
        broker.kill()
        broker.start()
        with client.consume("in", auto_ack=True, prefetch=500, idle_ms=2_000) as consumer:
            seen.update(message.payload for message in consumer)
        first.close()
        stats = client.stats("in")
    assert set(seen.values()) == {1}
    # What was on its way to the first consumer may be gone, and nothing else.
    assert INPUTS - 200 <= len(seen) <= INPUTS
    assert stats["scheduled"] == stats["leased"] == 0
