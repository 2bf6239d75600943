"""Covers: disk that nobody needs is given back without anybody's doing: after a start, while a
topic is idle, and to producers of another topic.

Not covered: a disk that is really full (tests/crash/test_full_disk.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dejaqueue.errors import ResourceExhausted
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.store import SHARDS, spread
from dejaqueue.model import Topic
from tests.rules.broker_fixture import TOPIC, BrokerFixture

PAYLOADS = [b"x" * 10_000] * 50
BATCHES = 16
EMPTY_BYTES = 1 << 20
"""What an empty partition may take: its first segment, and what lies beside."""


def taken_bytes(path: Path, topic: str = TOPIC) -> int:
    [made] = (path / "topics" / topic).iterdir()
    total = 0
    for one in (path / "shards" / f"{spread(int(made.name[1:])) % SHARDS:04d}").iterdir():
        with suppress(FileNotFoundError):  # it is deleted just now
            total += one.stat().st_size if one.is_file() else 0
    return total


def send_and_consume(broker: BrokerFixture) -> None:
    for _ in range(BATCHES):
        assert broker.send(PAYLOADS).error is None
    consumer = broker.consumer(credit=100_000)
    got = 0
    while deliveries := consumer.take_all():
        for delivery in deliveries:
            got += delivery.batch.num_rows
            assert consumer.ack(delivery).error is None
    assert got == BATCHES * len(PAYLOADS)


def untouched(broker: BrokerFixture, ms: int, is_so: Callable[[], bool], turns: int = 300) -> bool:
    """Whether it is so after a while in which nobody asks for anything."""
    for _ in range(turns):
        if is_so():
            return True
        broker.clock.advance(ms=ms)
        time.sleep(0.01)  # tidy: allow sleep, because whoever asks a partition also wakes it
    return False


def test_after_a_start_an_unused_partition_gives_back_what_it_can(tmp_path: Path) -> None:
    broker = BrokerFixture(tmp_path)
    try:
        send_and_consume(broker)
        assert taken_bytes(tmp_path) > 4 * EMPTY_BYTES
        broker.restart()
        assert untouched(broker, 100, lambda: taken_bytes(tmp_path) < EMPTY_BYTES + 50_000)
    finally:
        broker.stop()


def test_an_idle_partition_gives_back_what_it_can__and_then_rests(tmp_path: Path) -> None:
    broker = BrokerFixture(tmp_path, snapshot_interval_ms=10_000)
    try:
        send_and_consume(broker)
        assert untouched(broker, 1_000, lambda: taken_bytes(tmp_path) < EMPTY_BYTES + 50_000)
        broker.wait_for_snapshots()
        snapshots = broker.counts()["snapshots"]
        for _ in range(5):
            broker.advance(10_000)
        assert broker.counts()["snapshots"] <= snapshots + 1
    finally:
        broker.stop()


def test_a_full_disk_lets_producers_in_once_consumers_of_another_topic_made_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = BrokerFixture(tmp_path, snapshot_interval_ms=0, snapshot_entries=0)
    try:
        broker.broker.create_topic(Topic("other"))
        assert broker.send([b"x"], topic="other").error is None
        send_and_consume(broker)
        disk_bytes = taken_bytes(tmp_path) + taken_bytes(tmp_path, "other") + 900_000

        def free_bytes(self: FileSystem, directory: Path) -> int:
            return disk_bytes - taken_bytes(tmp_path) - taken_bytes(tmp_path, "other")

        monkeypatch.setattr(FileSystem, "free_bytes", free_bytes)
        assert isinstance(broker.send([b"x"], topic="other").error, ResourceExhausted)
        assert untouched(broker, 100, lambda: broker.send([b"x"], topic="other").error is None)
    finally:
        broker.stop()
