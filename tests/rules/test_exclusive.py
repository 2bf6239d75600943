"""Rule 7, exclusive topics: each partition has one consumer at a time; and paused topics."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.rules.broker_fixture import BrokerFixture, RecordingConsumer
from tests.rules.conftest import MakeBroker


def send_to(broker: BrokerFixture, partition: int, payloads: list[bytes]) -> None:
    count = len(payloads)
    broker.write(
        "enqueue",
        {
            "payload": pa.array(payloads, pa.binary()),
            "partition": pa.array([partition] * count, pa.int32()),
        },
    )


def partitions_of(broker: BrokerFixture) -> list[str]:
    return [
        row["consumer"] for row in broker.broker.call("assignments", {"name": "t"})["partitions"]
    ]


def test_each_partition_has_one_consumer(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=4, assignment="exclusive")
    one, two = broker.consumer(consumer="one"), broker.consumer(consumer="two")
    for partition in range(4):
        for row in range(3):
            send_to(broker, partition, [b"%d.%d" % (partition, row)])
    seen = [{got.partition for got in consumer.take_all()} for consumer in (one, two)]
    assert seen[0] | seen[1] == {0, 1, 2, 3}
    assert not seen[0] & seen[1]
    assert len(seen[0]) == 2
    assert sorted(partitions_of(broker)) == ["one", "one", "two", "two"]


@pytest.mark.one_broker("the home of a topic in shards hears of its consumers a moment later")
def test_a_hand_over_waits_until_the_leases_are_settled(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2, assignment="exclusive")
    one = broker.consumer(consumer="one", credit=1_000)
    send_to(broker, 0, [b"a"])
    send_to(broker, 1, [b"b"])
    held = {got.partition: got for got in one.take_all()}
    assert set(held) == {0, 1}
    two = broker.consumer(consumer="two")
    send_to(broker, 0, [b"c"])
    send_to(broker, 1, [b"d"])
    assert two.take_all() == []
    assert one.payloads() == [b"c"]  # it goes on with what it keeps
    row = broker.broker.call("assignments", {"name": "t"})["partitions"][1]
    assert (row["consumer"], row["next"]) == ("one", "two")
    one.ack(held[1])
    assert two.payloads() == [b"d"]
    assert partitions_of(broker) == ["one", "two"]


def test_settling_by_rows_hands_over_too(make_broker: MakeBroker) -> None:
    broker = make_broker(assignment="exclusive")
    one, two = broker.consumer(consumer="one"), broker.consumer(consumer="two")
    broker.send([b"a", b"b"])
    [got] = one.take_all()
    one.session.close(release=False)
    broker.send([b"c"])
    assert two.take_all() == []
    broker.write("ack", {"id": pa.array(got.ids), "attempts": pa.array(got.attempts, pa.uint16())})
    assert two.payloads() == [b"c"]


def test_a_broken_stream_keeps_its_leases_to_their_end(make_broker: MakeBroker) -> None:
    broker = make_broker(assignment="exclusive", lease_ms=5_000)
    one, two = broker.consumer(consumer="one"), broker.consumer(consumer="two")
    broker.send([b"a"])
    assert one.payloads() == [b"a"]
    one.session.close(release=False)
    broker.send([b"b"])
    broker.advance(4_900)
    assert two.take_all() == []
    broker.advance(200)
    assert two.payloads() == [b"b", b"a"]  # what comes back is due again from then on


def test_a_clean_end_hands_over_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker(assignment="exclusive")
    one, two = broker.consumer(consumer="one"), broker.consumer(consumer="two")
    broker.send([b"a", b"b"])
    assert one.payloads() == [b"a", b"b"]
    assert broker.broker.call("assignments", {"name": "t"})["standby"] == ["two"]
    one.session.close(release=True)
    assert two.payloads() == [b"a", b"b"]


@pytest.mark.one_broker("looks into a broker")
def test_the_silent_give_up_their_partitions(make_broker: MakeBroker) -> None:
    broker = make_broker(assignment="exclusive", lease_ms=1_000)
    silence_us = 2_000_000
    broker.broker.runtime("t").dispatcher.silence_us_max = silence_us
    one, two = broker.consumer(consumer="one"), broker.consumer(consumer="two")
    broker.send([b"a"])
    assert one.payloads() == [b"a"]
    broker.advance(1_500)  # its lease ended: it comes back to the same consumer
    assert one.payloads() == [b"a"]
    two.knows_its_clock()
    broker.advance(600)  # now `one` is silent; the lease it has is not over
    assert two.take_all() == []
    broker.advance(1_000)
    assert two.payloads() == [b"a"]
    assert partitions_of(broker) == ["two"]


@pytest.mark.one_broker("the home of a topic in shards hears of its consumers a moment later")
def test_order_is_kept_over_many_hand_overs(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=3, assignment="exclusive")
    got: dict[int, list[int]] = {0: [], 1: [], 2: []}
    consumers: list[RecordingConsumer] = []
    sent = 0
    for turn in range(12):
        if turn % 3 == 2:
            consumers.pop(0).session.close(release=True)
        else:
            consumers.append(broker.consumer(consumer=f"c{turn}"))
        for partition in range(3):
            send_to(broker, partition, [b"%d" % sent])
        sent += 1
        busy = True
        while busy:
            busy = False
            for consumer in consumers:
                for batch in consumer.take_all():
                    got[batch.partition] += [int(payload) for payload in batch.payloads]
                    consumer.ack(batch)
                    busy = True
    assert got == {partition: list(range(sent)) for partition in range(3)}


@pytest.mark.one_broker("the home of a topic in shards hears of its consumers a moment later")
def test_assignment_changes_while_messages_flow(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    one, two = broker.consumer(consumer="one"), broker.consumer(consumer="two")
    broker.broker.alter_topic("t", {"assignment": "exclusive"})
    send_to(broker, 0, [b"a"])
    send_to(broker, 0, [b"b"])
    assert one.payloads() + two.payloads() == [b"a", b"b"]
    assert set(partitions_of(broker)) <= {"one", "two", ""}
    broker.broker.alter_topic("t", {"assignment": "shared"})
    assert broker.broker.call("assignments", {"name": "t"})["assignment"] == "shared"


def test_a_paused_topic_hands_out_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    broker.send([b"a"])
    [held] = consumer.take_all()
    broker.broker.alter_topic("t", {"paused": True})
    broker.send([b"b"])
    broker.advance(10)
    assert consumer.take_all() == []
    assert consumer.ack(held).all_statuses().tolist() in ([], [0])
    broker.broker.alter_topic("t", {"paused": False})
    assert consumer.payloads() == [b"b"]


def test_a_pause_outlives_a_restart(on_files: MakeBroker) -> None:
    broker = on_files()
    broker.broker.alter_topic("t", {"paused": True})
    broker.send([b"a"])
    broker.restart()
    consumer = broker.consumer()
    broker.advance(10)
    assert consumer.take_all() == []
    broker.broker.alter_topic("t", {"paused": False})
    assert consumer.payloads() == [b"a"]
