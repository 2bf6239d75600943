"""Several consumers of a topic, and several partitions: everybody gets a share, in order, and what
is there finds whoever has credit. Nobody asks the broker to look: deliveries are waited for.

Turns one by one: tests/unit/broker/consumers. One consumer: test_rule_07_order.py.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.broker.consumers.turns import RUN_MAX
from tests.patience import until
from tests.rules.broker_fixture import BrokerFixture, Got, RecordingConsumer
from tests.rules.conftest import MakeBroker

BATCH = 10


def fill(
    broker: BrokerFixture, rows: int, partitions: int = 1, tags: list[str] | None = None
) -> None:
    """Messages that are due, `rows` to each partition."""
    count = rows * partitions
    columns = {
        "payload": pa.array([b"%d" % row for row in range(count)], pa.binary()),
        "due": pa.array([broker.now_ms] * count),
        "partition": pa.array([row % partitions for row in range(count)], pa.int32()),
    }
    if tags is not None:
        columns["tags"] = pa.array([tags] * count, pa.list_(pa.utf8()))
    assert broker.write("enqueue", columns).error is None


def numbers(found: list[Got]) -> list[int]:
    return [int(payload) for got in found for payload in got.payloads]


def test_every_consumer_with_credit_gets_its_share_of_a_backlog(make_broker: MakeBroker) -> None:
    broker = make_broker()
    fill(broker, 4_000)
    broker.broker.alter_topic("t", {"paused": True})
    consumers = [broker.consumer(holds=False, credit=4_000, batch_rows_max=BATCH) for _ in range(8)]
    broker.broker.alter_topic("t", {"paused": False})
    until(lambda: broker.counts()["scheduled"] == 0)
    taken = [consumer.take_all() for consumer in consumers]
    shares = [len(numbers(found)) for found in taken]
    assert sum(shares) == 4_000
    assert max(shares) - min(shares) <= RUN_MAX * BATCH
    for found in taken:
        assert numbers(found) == sorted(numbers(found)), "each gets them in their order"
    assert sorted(number for found in taken for number in numbers(found)) == list(range(4_000))


def test_a_short_backlog_goes_round_one_batch_each(make_broker: MakeBroker) -> None:
    broker = make_broker()
    fill(broker, 8 * BATCH)
    broker.broker.alter_topic("t", {"paused": True})
    consumers = [broker.consumer(holds=False, credit=4_000, batch_rows_max=BATCH) for _ in range(8)]
    broker.broker.alter_topic("t", {"paused": False})
    broker.settle_down()
    assert [len(numbers(one.take_all())) for one in consumers] == [BATCH] * 8


def test_nobody_starves_beside_consumers_that_take_much(make_broker: MakeBroker) -> None:
    broker = make_broker()
    fill(broker, 8_000)
    small = broker.consumer(holds=False, credit=0, batch_rows_max=BATCH)
    large = [broker.consumer(holds=False, credit=100, batch_rows_max=BATCH) for _ in range(3)]
    for _ in range(20):
        small.session.credit(1)
        for one in large:
            one.session.credit(100)
        assert len(small.get().payloads) == 1


@pytest.mark.one_broker("looks into a broker")
@pytest.mark.parametrize("partitions", [1, 7, 64])
def test_credit_for_one_at_a_time_empties_all_partitions(
    make_broker: MakeBroker, partitions: int
) -> None:
    broker = make_broker(partitions=partitions)
    fill(broker, 3, partitions)
    consumer = broker.consumer(holds=False, credit=0)
    found = []
    for _ in range(3 * partitions):
        consumer.session.credit(1)
        found += [consumer.get()]
    assert sorted(numbers(found)) == list(range(3 * partitions))
    # Who waits longest is served first: no partition waits for another one of its worker to be
    # empty. Which worker comes first is chance.
    worker_of = broker.broker.worker_of
    for number in range(min(2, partitions)):
        lane = [
            got.partition
            for got in found
            if worker_of("t", got.partition) is worker_of("t", number)
        ]
        count = len(set(lane))
        assert len(set(lane[:count])) > count // 2


def test_what_comes_later_goes_to_credit_that_is_left(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=64)
    consumer = broker.consumer(holds=False, credit=64 * 3)
    for _ in range(3):
        fill(broker, 1, 64)
        assert sorted(numbers([consumer.get() for _ in range(64)])) == list(range(64))


@pytest.mark.one_broker("shards have parts of a consumer's credit")
def test_credit_comes_before_the_messages_of_a_broker_that_was_started_again(
    on_files: MakeBroker,
) -> None:
    broker = on_files(partitions=16)
    fill(broker, 2, 16)
    broker.restart()
    consumer = broker.consumer(holds=False, credit=2)
    assert len(numbers([consumer.get()])) == 2
    consumer.session.credit(30)
    assert len(numbers([consumer.get() for _ in range(15)])) == 30


def test_a_consumer_of_other_tags_is_given_what_the_first_one_leaves(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(partitions=8)
    fill(broker, 2, 8, tags=["red"])
    blue = broker.consumer(holds=False, credit=100, tags_any=("blue",))
    red = broker.consumer(holds=False, credit=16, tags_any=("red",))
    assert sorted(numbers([red.get() for _ in range(8)])) == list(range(16))
    fill(broker, 1, 8, tags=["blue"])
    assert sorted(numbers([blue.get() for _ in range(8)])) == list(range(8))


@pytest.mark.one_broker("shards have parts of a consumer's credit")
def test_a_lease_that_ended_while_nobody_had_credit_is_given_to_the_next(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(partitions=8, lease_ms=1_000)
    fill(broker, 1, 8)
    first: RecordingConsumer = broker.consumer(holds=False, credit=8)
    assert sorted(numbers([first.get() for _ in range(8)])) == list(range(8))
    broker.clock.advance(ms=2_000)
    second: RecordingConsumer = broker.consumer(holds=False, credit=8)
    again = [second.get() for _ in range(8)]
    assert sorted(numbers(again)) == list(range(8))
    assert {attempt for got in again for attempt in got.attempts} == {2}


@pytest.mark.one_broker("looks into a broker")
def test_partitions_that_were_never_used_are_not_read(on_files: MakeBroker) -> None:
    broker = on_files(partitions=50)
    consumer = broker.consumer(holds=False, credit=100)
    one = {"payload": pa.array([b"1"]), "partition": pa.array([7], pa.int32())}
    assert broker.write("enqueue", one).error is None
    assert consumer.get().partition == 7
    assert broker.counts()["leased"] == 1
    partitions = broker.broker.runtime("t").partitions
    assert [one.number for one in partitions if one.loaded] == [7]
    broker.restart()
    broker.clock.advance(ms=60_000)  # its lease has ended
    assert broker.consumer(holds=False, credit=100).get().payloads == [b"1"]
