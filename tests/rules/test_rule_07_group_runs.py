"""Rule 7 where a group gives its messages in runs (`group_runs`, ADR 64).

Covered: how long a run is, what waits for it, what comes back of it, beside other groups and their
weights, by subscription. Over random histories: tests/model/test_fair_against_model.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import BrokerFixture, Got, RecordingConsumer
from tests.rules.conftest import MakeBroker

RUNS: dict[str, Any] = {"kind": "fair", "group_runs": True}


def send(broker: BrokerFixture, group: str, payloads: str) -> None:
    columns = {"payload": [one.encode() for one in payloads], "group": [group] * len(payloads)}
    assert broker.write("enqueue", columns).error is None


def lease(broker: BrokerFixture, count: int) -> list[Got]:
    """What one consumer gets that asks for so many."""
    consumer = broker.consumer(credit=count)
    got = consumer.take_all()
    consumer.session.credit(0)
    return got


def text(got: list[Got]) -> str:
    return b"".join(payload for one in got for payload in one.payloads).decode()


def rows_of(got: Got, index: int) -> dict[str, Any]:
    """One of the rows, as a settle names it."""
    row = got.batch.slice(index, 1)
    return {"ids": row["id"].to_numpy(), "attempts": row["attempts"].to_numpy()}


def settler(broker: BrokerFixture) -> RecordingConsumer:
    return broker.consumer(credit=0)


def test_one_lease_has_as_many_of_a_group_as_it_asks_for__in_order(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(**RUNS)
    send(broker, "a", "12345")
    got = lease(broker, 3)
    assert text(got) == "123"
    assert lease(broker, 9) == [], "the rest waits, whoever asks"
    settler(broker).ack(got[0])
    assert text(lease(broker, 9)) == "45"


def test_a_run_is_no_longer_than_the_cap_of_its_group(make_broker: MakeBroker) -> None:
    broker = make_broker(**RUNS, group_in_flight_max=2)
    send(broker, "a", "12345")
    send(broker, "b", "6")
    got = lease(broker, 9)
    assert text(got) == "126"


def test_what_comes_back_of_a_run_waits_for_the_others_of_it(make_broker: MakeBroker) -> None:
    """The second is done, the first is let go: the third is still in somebody's hands."""
    broker = make_broker(**RUNS)
    send(broker, "a", "12345")
    [got] = lease(broker, 3)
    hand = settler(broker)
    hand.ack_rows(got.ids[1:2], got.attempts[1:2])
    hand.settle(SettleOp.NACK, **rows_of(got, 0))
    assert lease(broker, 9) == []
    hand.ack_rows(got.ids[2:], got.attempts[2:])
    assert text(lease(broker, 9)) == "145"


def test_a_run_whose_lease_ends_comes_again_as_it_was(make_broker: MakeBroker) -> None:
    broker = make_broker(**RUNS, lease_ms=1_000)
    send(broker, "a", "123")
    assert text(lease(broker, 2)) == "12"
    broker.advance(999)
    assert lease(broker, 9) == []
    broker.advance(1)
    assert text(lease(broker, 9)) == "123"


def test_a_message_that_is_extended_holds_its_group(make_broker: MakeBroker) -> None:
    broker = make_broker(**RUNS, lease_ms=1_000)
    send(broker, "a", "123")
    [got] = lease(broker, 2)
    settler(broker).settle(SettleOp.EXTEND, argument_ms=5_000, **rows_of(got, 1))
    broker.advance(4_999)
    assert lease(broker, 9) == []
    broker.advance(1)
    assert text(lease(broker, 9)) == "123"


def test_a_group_gives_its_run_at_its_turn__and_weights_hold(make_broker: MakeBroker) -> None:
    """Runs of ten: b has three times as many, though it never waits between them."""
    broker = make_broker(**RUNS, group_in_flight_max=10, weights={"b": 3})
    for group in "ab":
        send(broker, group, group * 400)
    hand, order = settler(broker), ""
    for _ in range(40):
        got = lease(broker, 10)
        assert text(got) in ("a" * 10, "b" * 10)
        order += text(got)[0]
        for one in got:
            hand.ack(one)
    assert order.count("b") == 30


def test_a_subscription_may_have_runs_of_its_own(make_broker: MakeBroker) -> None:
    runs = {"group_runs": True, "group_in_flight_max": 2}
    broker = make_broker(kind="fair", subscriptions={"runs": runs}, group_in_flight_max=1)
    send(broker, "a", "123")
    assert text(lease(broker, 9)) == "1"
    consumer = broker.consumer(topic="t@runs", credit=9)
    broker.settle_down()
    assert text([consumer.get()]) == "12"


def test_the_setting_holds_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair", group_in_flight_max=1)
    send(broker, "a", "12345")
    [got] = lease(broker, 9)
    broker.broker.alter_topic("t", {"group_runs": True, "group_in_flight_max": 3})
    assert lease(broker, 9) == []
    settler(broker).ack(got)
    assert text(lease(broker, 9)) == "234"


def test_priority_first_has_no_runs() -> None:
    with pytest.raises(BadRequest, match=r"topic\.group_runs: false where group_order is"):
        Topic.from_dict({"name": "t", "kind": "fair", "group_order": "priority_first", **RUNS})
