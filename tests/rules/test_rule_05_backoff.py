"""Rule 5: how long a message waits before it comes back, and what does not wear it out.

Not covered: how long waits are exactly (tests/unit/engine/test_rules.py), dead letters (rule 18).
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import BrokerFixture, Got, RecordingConsumer
from tests.rules.conftest import MakeBroker

BACKOFF = {"backoff_ms": 1_000, "backoff_jitter": 0}


def nack(consumer: RecordingConsumer, got: Got, delay_ms: int = -1, **fate: object) -> None:
    """Give back one delivery."""
    reply = consumer.settle(
        SettleOp.NACK,
        partition=got.partition,
        lease_id=got.lease_id,
        argument_ms=delay_ms,
        **fate,
    )
    assert reply.error is None


def comes_after(broker: BrokerFixture, consumer: RecordingConsumer, wait_ms: int) -> Got:
    """The next delivery, which is that long away to the millisecond."""
    broker.advance(wait_ms - 1)
    assert consumer.take_all() == []
    broker.advance(1)
    [got] = consumer.take_all()
    return got


def test_each_wait_is_longer_than_the_one_before__up_to_the_longest(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(**BACKOFF, backoff_max_ms=5_000)
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    for attempt, wait_ms in enumerate((1_000, 2_000, 4_000, 5_000, 5_000), 2):
        nack(consumer, got)
        got = comes_after(broker, consumer, wait_ms)
        assert got.attempts == [attempt]


def test_a_lease_that_ends_waits_as_well(make_broker: MakeBroker) -> None:
    broker = make_broker(**BACKOFF, lease_ms=500)
    consumer = broker.consumer()
    broker.send([b"a"])
    assert consumer.payloads() == [b"a"]
    broker.advance(500)
    comes_after(broker, consumer, 1_000)


def test_a_delay_of_the_consumer_goes_before_the_backoff(make_broker: MakeBroker) -> None:
    broker = make_broker(**BACKOFF)
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    nack(consumer, got, 50)
    got = comes_after(broker, consumer, 50)
    nack(consumer, got, 0)
    assert consumer.payloads() == [b"a"]


def test_without_a_backoff_it_comes_back_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    nack(consumer, got)
    assert consumer.payloads() == [b"a"]


def test_jitter_parts_those_who_failed_together(make_broker: MakeBroker) -> None:
    broker = make_broker(backoff_ms=1_000, backoff_jitter=0.5)
    consumer = broker.consumer()
    broker.send([b"%d" % number for number in range(100)])
    [got] = consumer.take_all()
    nack(consumer, got)
    dues = [row["due"] - broker.now_ms for row in broker.peek()]
    assert min(dues) >= 500
    assert max(dues) <= 1_000
    assert len(set(dues)) > 50


def test_a_restart_changes_no_wait(on_files: MakeBroker) -> None:
    broker = on_files(backoff_ms=1_000, backoff_jitter=0.5)
    consumer = broker.consumer()
    broker.send([b"%d" % number for number in range(10)])
    [got] = consumer.take_all()
    nack(consumer, got)
    before = [(row["payload"], row["due"]) for row in broker.peek()]
    broker.crash()
    assert [(row["payload"], row["due"]) for row in broker.peek()] == before


def test_settings_that_change_hold_for_the_next_failure(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    broker.broker.alter_topic("t", BACKOFF)
    broker.settle_down()
    nack(consumer, got)
    assert comes_after(broker, consumer, 1_000).attempts == [2]


@pytest.mark.parametrize("dead", [True, False])
def test_rows_can_be_given_back_apart__with_a_reason(make_broker: MakeBroker, dead: bool) -> None:
    broker = make_broker(max_attempts=1)
    consumer = broker.consumer()
    broker.send([b"a", b"b"])
    [got] = consumer.take_all()
    columns = {
        "id": pa.array(got.ids[:1]),
        "attempts": pa.array(got.attempts[:1], pa.uint16()),
    }
    reply = broker.write("nack", columns, argument_ms=-1, reason="no address", dead=dead)
    assert reply.all_statuses().tolist() == [0]
    broker.letters_arrive()
    [letter] = broker.peek("t.dead")
    assert letter["payload"] == b"a"
    assert letter["headers"]["dejaq-dead-reason"] == "no address"
    assert broker.counts()["leased"] == 1


def test_a_consumer_can_end_it_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    nack(consumer, got, reason="nonsense", dead=True)
    broker.letters_arrive()
    [letter] = broker.peek("t.dead")
    assert letter["headers"]["dejaq-dead-reason"] == "nonsense"
    assert letter["headers"]["dejaq-dead-attempts"] == "1"


def test_what_nobody_looked_at_does_not_wear_out(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1, **BACKOFF)
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    nack(consumer, got, 0, release=True)
    assert consumer.payloads() == [b"a"]


def test_what_nobody_looked_at_is_not_counted_later(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=2)
    consumer = broker.consumer()
    broker.send([b"a"])
    for _ in range(5):
        [got] = consumer.take_all()
        nack(consumer, got, 0, release=True)
    [got] = consumer.take_all()
    nack(consumer, got, 0)
    [got] = consumer.take_all()
    assert got.payloads == [b"a"]
    nack(consumer, got, 0)
    broker.letters_arrive()
    [letter] = broker.peek("t.dead")
    assert letter["headers"]["dejaq-dead-attempts"] == "7"
