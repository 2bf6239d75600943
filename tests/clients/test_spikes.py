"""Covers: clients that are sent messages long before they are due, as more is due in a second than
a partition serves in it: they hand none over before its time, have what else is due at once, and
give back what they hold so that others have it in time.

Not covered: twenty million messages (`python -m bench spike`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.clock import SystemClock
from tests.clients.drivers import Driver
from tests.clients.own_driver import OwnDriver
from tests.crash.broker_process import BrokerProcess
from tests.patience import until

ROWS = 100
AHEAD_MS, IN_MS, LATE_MS = 15_000, 6_000, 3_000
SLOW = {"dispatch__partition_rows_per_s": 40}
"""It says that a hundred messages take a partition two and a half seconds."""
WAYS = [("own", False), ("go", False), ("go", True), ("java", False), ("java", True)]

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", **SLOW)
    process.start()
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize(("language", "flight_only"), WAYS)
def test_what_is_sent_long_before_comes_in_time__and_goes_back_in_time(
    broker: BrokerProcess, tmp_path: Path, language: str, flight_only: bool
) -> None:
    clients: list[Driver | OwnDriver] = []
    for number in range(2):
        log = tmp_path / f"{number}.log"
        own = language == "own"
        clients.append(OwnDriver() if own else Driver(language, log, flight_only=flight_only))
    first, second = clients
    try:
        with Client(broker.url) as ours:
            ours.create_topic("t", spike_ahead_ms=AHEAD_MS)
            for client in clients:
                client.call("connect", url=broker.url, retry_ms=60_000)
            first.call("consume", topic="t", credit=4 * ROWS)
            first.receive(1, wait_ms=600)  # the clock is measured
            due_ms = (SystemClock().utc_ms() + IN_MS) // 1_000 * 1_000
            ours.send_batch("t", [{"payload": b"%d" % row, "due": due_ms} for row in range(ROWS)])
            until(lambda: ours.stats("t")["leased"] == ROWS)
            assert SystemClock().utc_ms() < due_ms - 1_000, "they were sent long before"
            ours.send("t", b"now")
            assert [row["payload"] for row in first.receive(1)] == [b"now"]
            first.call("close_consumer")
            second.call("consume", topic="t", credit=4 * ROWS)
            late_ms: list[int] = []
            while len(late_ms) < ROWS:
                found = [row for row in second.receive(1) if row["payload"] != b"now"]
                late_ms += [SystemClock().utc_ms() - due_ms] * len(found)
            assert min(late_ms) >= 0
            assert max(late_ms) < LATE_MS
    finally:
        for client in clients:
            client.end()
