"""Covers: which snapshots are taken when a topic is given to another broker, and when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic import handing_over
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.clock import Clock
from dejaqueue.journal.interface import Snapshot
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from tests.cluster.brokers import payloads, send


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BrokerSettings(), store=RecordJournalStore(MemoryRecordStore()))
    broker.start()
    broker.create_topic(Topic("t"))
    yield broker
    broker.stop()


def newest_snapshot(broker: Broker) -> Snapshot | None:
    """As its next owner finds it."""
    journal = broker.store.open("t", 0)
    try:
        return journal.latest_snapshot()
    finally:
        journal.close()


def fill(broker: Broker, entries: int) -> None:
    for number in range(entries):
        send(broker, "t", [str(number)])


def test_a_short_journal_is_left_as_it_is(broker: Broker) -> None:
    fill(broker, 3)
    broker.give("t", drain=True)
    assert newest_snapshot(broker) is None
    broker.take("t")
    assert payloads(broker, "t") == ["0", "1", "2"]


def test_a_long_one_gets_a_snapshot_while_it_is_still_served(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, handing_over.ENTRIES_MAX + 1)
    served: list[bool] = []
    prepare = handing_over.prepare

    def noting(topic: ServedTopic, clock: Clock) -> None:
        prepare(topic, clock)
        served.append(broker.serves("t"))

    monkeypatch.setattr(handing_over, "prepare", noting)
    broker.prepare_to_give("t")
    broker.give("t", drain=True)
    found = newest_snapshot(broker)
    assert served == [True]
    assert found is not None
    assert found.position > handing_over.ENTRIES_MAX


def test_nobody_waits_for_a_snapshot_when_it_is_given(broker: Broker) -> None:
    fill(broker, handing_over.ENTRIES_MAX + 1)
    broker.give("t", drain=True)
    assert newest_snapshot(broker) is None
