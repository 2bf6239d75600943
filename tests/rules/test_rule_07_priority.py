"""Rule 7 on priority topics: what is due goes by (priority, sequence), and with ageing nobody
starves. Rules 2 and 9 hold there too.

Not covered: the index itself (tests/unit/engine/test_ready.py, tests/model).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.errors import BadRequest
from tests.rules.broker_fixture import BrokerFixture
from tests.rules.conftest import MakeBroker


def send(
    broker: BrokerFixture,
    payloads: list[bytes],
    priorities: list[int],
    dues_ms: list[int] | None = None,
    keys: list[str] | None = None,
) -> list[int]:
    """Their ids."""
    columns: dict[str, pa.Array] = {
        "payload": pa.array(payloads, pa.binary()),
        "priority": pa.array(priorities, pa.uint16()),
    }
    if dues_ms is not None:
        columns["due"] = pa.array(dues_ms)
    if keys is not None:
        columns["key"] = pa.array(keys)
    return [int(each) for each in broker.write("enqueue", columns).all_ids()]


def test_the_most_urgent_comes_first_and_equals_in_the_order_of_sending(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(kind="priority")
    send(broker, [b"low 1", b"high 1", b"mid 1"], [65_535, 0, 9])
    broker.send([b"default"])
    send(broker, [b"high 2", b"low 2", b"mid 2"], [0, 65_535, 9])
    assert broker.consumer().payloads() == [
        *(b"high 1", b"high 2", b"mid 1", b"mid 2"),
        *(b"default", b"low 1", b"low 2"),
    ]


def test_urgent_messages_overtake_what_waits(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority")
    send(broker, [b"newsletter 1", b"newsletter 2"], [60_000, 60_000])
    consumer = broker.consumer(credit=1)
    assert consumer.payloads() == [b"newsletter 1"]
    send(broker, [b"urgent"], [1])
    consumer.session.credit(5)
    assert consumer.payloads() == [b"urgent", b"newsletter 2"]


def test_no_priority_makes_a_message_early(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority", lease_ahead_ms=1_000)
    now_ms = broker.now_ms
    send(broker, [b"later", b"soon", b"now"], [0, 1, 9], [now_ms + 500, now_ms + 100, now_ms])
    consumer = broker.consumer()
    consumer.knows_its_clock()
    assert consumer.payloads() == [b"now"]
    broker.advance(99)
    assert consumer.payloads() == []
    broker.advance(1)
    assert consumer.payloads() == [b"soon"]
    broker.advance(400)
    assert consumer.payloads() == [b"later"]


def test_random_priorities_and_delays_come_in_order(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority")
    random = np.random.default_rng(11)
    priorities = random.integers(0, 5, 1_000)
    dues = random.integers(0, 50, 1_000) + broker.now_ms
    for part in np.split(np.arange(1_000), 10):
        payloads = [b"%d" % row for row in part]
        send(broker, payloads, priorities[part].tolist(), dues[part].tolist())
    broker.advance(20)
    consumer = broker.consumer(credit=300)
    first = [int(payload) for payload in consumer.payloads()]
    broker.advance(40)
    consumer.session.credit(1_000)
    rest = [int(payload) for payload in consumer.payloads()]
    due_first = [row for row in range(1_000) if dues[row] <= broker.now_ms - 40]
    by_priority = sorted(due_first, key=lambda row: (priorities[row], row))
    assert first == by_priority[:300]
    left = set(range(1_000)) - set(first)
    assert rest == sorted(left, key=lambda row: (priorities[row], row))


def test_what_is_ready_gets_another_priority(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority")
    ids = send(broker, [b"a", b"b", b"c"], [5, 5, 5], keys=["a", "b", "c"])
    changed = broker.write("move", {"key": pa.array(["c"]), "priority": pa.array([1], pa.uint16())})
    assert changed.all_statuses().tolist() == [0]
    broker.write("move", {"id": pa.array(ids[:1]), "priority": pa.array([9], pa.uint16())})
    got = broker.consumer().take_all()
    assert [payload for each in got for payload in each.payloads] == [b"c", b"b", b"a"]
    assert got[0].batch.column("priority").to_pylist() == [1, 5, 9]


def test_it_survives_a_restart(on_files: MakeBroker) -> None:
    broker = on_files(kind="priority", ageing_ms=10)
    send(broker, [b"a", b"b", b"c"], [9, 1, 5])
    broker.restart()
    assert broker.consumer().payloads() == [b"b", b"c", b"a"]


def test_with_ageing_a_wait_is_worth_priority(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority", ageing_ms=10)
    send(broker, [b"old"], [100])
    broker.advance(900)
    send(broker, [b"new, far more urgent"], [5])
    send(broker, [b"new, a little more urgent"], [11])
    assert broker.consumer().payloads() == [
        *(b"new, far more urgent", b"old", b"new, a little more urgent"),
    ]


@pytest.mark.parametrize(("ageing_ms", "starves"), [(0, True), (10, False)])
def test_a_steady_stream_of_urgent_messages(
    make_broker: MakeBroker, ageing_ms: int, starves: bool
) -> None:
    broker = make_broker(kind="priority", ageing_ms=ageing_ms)
    send(broker, [b"patient"], [50])
    consumer = broker.consumer(credit=0)
    got: list[bytes] = []
    for _ in range(120):
        send(broker, [b"urgent", b"urgent"], [0, 0])
        consumer.session.credit(1)
        got += consumer.payloads()
        broker.advance(10)
    assert len(got) == 120
    assert (b"patient" not in got) == starves


def test_a_message_that_comes_back_keeps_its_priority(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority", lease_ms=1_000)
    send(broker, [b"urgent", b"other"], [0, 1])
    consumer = broker.consumer(credit=1)
    assert consumer.payloads() == [b"urgent"]
    broker.advance(1_000)
    consumer.session.credit(2)
    assert consumer.payloads() == [b"urgent", b"other"]


def test_a_priority_out_of_range_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority")
    columns = {"payload": pa.array([b"a"], pa.binary()), "priority": pa.array([65_536])}
    reply = broker.write("enqueue", columns)
    assert isinstance(reply.error, BadRequest)
    assert "priority" in str(reply.error)
