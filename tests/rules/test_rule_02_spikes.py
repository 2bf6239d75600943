"""Rule 2 and rule 3 where a second holds more than a partition serves: what is due in it is sent
ahead, as far as the topic says, and still never handed over early."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.model import RowStatus
from dejaqueue.topic_names import subscription_name
from tests.rules.broker_fixture import BrokerFixture, RecordingConsumer
from tests.rules.conftest import MakeBroker

ROWS = 100
AHEAD_MS = 20_000
SETTINGS: dict[str, Any] = {
    "lease_ahead_ms": 20,
    "spike_ahead_ms": AHEAD_MS,
    "dispatch": {"partition_rows_per_s": 10, "consumer_silence_ms_max": 1_000_000_000},
}
"""A partition of this broker leases ten messages a second, it says: a hundred take ten seconds."""


def scheduled(broker: BrokerFixture, in_ms: int = 30_000) -> int:
    """A hundred messages of one millisecond; which one it is."""
    due_ms = (broker.now_ms + in_ms) // 1_000 * 1_000
    broker.send([b"%d" % number for number in range(ROWS)], [due_ms] * ROWS)
    return due_ms


def holder(broker: BrokerFixture, credit: int = 2 * ROWS) -> RecordingConsumer:
    consumer = broker.consumer(credit=credit)
    consumer.knows_its_clock()
    return consumer


def until(broker: BrokerFixture, at_ms: int) -> None:
    broker.advance(at_ms - broker.now_ms)


def test_a_spike_is_sent_as_early_as_it_takes__and_what_else_is_due_comes_as_ever(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(**SETTINGS)
    consumer = holder(broker)
    due_ms = scheduled(broker)
    until(broker, due_ms - 11_500)
    assert consumer.payloads() == []
    until(broker, due_ms - 8_500)
    got = consumer.take_all()
    assert sum(len(one.payloads) for one in got) == ROWS
    assert {due for one in got for due in one.batch.column("due").to_pylist()} == {due_ms}
    assert min(one.lease_end_ms for one in got) >= due_ms
    broker.send([b"now"], [broker.now_ms])
    assert consumer.payloads() == [b"now"]
    statuses = broker.cancel(got[0].ids[:1]).statuses
    assert statuses is not None
    assert statuses.tolist() == [RowStatus.LEASED]


def held_early(broker: BrokerFixture) -> tuple[RecordingConsumer, int]:
    """A consumer that holds the hundred messages, eight seconds before they are due."""
    consumer = holder(broker)
    due_ms = scheduled(broker)
    until(broker, due_ms - 8_000)
    assert len(consumer.payloads()) == ROWS
    return consumer, due_ms


@pytest.mark.parametrize(
    "settings",
    [{"spike_ahead_ms": 0}, {"dispatch": SETTINGS["dispatch"] | {"partition_rows_per_s": ROWS}}],
    ids=["not asked for", "no spike"],
)
def test_otherwise_nothing_goes_further_ahead_than_it_may(
    make_broker: MakeBroker, settings: dict[str, Any]
) -> None:
    broker = make_broker(**SETTINGS | settings)
    consumer = holder(broker)
    due_ms = scheduled(broker)
    until(broker, due_ms - 25)
    assert consumer.payloads() == []
    until(broker, due_ms)
    assert len(consumer.payloads()) == ROWS


def test_who_has_nothing_sent_ahead_otherwise_may_have_it_in_a_spike(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(**SETTINGS | {"lease_ahead_ms": 0})
    _first, due_ms = held_early(broker)
    assert broker.now_ms < due_ms - 1_000


def test_where_another_order_than_time_decides_there_is_none(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS | {"kind": "priority"})
    consumer = holder(broker)
    due_ms = scheduled(broker)
    until(broker, due_ms - 1)
    assert consumer.payloads() == []
    until(broker, due_ms)
    assert len(consumer.payloads()) == ROWS


def test_no_message_goes_further_ahead_than_the_topic_says(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS | {"spike_ahead_ms": 3_000})
    consumer = holder(broker)
    due_ms = scheduled(broker)
    until(broker, due_ms - 3_500)
    assert consumer.payloads() == []
    until(broker, due_ms - 1_000)
    assert len(consumer.payloads()) == ROWS


def test_an_eighth_of_its_credit_is_left_to_each_consumer(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS)
    consumer = holder(broker, credit=80)
    due_ms = scheduled(broker)
    until(broker, due_ms - 1_000)
    assert len(consumer.payloads()) == 70
    until(broker, due_ms)
    assert len(consumer.payloads()) == 10


def test_who_does_not_hold_messages_gets_none_of_it_ahead(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS)
    unknown, plain = broker.consumer(credit=ROWS), broker.consumer(credit=ROWS, holds=False)
    due_ms = scheduled(broker)
    until(broker, due_ms - 30)
    assert unknown.payloads() == plain.payloads() == []
    until(broker, due_ms)
    assert len(unknown.payloads()) + len(plain.payloads()) == ROWS


def test_a_consumer_that_goes_before_brings_nothing_early__and_others_have_it_in_time(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(**SETTINGS)
    first, due_ms = held_early(broker)
    first.session.close(release=True)
    broker.settle_down()
    last = broker.consumer(credit=ROWS, holds=False)
    until(broker, due_ms - 1)
    assert last.payloads() == []
    until(broker, due_ms)
    assert len(last.payloads()) == ROWS


def test_what_comes_back_whole_is_at_most_a_second_late(make_broker: MakeBroker) -> None:
    """The simplest client gives nothing back itself: the broker does, by whole leases."""
    broker = make_broker(**SETTINGS)
    first = holder(broker, credit=10 * ROWS)
    due_ms = scheduled(broker)
    later_ms = due_ms + 5_000
    broker.send([b"later"] * ROWS, [later_ms] * ROWS)
    until(broker, due_ms - 500)
    assert len(first.payloads()) == 2 * ROWS
    first.session.close(release=True)
    broker.settle_down()
    last = broker.consumer(credit=10 * ROWS, holds=False)
    until(broker, due_ms - 1)
    assert last.payloads() == []
    until(broker, due_ms + 1_000)
    assert len(last.payloads()) == ROWS
    until(broker, later_ms - 1)
    assert last.payloads() == []
    until(broker, later_ms + 1_000)
    assert len(last.payloads()) == ROWS


def test_a_subscription_may_have_it_alone(make_broker: MakeBroker) -> None:
    named = {"early": {"spike_ahead_ms": AHEAD_MS}}
    broker = make_broker(**SETTINGS | {"spike_ahead_ms": 0, "subscriptions": named})
    main = holder(broker)
    early = broker.consumer(credit=2 * ROWS, topic=subscription_name("t", "early"))
    early.knows_its_clock()
    due_ms = scheduled(broker)
    until(broker, due_ms - 5_000)
    assert main.payloads() == []
    assert len(early.payloads()) == ROWS


def test_a_subscription_that_begins_with_what_others_hold_has_none_of_it_early(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(**SETTINGS)
    _first, due_ms = held_early(broker)
    broker.broker.alter_topic("t", {"subscriptions": {"s": {"start": "live"}}})
    broker.settle_down()
    made_ms = broker.now_ms
    later = broker.consumer(credit=ROWS, topic=subscription_name("t", "s"), holds=False)
    until(broker, due_ms)
    assert later.payloads() == []
    until(broker, made_ms + AHEAD_MS + 1_000)
    assert len(later.payloads()) == ROWS
