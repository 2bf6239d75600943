"""Rules 7 and 8 where priority comes before turns: the most urgent messages of all groups first,
turns within each priority, caps over all of them.

Not covered: random commands against the model (tests/model/test_fair_against_model.py).
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker
from tests.rules.test_rule_07_group_order import MIXED, send
from tests.rules.test_rule_08_fair import assert_shares

EXPECTED = b"a1 a1 a5 b5 b6 b7 a9".split()


def make(make_broker: MakeBroker, **settings: object) -> BrokerFixture:
    return make_broker(kind="fair", group_order="priority_first", **settings)


def take(broker: BrokerFixture, count: int) -> list[bytes]:
    """The next so many, which stay leased."""
    consumer = broker.consumer(credit=count)
    return consumer.payloads()


def test_the_most_urgent_of_all_groups_come_first(make_broker: MakeBroker) -> None:
    broker = make(make_broker)
    send(broker, MIXED)
    assert broker.consumer().payloads() == EXPECTED


def test_groups_share_in_each_priority_by_their_weights(make_broker: MakeBroker) -> None:
    broker = make(make_broker, weights={"a": 3})
    rows = [(group, priority) for priority in (2, 1) for group in "abc" for _ in range(50)]
    send(broker, rows)
    consumer = broker.consumer(credit=0)
    for priority in (b"1", b"2"):
        consumer.session.credit(75)
        served = consumer.payloads()
        assert {payload[1:] for payload in served} == {priority}
        assert_shares([payload[:1].decode() for payload in served], {"a": 3, "b": 1, "c": 1})
        consumer.session.credit(75)
        assert Counter(consumer.payloads()) == {
            b"a" + priority: 5,
            b"b" + priority: 35,
            b"c" + priority: 35,
        }


def test_turns_of_one_priority_do_not_count_in_another(make_broker: MakeBroker) -> None:
    broker = make(make_broker)
    send(broker, [("a", 5)] * 10 + [("b", 5)] * 10)
    consumer = broker.consumer(credit=0)
    consumer.session.credit(3)
    assert consumer.payloads() == [b"a5", b"b5", b"a5"]
    send(broker, [("b", 1)] * 7)
    consumer.session.credit(11)
    served = consumer.payloads()
    assert served[:7] == [b"b1"] * 7
    assert served[7:] == [b"b5", b"a5", b"b5", b"a5"], "it goes on where it was"


def test_what_is_more_urgent_overtakes_what_waits__and_filters_see_the_same_order(
    make_broker: MakeBroker,
) -> None:
    broker = make(make_broker)
    send(broker, [("a", 9), ("b", 8)])
    columns = {
        "payload": pa.array([b"red b7", b"red a3", b"red a7", b"plain 5"]),
        "group": pa.array(["b", "a", "a", "b"]),
        "priority": pa.array([7, 3, 7, 5], pa.uint16()),
        "tags": pa.array([["red"], ["red"], ["red"], []], pa.list_(pa.utf8())),
    }
    broker.write("enqueue", columns)
    red = broker.consumer(tags_any=("red",))
    assert red.payloads() == [b"red a3", b"red a7", b"red b7"]
    assert broker.consumer().payloads() == [b"plain 5", b"b8", b"a9"]


def test_a_group_at_its_cap_keeps_nobody_waiting__over_all_priorities(
    make_broker: MakeBroker,
) -> None:
    broker = make(make_broker, group_in_flight_max=2)
    send(broker, [("a", 1), ("a", 2), ("a", 3), ("b", 9), ("b", 4)])
    consumer = broker.consumer(credit=5)
    got = consumer.take_all()
    assert [payload for one in got for payload in one.payloads] == b"a1 a2 b4 b9".split()
    one = got[0]
    consumer.settle(SettleOp.ACK, partition=one.partition, lease_id=one.lease_id)
    assert consumer.payloads() == [b"a3"]


def test_a_priority_that_is_moved_counts_at_once__and_when_it_comes_back(
    make_broker: MakeBroker,
) -> None:
    broker = make(make_broker)
    ids = send(broker, [("a", 1), ("b", 2), ("c", 3)])
    moved = {"id": pa.array(ids[2:]), "priority": pa.array([0], pa.uint16())}
    assert broker.write("move", moved).all_statuses().tolist() == [0]
    consumer = broker.consumer(credit=1)
    first = consumer.take_all()[0]
    assert first.payloads == [b"c3"]
    consumer.settle(SettleOp.NACK, partition=first.partition, lease_id=first.lease_id)
    consumer.session.credit(3)
    assert consumer.payloads() == [b"c3", b"a1", b"b2"]


def test_turns_survive_a_restart(on_files: MakeBroker) -> None:
    broker = make(on_files, weights={"b": 4})
    send(broker, [(group, priority) for priority in (3, 7) for group in "ab" for _ in range(20)])
    before = take(broker, 7)
    broker.restart()
    after = broker.consumer(credit=15).payloads()
    assert_shares([payload[:1].decode() for payload in before + after], {"a": 1, "b": 4})
    assert {payload[1:] for payload in before + after} == {b"3"}


def test_the_order_is_chosen_when_the_topic_is_made(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair", group_order="priority")
    with pytest.raises(BadRequest, match="group_order"):
        broker.broker.alter_topic(TOPIC, {"group_order": "priority_first"})
