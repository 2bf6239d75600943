"""News of the broker: which level, which facts; and that they come from where it happens.

Covered: start, stop, recovery, failures, slow disks, snapshots.
"""

from __future__ import annotations

import logging

import pytest

from dejaqueue.broker import news
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import ResourceExhausted, Unavailable
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.settings import BrokerSettings, JournalSettings


def test_levels_tell_how_much_it_matters(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dejaqueue.broker")
    news.recovered("a", 1, 10, news.LONG_RECOVERY_MS - 1)
    news.recovered("a", 1, 10, news.LONG_RECOVERY_MS)
    news.failed("a", 1, ResourceExhausted("full"), final=False)
    news.failed("a", 1, Unavailable("a sync failed"), final=True)
    news.synced("a", 1, 10, news.SLOW_SYNC_MS * 1_000 - 1)
    news.synced("a", 1, 10, news.SLOW_SYNC_MS * 1_000)
    news.snapshot_taken("a", 1, 5)
    news.snapshot_failed("a", 1, ResourceExhausted("full"))
    journal = MemoryStore().open("a", 1)
    journal._notes.append("a mark is damaged")
    news.mended("a", 1, journal)
    journal.cut_bytes = 40
    news.mended("a", 1, journal)
    levels = [record.levelname for record in caplog.records]
    first = ["DEBUG", "INFO", "WARNING", "ERROR", "WARNING", "DEBUG", "WARNING"]
    assert levels == [*first, "WARNING", "ERROR"]
    assert all((record.topic, record.partition) == ("a", 1) for record in caplog.records)  # type: ignore[attr-defined]
    assert "served again after a new start" in caplog.messages[3]


def test_a_broker_says_when_it_starts_and_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dejaqueue.broker")
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.stop()
    assert [message.split()[0] for message in caplog.messages] == ["started", "stopped"]
