"""Rule 7 within the groups of a fair topic: by (priority, sequence) where the topic says so, and
turns between groups as everywhere (rule 8).

Not covered: random commands against the model (tests/model/test_fair_against_model.py).
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic, TopicKind
from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker


def send(broker: BrokerFixture, rows: list[tuple[str, int]]) -> list[int]:
    """A message of this group and priority each, named so; their ids."""
    columns = {
        "payload": pa.array([f"{group}{priority}".encode() for group, priority in rows]),
        "group": pa.array([group for group, _ in rows]),
        "priority": pa.array([priority for _, priority in rows], pa.uint16()),
    }
    return [int(each) for each in broker.write("enqueue", columns).all_ids()]


MIXED = [("a", 9), ("a", 1), ("b", 5), ("a", 5), ("b", 7), ("b", 6), ("a", 1)]


@pytest.mark.parametrize(
    ("group_order", "expected"),
    [("priority", "a1 b5 a1 b6 a5 b7 a9"), ("arrival", "a9 b5 a1 b7 a5 b6 a1")],
)
def test_turns_are_the_same_and_of_a_group_the_order_decides(
    make_broker: MakeBroker, group_order: str, expected: str
) -> None:
    broker = make_broker(kind="fair", group_order=group_order)
    send(broker, MIXED)
    assert broker.consumer().payloads() == expected.encode().split()


def test_what_is_more_urgent_overtakes_what_waits__and_filters_see_the_same_order(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(kind="fair", group_order="priority")
    send(broker, [("a", 9), ("a", 8)])
    columns = {
        "payload": pa.array([b"red 7", b"red 3", b"plain 5"]),
        "group": pa.array(["a"] * 3),
        "priority": pa.array([7, 3, 5], pa.uint16()),
        "tags": pa.array([["red"], ["red"], []], pa.list_(pa.utf8())),
    }
    broker.write("enqueue", columns)
    red = broker.consumer(tags_any=("red",))
    assert red.payloads() == [b"red 3", b"red 7"]
    assert broker.consumer().payloads() == [b"plain 5", b"a8", b"a9"]


def test_a_priority_that_is_moved_counts_at_once__and_when_it_comes_back(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(kind="fair", group_order="priority")
    ids = send(broker, [("a", 1), ("a", 2), ("a", 3)])
    moved = {"id": pa.array(ids[2:]), "priority": pa.array([0], pa.uint16())}
    assert broker.write("move", moved).all_statuses().tolist() == [0]
    consumer = broker.consumer(credit=1)
    first = consumer.take_all()[0]
    assert first.payloads == [b"a3"]
    consumer.settle(SettleOp.NACK, partition=first.partition, lease_id=first.lease_id)
    consumer.session.credit(3)
    assert consumer.payloads() == [b"a3", b"a1", b"a2"]


def test_it_survives_a_restart(on_files: MakeBroker) -> None:
    broker = on_files(kind="fair", group_order="priority")
    send(broker, MIXED)
    broker.restart()
    assert broker.consumer().payloads() == b"a1 b5 a1 b6 a5 b7 a9".split()


def test_the_order_is_chosen_when_the_topic_is_made(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair")
    with pytest.raises(BadRequest, match="group_order"):
        broker.broker.alter_topic(TOPIC, {"group_order": "priority"})
    with pytest.raises(BadRequest, match="arrival, priority"):
        Topic("other", TopicKind.FAIR, group_order="random").check()  # type: ignore[arg-type]
