"""Rule 9: until leased, a message can be moved or cancelled, by id or by key."""

import pyarrow as pa

from dejaqueue.model import RowStatus
from tests.rules.conftest import MakeBroker


def test_moved_earlier_and_later(make_broker: MakeBroker) -> None:
    broker = make_broker()
    now = broker.now_ms
    ids = broker.send([b"a", b"b"], [now + 100, now + 200]).all_ids().tolist()
    consumer = broker.consumer(holds=False)
    assert broker.move(ids, [now + 300, now + 50]).statuses is None
    broker.advance(50)
    assert consumer.payloads() == [b"b"]
    broker.advance(249)
    assert consumer.payloads() == []
    broker.advance(1)
    assert consumer.payloads() == [b"a"]


def test_by_key__one_batch_over_all_statuses(make_broker: MakeBroker) -> None:
    broker = make_broker()
    now = broker.now_ms
    broker.send([b"now", b"later"], [now, now + 1_000], keys=["now", "later"])
    consumer = broker.consumer(holds=False)
    assert consumer.payloads() == [b"now"]
    reply = broker.write(
        "move",
        {"key": pa.array(["now", "later", "never"]), "due": pa.array([now + 5] * 3)},
    )
    assert reply.all_statuses().tolist() == [RowStatus.LEASED, RowStatus.OK, RowStatus.NOT_FOUND]
    broker.advance(5)
    assert consumer.payloads() == [b"later"]


def test_a_key_can_be_cancelled_in_the_step_that_sent_it(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.send([b"a"], [broker.now_ms + 100], keys=["k"])
    reply = broker.write("cancel", {"key": pa.array(["k"])})
    assert reply.statuses is None
    again = broker.write("cancel", {"key": pa.array(["k"])})
    assert again.all_statuses().tolist() == [RowStatus.NOT_FOUND]


def test_an_id_of_another_partition_is_not_found(make_broker: MakeBroker) -> None:
    broker = make_broker()
    ids = broker.send([b"a"], [broker.now_ms + 100]).all_ids()
    reply = broker.cancel([int(ids[0]) | (7 << 47)])
    assert reply.all_statuses().tolist() == [RowStatus.NOT_FOUND]
