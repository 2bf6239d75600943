"""`dejaq repair clock` against a real port, on what a broker left whose clock was ten years ahead.

Covered: what is printed, in both forms, and what --apply does. What becomes of leases is tested in
tests/unit/broker/shard/test_timekeeping.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client
from dejaqueue.flight.server import FlightServer
from dejaqueue.local import LocalTransport
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.cli.conftest import invoke

YEARS_MS = 10 * 365 * 86_400_000


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Where a broker listens that has the right time, as its directory has not."""
    settings = BrokerSettings(journal=JournalSettings(url=str(tmp_path)))
    began_ms = time.time_ns() // 1_000_000  # noqa: TID251 - the test's own
    clock = VirtualClock(began_ms)
    wrong = Broker(settings, clock)
    wrong.start()
    with Client(transport=LocalTransport(wrong), clock=clock) as client:
        client.create_topic("t")
        client.create_topic("c", kind="cron")
        client.cron("c").put("hourly", cron="0 * * * *", misfire="skip")
        client.cron("c").put("yearly", cron="0 0 1 1 *", misfire="skip")
        clock.jump(ms=YEARS_MS)
        clock.advance(ms=31_000)
        client.send("t", b"x")
        client.stats("c")
    wrong.stop()
    broker = Broker(settings)
    broker.start()
    server = FlightServer(broker, "127.0.0.1", 0)
    server.start()
    yield f"dejaq://127.0.0.1:{server.port}"
    server.stop()
    broker.stop()


def test_partitions_are_put_right_and_entries_go_on_from_now(url: str) -> None:
    found = invoke("repair", "clock", "--json", url=url)
    assert found.exit_code == 0, found.output
    values = json.loads(found.stdout)
    for row in values["partitions"]:
        assert row["ahead_ms"] <= 500
        assert row["times_set"] == 1
        assert 0 <= YEARS_MS + 31_000 - row["set_by_ms"] < 600_000
    assert {entry["entry"] for entry in values["entries"]} == {"hourly", "yearly"}
    assert all(e["waits_for_ms"] - e["should_ms"] > YEARS_MS / 2 for e in values["entries"])

    text = invoke("repair", "clock", "c", url=url).stdout
    assert "with --apply they go on from now" in text
    assert "they go on from now" in invoke("repair", "clock", "--apply", url=url).stdout
    assert json.loads(invoke("repair", "clock", "--json", url=url).stdout)["entries"] == []


def test_a_broker_whose_clock_was_right_has_nothing_to_mend(url: str) -> None:
    assert invoke("topic", "create", "fine", url=url).exit_code == 0
    found = json.loads(invoke("repair", "clock", "fine", "--json", url=url).stdout)
    [row] = found["partitions"]
    assert (row["ahead_ms"], row["times_set"], row["set_by_ms"]) == (0, 0, 0)
