"""Rule 5: what is not done comes back after its lease ends."""

import numpy as np
import pytest

from dejaqueue.broker.consumers.dispatch import Consumer, Push
from dejaqueue.broker.shard.commit import Commits
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import SettleOp
from tests.rules.conftest import MakeBroker


def test_it_comes_back_after_its_lease(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ms=1_000)
    consumer = broker.consumer()
    broker.send([b"a"])
    for attempt in (1, 2, 3):
        [got] = consumer.take_all()
        assert got.attempts == [attempt]
        broker.advance(1_000)


def test_a_nack_brings_it_back_after_the_delay(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer(holds=False)
    broker.send([b"a"])
    [got] = consumer.take_all()
    consumer.settle(SettleOp.NACK, partition=0, lease_id=got.lease_id, argument_ms=500)
    broker.advance(499)
    assert consumer.payloads() == []
    broker.advance(1)
    assert consumer.payloads() == [b"a"]


def test_an_extended_lease_ends_later(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ms=1_000)
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    broker.advance(900)
    consumer.settle(SettleOp.EXTEND, partition=0, lease_id=got.lease_id, argument_ms=1_000)
    broker.advance(999)
    assert consumer.payloads() == []
    broker.advance(1)
    assert consumer.payloads() == [b"a"]


@pytest.mark.one_broker("looks into a broker")
def test_many_extended_leases_end_later_and_survive(on_files: MakeBroker) -> None:
    broker = on_files(lease_ms=1_000)
    consumer = broker.consumer()
    leases = []
    for number in range(300):
        broker.send([b"%d" % number])
        leases += consumer.take_all()
    assert len(leases) == 300
    broker.advance(900)
    lease_ids = np.array([got.lease_id for got in leases])
    before = broker.next_position()
    consumer.settle(SettleOp.EXTEND, partition=0, argument_ms=5_000, lease_ids=lease_ids)
    assert broker.next_position() == before + 1
    broker.crash()
    consumer = broker.consumer()
    broker.advance(4_999)
    assert consumer.payloads() == []
    broker.advance(1)
    assert len(consumer.payloads()) == 300


def test_a_consumer_that_closes_gives_back_what_it_holds(make_broker: MakeBroker) -> None:
    broker = make_broker()
    first = broker.consumer()
    broker.send([b"a"])
    assert first.payloads() == [b"a"]
    second = broker.consumer()
    first.session.close(release=True)
    assert second.payloads() == [b"a"]


@pytest.mark.one_process("looks into a broker")
def test_what_is_on_its_way_to_a_consumer_that_closes_goes_back_too(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(max_attempts=1)
    first = broker.consumer()
    send = Commits._send

    def send_later(commits: Commits, consumer: Consumer, push: Push) -> None:
        first.session.close(release=True)  # its lease was decided, and is durable only now
        first.session.close(release=False)
        send(commits, consumer, push)

    monkeypatch.setattr(Commits, "_send", send_later)
    broker.send([b"a"])
    broker.settle_down()
    monkeypatch.undo()
    assert broker.consumer().payloads() == [b"a"]


def test_a_consumer_that_breaks_keeps_its_lease_to_the_end(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ms=1_000)
    first = broker.consumer()
    broker.send([b"a"])
    assert first.payloads() == [b"a"]
    second = broker.consumer()
    first.session.close(release=False)
    assert second.payloads() == []
    broker.advance(1_000)
    assert second.payloads() == [b"a"]


def test_with_auto_ack_at_most_once__done_before_it_is_sent(on_files: MakeBroker) -> None:
    broker = on_files(lease_ms=1_000, partitions=2)
    consumer = broker.consumer(auto_ack=True, holds=False)
    for number in range(100):
        broker.send([b"%d" % number, b"-%d" % number])
    got = consumer.take_all()
    assert len([payload for one in got for payload in one.payloads]) == 200
    assert None not in [payload for one in got for payload in one.payloads]
    assert consumer.ack(got[0]).all_statuses().tolist() == [RowStatus.LEASE_LOST]
    consumer.session.close(release=True)
    broker.advance(10_000)
    broker.restart()
    assert broker.consumer().payloads() == []
    assert broker.broker.call("stats", {"topic": "t"})["acked"] == 200


def test_with_auto_ack_what_is_leased_ahead_is_done_too(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ms=1_000)
    consumer = broker.consumer(auto_ack=True)
    consumer.knows_its_clock()
    broker.send([b"a"], [broker.now_ms + 15])
    [got] = consumer.take_all()
    assert got.payloads == [b"a"]
    consumer.session.close(release=True)
    broker.advance(10_000)
    assert broker.consumer().payloads() == []
