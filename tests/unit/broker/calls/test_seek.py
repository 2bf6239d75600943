"""Where a seek may go to, and how it goes on. What comes of it: tests/rules/test_rule_21*."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.broker.calls.seek import parse_place
from dejaqueue.errors import BadRequest
from dejaqueue.limits import INSTANT_MS_MAX
from tests.rules.broker_fixture import BrokerFixture


def test_places() -> None:
    assert [parse_place(to) for to in ("beginning", "end", 0, INSTANT_MS_MAX)] == [
        0, -1, 0, INSTANT_MS_MAX,
    ]  # fmt: skip


@pytest.mark.parametrize("to", [None, "", "now", -1, INSTANT_MS_MAX + 1, True, 1.0, [0]])
def test_what_is_no_place(to: Any) -> None:
    with pytest.raises(BadRequest, match="beginning, end"):
        parse_place(to)


@pytest.mark.parametrize(
    "after",
    [
        7,
        {"partition": 0},
        {"partition": 9, "first": 0, "end": 0, "from_ms": 0},
        {"partition": 0, "first": -1, "end": 0, "from_ms": 0},
        {"partition": 0, "first": 0, "end": 0, "from_ms": "x"},
    ],
)
def test_what_is_no_way_to_go_on(after: Any) -> None:
    fixture = BrokerFixture()
    with pytest.raises(BadRequest):
        fixture.broker.call("seek", {"topic": "t", "to": "end", "after": after})
    fixture.stop()


def test_what_a_seek_brings_back_is_not_late_by_its_age() -> None:
    fixture = BrokerFixture(retention_ms=10_000_000)
    try:
        consumer = fixture.consumer()
        late = fixture.broker.runtime("t").counting.lateness
        fixture.send([b"a", b"b"])
        for got in consumer.take_all():
            consumer.ack(got)
        before = late.read()
        assert before.count == 2
        fixture.advance(500_000)
        assert fixture.broker.call("seek", {"topic": "t", "to": "beginning"})["replayed"] == 2
        assert [payload for got in consumer.take_all() for payload in got.payloads] == [b"a", b"b"]
        assert (late.read().count, late.read().sum) == (before.count, before.sum)
    finally:
        fixture.stop()
