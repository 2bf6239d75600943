"""Rule 18: dead letters keep payload, headers, reason, attempts and origin, and can be sent back.

Also here: when a message dies (attempts, expiry, a consumer's word). Not covered: crashes between
the steps of a transfer (test_rule_18_crashes.py), waits between attempts (test_rule_05_backoff.py).
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest

from dejaqueue.model import Topic
from dejaqueue.wire.frames import SettleOp
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker

DEAD = f"{TOPIC}.dead"


def die_of_attempts(broker: BrokerFixture, times: int) -> None:
    """Deliver what there is so often, and let each lease end."""
    consumer = broker.consumer()
    for _ in range(times):
        assert consumer.take_all()
        broker.advance(broker.topic_settings.get("lease_ms", 30_000))
    consumer.session.close(release=True)


def test_a_letter_keeps_all_that_the_message_was(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=2, lease_ms=1_000)
    columns = {
        "payload": pa.array([b"a\0b"], pa.binary()),
        "key": pa.array(["order-1"]),
        "group": pa.array(["alice"]),
        "priority": pa.array([7], pa.uint16()),
        "tags": pa.array([["red", "blue"]]),
        "headers": pa.array([[("trace", "00-1")]], pa.map_(pa.utf8(), pa.utf8())),
    }
    message_id = int(broker.write("enqueue", columns).all_ids()[0])
    die_of_attempts(broker, 2)
    broker.letters_arrive()
    [letter] = broker.peek(DEAD)
    assert (letter["payload"], letter["group"], letter["priority"]) == (b"a\0b", "alice", 7)
    assert (letter["tags"], letter["attempts"]) == (["red", "blue"], 0)
    assert letter["key"] != "order-1"
    assert letter["headers"] == {
        "trace": "00-1",
        "dejaq-dead-reason": "lease ended",
        "dejaq-dead-attempts": "2",
        "dejaq-dead-origin": TOPIC,
        "dejaq-dead-origin-id": str(message_id),
        "dejaq-dead-at": str(broker.now_ms),
        "dejaq-dead-key": "order-1",
    }
    assert broker.peek() == []
    counts = broker.counts()
    assert (counts["dead"], counts["buried"], counts["expired"]) == (0, 1, 2)


def test_it_is_delivered_as_often_as_the_topic_says__and_no_more(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=3)
    consumer = broker.consumer()
    broker.send([b"a"])
    for attempt in (1, 2, 3):
        [got] = consumer.take_all()
        assert got.attempts == [attempt]
        consumer.settle(SettleOp.NACK, partition=0, lease_id=got.lease_id)
    broker.letters_arrive()
    assert consumer.payloads() == []
    assert broker.peek(DEAD)[0]["headers"]["dejaq-dead-reason"] == "refused"


def test_a_message_whose_time_is_over_dies_without_a_consumer(make_broker: MakeBroker) -> None:
    broker = make_broker()
    now_ms = broker.now_ms
    columns = {
        "payload": pa.array([b"late", b"done", b"mortal"], pa.binary()),
        "due": pa.array([now_ms + 10_000, now_ms, now_ms + 10_000]),
        "expires": pa.array([None, now_ms + 500, now_ms + 500], pa.int64()),
    }
    broker.write("enqueue", columns)
    consumer = broker.consumer()
    [got] = consumer.take_all()
    consumer.ack(got)
    broker.advance(499)
    assert len(broker.peek()) == 2
    broker.advance(1)
    broker.letters_arrive()
    [letter] = broker.peek(DEAD)
    assert letter["payload"] == b"mortal"
    assert letter["headers"]["dejaq-dead-reason"] == "expired"
    assert letter["headers"]["dejaq-dead-attempts"] == "0"
    assert [row["payload"] for row in broker.peek()] == [b"late"]
    assert broker.counts()["outlived"] == 1


def test_a_leased_message_that_outlives_its_time_dies_when_it_comes_back(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(lease_ms=1_000)
    columns = {
        "payload": pa.array([b"a"], pa.binary()),
        "expires": pa.array([broker.now_ms + 500]),
    }
    broker.write("enqueue", columns)
    consumer = broker.consumer()
    [got] = consumer.take_all()
    broker.advance(600)
    assert consumer.settle(SettleOp.EXTEND, partition=0, lease_id=got.lease_id).statuses is None
    consumer.settle(SettleOp.NACK, partition=0, lease_id=got.lease_id)
    broker.letters_arrive()
    assert broker.peek(DEAD)[0]["headers"]["dejaq-dead-reason"] == "expired"


def test_a_consumer_that_closes_cleanly_wears_nothing_out(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1)
    broker.send([b"a"])
    for _ in range(3):
        consumer = broker.consumer()
        assert consumer.payloads() == [b"a"]
        consumer.session.close(release=True)
    assert broker.counts()["dead"] == 0
    assert broker.consumer().payloads() == [b"a"]
    broker.advance(30_000)
    broker.letters_arrive()
    assert len(broker.peek(DEAD)) == 1


def test_letters_go_where_the_topic_says(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1, dead_letter="graveyard")
    broker.broker.create_topic(Topic("graveyard", partitions=3))
    consumer = broker.consumer(topic="graveyard")
    broker.send([b"a", b"b", b"c"])
    die_of_attempts(broker, 1)
    broker.letters_arrive()
    assert sorted(consumer.payloads()) == [b"a", b"b", b"c"]


def test_many_die_at_once_and_each_becomes_one_letter(make_broker: MakeBroker) -> None:
    broker = make_broker()
    count = 10_000
    payloads = [b"%d" % number for number in range(count)]
    columns = {
        "payload": pa.array(payloads, pa.binary()),
        "due": pa.array([broker.now_ms + 5_000] * count),
        "expires": pa.array([broker.now_ms + 1_000] * count),
    }
    broker.write("enqueue", columns)
    broker.advance(1_000)
    broker.letters_arrive(5)
    assert [row["payload"] for row in broker.peek(DEAD, limit=10_000)] == payloads
    assert broker.counts()["buried"] == count


@pytest.mark.one_broker("looks into a broker")
def test_a_dead_letter_topic_that_is_full_holds_nobody_up(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1, lease_ms=1_000)
    broker.broker.create_topic(Topic(DEAD, max_backlog_count=1))
    broker.send([b"a", b"b"])
    die_of_attempts(broker, 1)
    assert "max_backlog_count" in str(broker.arrivals.get(timeout=PATIENCE_SECONDS))
    broker.settle_down()
    assert broker.counts()["dead"] == 2
    broker.send([b"c"])
    consumer = broker.consumer()
    [got] = consumer.take_all()
    consumer.ack(got)
    broker.broker.alter_topic(DEAD, {"max_backlog_count": 0})
    broker.advance(1_000)
    broker.letters_arrive()
    assert [row["payload"] for row in broker.peek(DEAD)] == [b"a", b"b"]


def dead(broker: BrokerFixture, payloads: list[bytes], **columns: pa.Array) -> None:
    """Send these, and have them die of their first attempt."""
    broker.write("enqueue", {"payload": pa.array(payloads, pa.binary()), **columns})
    die_of_attempts(broker, 1)
    broker.letters_arrive()


def test_a_letter_sent_back_is_what_it_was(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1)
    dead(
        broker,
        [b"a"],
        key=pa.array(["k"]),
        group=pa.array(["g"]),
        priority=pa.array([3], pa.uint16()),
        tags=pa.array([["t"]]),
        headers=pa.array([[("trace", "1")]], pa.map_(pa.utf8(), pa.utf8())),
    )
    broker.advance(5)
    assert broker.broker.call("redrive", {"topic": DEAD}) == {"moved": 1, "left": 0, "next": None}
    broker.letters_arrive()
    [row] = broker.peek()
    del row["id"]
    assert row == {
        "due": broker.now_ms,
        "attempts": 0,
        "key": "k",
        "group": "g",
        "priority": 3,
        "tags": ["t"],
        "headers": {"trace": "1"},
        "payload": b"a",
        "state": "scheduled",
        "consumer": None,
    }
    assert broker.peek(DEAD) == []
    assert broker.consumer().payloads() == [b"a"]


def test_letters_are_chosen_by_reason_group_and_id(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1)
    broker.broker.create_topic(Topic("other"))
    dead(broker, [b"a", b"b", b"c"], group=pa.array(["x", "y", "x"]))
    ids = [row["id"] for row in broker.peek(DEAD)]
    redrive = partial(broker.broker.call, "redrive")
    assert redrive({"topic": DEAD, "reason": "no such"})["moved"] == 0
    assert redrive({"topic": DEAD, "reason": "lease ended", "group": "y"})["moved"] == 1
    broker.letters_arrive()
    assert [row["payload"] for row in broker.peek()] == [b"b"]
    assert redrive({"topic": DEAD, "ids": ids[2:], "to": "other"})["moved"] == 1
    broker.letters_arrive()
    assert [row["payload"] for row in broker.peek("other")] == [b"c"]
    assert redrive({"topic": DEAD, "limit": 0})["moved"] == 0
    assert [row["payload"] for row in broker.peek(DEAD)] == [b"a"]


def test_a_letter_whose_key_is_taken_stays(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1)
    dead(broker, [b"old", b"other"], key=pa.array(["k", "l"]))
    broker.send([b"new"], keys=["k"])
    assert broker.broker.call("redrive", {"topic": DEAD}) == {"moved": 1, "left": 1, "next": None}
    broker.letters_arrive()
    assert sorted(row["payload"] for row in broker.peek()) == [b"new", b"other"]
    assert [row["payload"] for row in broker.peek(DEAD)] == [b"old"]


def test_a_letter_that_a_consumer_has_stays(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1)
    dead(broker, [b"a"])
    consumer = broker.consumer(topic=DEAD)
    assert consumer.payloads() == [b"a"]
    assert broker.broker.call("redrive", {"topic": DEAD})["moved"] == 0


def test_what_never_was_a_dead_letter_has_no_way_back(make_broker: MakeBroker) -> None:
    broker = make_broker(dead_letter="graveyard")
    broker.broker.create_topic(Topic("graveyard"))
    redrive = partial(broker.broker.call, "redrive")
    broker.send([b"a"])
    assert redrive({"topic": TOPIC}) == {"moved": 0, "left": 1, "next": None}
    assert redrive({"topic": TOPIC, "to": "graveyard"})["moved"] == 1
    broker.letters_arrive()
    assert [row["payload"] for row in broker.peek("graveyard")] == [b"a"]
