"""Subscriptions in numbers: what each has to do, how long its first message waits, and the bound.

Not covered: how it is shown (tests/unit/http/test_exposition.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.broker.watching import observation
from dejaqueue.broker.watching.observation import Observer
from dejaqueue.broker.watching.subscription_numbers import (
    OTHERS,
    Ready,
    SubscriptionNumbers,
)
from dejaqueue.model import Topic
from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import BrokerFixture

ORDERS: dict[str, dict[str, Any]] = {
    order: {"order": order} for order in ("due", "priority", "groups", "arrival")
}


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture(partitions=2, subscriptions=ORDERS)
    yield made
    made.stop()


def look(fixture: BrokerFixture) -> dict[str, SubscriptionNumbers]:
    """By name; of the first topic."""
    numbers = next(Observer(fixture.broker).topics())
    return {one.name: one for one in numbers.subscriptions}


def test_what_is_ready_and_since_when(fixture: BrokerFixture) -> None:
    now_ms = fixture.now_ms
    fixture.send([b"a", b"b", b"c"], [now_ms - 7_000, now_ms - 5, now_ms + 60_000])
    fixture.advance(1_000)
    fixture.send([b"d"], [now_ms + 90_000])
    fixture.settle_down()
    found = look(fixture)
    assert sorted(found) == sorted(ORDERS)
    assert found["due"].ready == Ready(2, now_ms - 7_000)
    assert found["arrival"].ready == Ready(4, now_ms)  # when the first came in
    # Their first is not the oldest.
    assert found["priority"].ready == found["groups"].ready == Ready(2, -1)
    assert {one.states["scheduled"] for one in found.values()} == {4}


def test_each_is_counted_by_itself(fixture: BrokerFixture) -> None:
    fixture.send([b"a", b"b", b"c"])
    consumer = fixture.consumer(topic="t@due", credit=2)
    idle = fixture.consumer(topic="t@due", credit=0)
    for number, got in enumerate(consumer.take_all()):
        op = SettleOp.NACK if number else SettleOp.ACK
        consumer.settle(op, partition=got.partition, lease_id=got.lease_id, dead=bool(number))
    fixture.settle_down()
    found = look(fixture)
    due, arrival = found["due"], found["arrival"]
    assert (due.totals["delivered"], arrival.totals["delivered"]) == (2, 0)
    assert due.totals["acked"] + due.totals["died"] == 2
    assert (due.consumers, arrival.consumers) == (2, 0)
    assert (due.ready.count, arrival.ready.count) == (1, 3)
    idle.session.close(release=True)
    assert look(fixture)["due"].consumers == 1


def test_one_that_is_done_is_behind_by_nothing(fixture: BrokerFixture) -> None:
    fixture.send([b"a"])
    consumer = fixture.consumer(topic="t@arrival")
    for got in consumer.take_all():
        consumer.ack(got)
    found = look(fixture)
    assert found["arrival"].ready == Ready()
    assert found["due"].ready.count == 1


def test_those_too_many_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "SUBSCRIPTIONS_SHOWN_MAX", 3)
    fixture = BrokerFixture(subscriptions={"a": {}, "b": {}})
    fixture.broker.create_topic(Topic("u", subscriptions={"c": {}, "d": {}, "e": {}}))
    for topic in ("t", "u"):
        fixture.send([b"1", b"2"], topic=topic)
    numbers = {one.name: one.subscriptions for one in Observer(fixture.broker).topics()}
    shown = {
        name: {one.name: one.states["scheduled"] for one in ones} for name, ones in numbers.items()
    }
    ready = {one.name: one.ready.count for one in numbers["u"]}
    fixture.stop()
    assert shown == {"t": {"a": 2, "b": 2}, "u": {"c": 2, OTHERS: 4}}
    assert ready == {"c": 2, OTHERS: 4}


def test_one_that_is_deleted_is_not_shown_any_more(fixture: BrokerFixture) -> None:
    fixture.broker.alter_topic("t", {"subscriptions": {"due": None}})
    assert "due" not in look(fixture)


def test_ready_adds_up() -> None:
    assert Ready(1, 5) + Ready(2, 3) == Ready(3, 3)
    assert Ready(1, 5) + Ready(2) == Ready(3, 5)
    assert Ready() + Ready() == Ready()
