"""Rule 14 on a disk that is really full: producers are refused, consumers go on, and it heals.

Covered: a broker on a small tmpfs. Not covered: ENOSPC at every single call
(tests/crash/test_segment_journal.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.errors import ResourceExhausted
from tests.crash.small_disk import small_disk_or_skip
from tests.rules.broker_fixture import BrokerFixture

pytestmark = pytest.mark.crash

DISK_BYTES = 24 << 20
PAYLOADS = [b"x" * 10_000] * 50


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = small_disk_or_skip(tmp_path / "disk", DISK_BYTES)
    yield disk.at
    disk.close()


@pytest.mark.may_skip
def test_a_full_disk_refuses_producers_only__and_heals(small_disk: Path) -> None:
    broker = BrokerFixture(small_disk / "journal", lease_ms=60_000)
    try:
        sent = 0
        refused = None
        while refused is None:
            reply = broker.send(PAYLOADS)
            refused = reply.error
            sent += 0 if refused else len(PAYLOADS)
            assert sent * len(PAYLOADS[0]) < DISK_BYTES, "the disk never filled up"
        assert isinstance(refused, ResourceExhausted)
        assert refused.retry_after_ms > 0
        assert "disk is full" in str(refused)
        # Consumers go on: every message that was acknowledged comes, and its ack is durable.
        consumer = broker.consumer(credit=100_000)
        got = 0
        while deliveries := consumer.take_all():
            for delivery in deliveries:
                got += delivery.batch.num_rows
                reply = consumer.ack(delivery)
                assert reply.error is None
                assert not reply.all_statuses().any()
        assert got == sent
        # What is done gives its room back once snapshots cover it, without a restart.
        # How many snapshots that takes depends on how long each took: they rest in between.
        healed = False
        for _ in range(50):
            broker.advance(1_000)
            broker.wait_for_snapshots()
            healed = broker.send(PAYLOADS).error is None
            if healed:
                break
        assert healed
    finally:
        broker.stop()
