"""Covers: which snapshots are taken when a topic is given to another broker, and when; that what is
on its way to consumers then still comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.consumers.gathering import delivery_batches
from dejaqueue.broker.streams import Push
from dejaqueue.broker.topic import handing_over
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError, Elsewhere, Unavailable
from dejaqueue.journal.interface import Snapshot
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from dejaqueue.wire.descriptors import ConsumeStream
from tests.cluster.brokers import payloads, send
from tests.patience import PATIENCE_SECONDS, until


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


def test_a_partition_that_nobody_used_is_not_read_for_a_snapshot(broker: Broker) -> None:
    broker.create_topic(Topic("two", partitions=2))
    send(broker, "two", ["x"])
    partitions = broker.runtime("two").partitions
    before = [one.loaded for one in partitions]
    assert sorted(before) == [False, True]
    broker.prepare_to_give("two")
    assert [one.loaded for one in partitions] == before


def test_nobody_waits_for_a_snapshot_when_it_is_given(broker: Broker) -> None:
    fill(broker, handing_over.ENTRIES_MAX + 1)
    broker.give("t", drain=True)
    assert newest_snapshot(broker) is None


class SlowSink:
    """A way to a consumer whose sending thread has not come to anything yet."""

    def __init__(self) -> None:
        self.pushes: list[Push] = []
        self.ends: list[DejaQError] = []

    def push(self, push: Push) -> None:
        self.pushes.append(push)

    def end(self, error: DejaQError) -> None:
        self.ends.append(error)

    def received(self) -> list[bytes]:
        """What the thread sends when it comes."""
        return [
            payload.as_py()
            for push in self.pushes
            for batch in delivery_batches([push])
            for payload in batch.column("payload")
        ]


def consumed(broker: Broker, count: int) -> SlowSink:
    """A consumer to whom so many messages are on their way."""
    sink = SlowSink()
    broker.open_consume(ConsumeStream("t").check(), sink).credit(100)
    send(broker, "t", [str(number) for number in range(count)], delay_ms=0)
    until(lambda: sum(len(push.leased.sequences) for push in sink.pushes) == count, "leased")
    return sink


def test_what_is_on_its_way_to_a_consumer_comes__though_the_topic_was_given(
    broker: Broker,
) -> None:
    """Or its lease would run out first: 30 s without that message."""
    sink = consumed(broker, 3)
    broker.give("t", drain=True)
    assert [type(error) for error in sink.ends] == [Elsewhere]
    assert sink.received() == [b"0", b"1", b"2"]


def test_what_is_on_its_way_to_a_consumer_comes__though_the_broker_stops(broker: Broker) -> None:
    sink = consumed(broker, 3)
    broker.stop()
    assert sink.received() == [b"0", b"1", b"2"]


def test_what_somebody_else_serves_already_is_not_sent(broker: Broker) -> None:
    sink = consumed(broker, 3)
    broker.give("t", drain=False)
    with pytest.raises(Unavailable, match="is closed"):
        sink.received()


def test_more_than_is_kept_is_told(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handing_over, "KEPT_BYTES_MAX", 0)
    sink = consumed(broker, 1)
    broker.give("t", drain=True)
    assert "1 deliveries are lost on their way" in caplog.text
    with pytest.raises(Unavailable, match="is closed"):
        sink.received()


def test_who_closes_in_the_middle_is_told_to_give_back_elsewhere(broker: Broker) -> None:
    sink = SlowSink()
    session = broker.open_consume(ConsumeStream("t").check(), sink)
    other = broker.open_consume(ConsumeStream("t").check(), sink)
    assert other.close(release=True) is None
    broker.give("t", drain=True)
    assert session.close(release=False) is None
    assert isinstance(session.close(release=True), Elsewhere)


def test_who_comes_in_the_middle_is_sent_away(broker: Broker) -> None:
    """It would wait for ever for what another broker has."""
    served = broker.runtime("t")
    broker.give("t", drain=True)
    with pytest.raises(Elsewhere, match="between two owners"):
        served.dispatcher.add(ConsumeStream("t").check(), SlowSink(), 0, 0)


def test_what_comes_in_the_middle_is_answered_that_nothing_of_it_was_done(broker: Broker) -> None:
    served = broker.runtime("t")
    broker.give("t", drain=True)
    with pytest.raises(Elsewhere, match="between two owners"):
        served.change(0, lambda core: core.number).result(PATIENCE_SECONDS)


def test_a_lease_that_lands_after_its_consumer_has_closed_is_given_back__though_the_topic_is_given(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would run out first, at the next owner."""
    send(broker, "t", ["x"], delay_ms=0)
    sink, gate = SlowSink(), threading.Event()
    session = broker.open_consume(ConsumeStream("t").check(), sink)
    append, begun = MemoryRecords.append, threading.Event()

    def late(self: MemoryRecords, after: int, records: Any) -> None:
        begun.set()
        assert gate.wait(PATIENCE_SECONDS)
        append(self, after, records)

    monkeypatch.setattr(MemoryRecords, "append", late)
    runtime = broker.runtime("t")
    session.credit(1)
    assert begun.wait(PATIENCE_SECONDS)  # its lease is being appended
    session.close(release=True)
    giving = threading.Thread(target=broker.give, args=("t",), kwargs={"drain": True})
    giving.start()
    until(lambda: runtime.is_closing, "it is being given")
    threading.Event().wait(0.2)  # whoever closes the partition waits for the append by now
    gate.set()
    giving.join(PATIENCE_SECONDS)
    broker.take("t")
    counts = broker.runtime("t").look(0, lambda core: core.engine.counts).result(PATIENCE_SECONDS)
    assert (counts.scheduled, counts.leased) == (1, 0)
