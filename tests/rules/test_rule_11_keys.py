"""Rule 11, `reject`: one live message per key; a second gets DUPLICATE and the live id."""

from dejaqueue.model import RowStatus
from tests.rules.conftest import MakeBroker


def test_a_second_message_of_a_key_is_refused__until_the_first_is_done(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(partitions=2)
    first = broker.send([b"a"], keys=["k"])
    second = broker.send([b"b"], keys=["k"])
    assert second.all_statuses().tolist() == [RowStatus.DUPLICATE]
    assert second.all_ids().tolist() == first.all_ids().tolist()
    consumer = broker.consumer()
    [got] = consumer.take_all()
    consumer.ack(got)
    assert broker.send([b"c"], keys=["k"]).all_statuses().tolist() == [RowStatus.OK]


def test_a_key_repeated_in_one_batch(make_broker: MakeBroker) -> None:
    broker = make_broker()
    reply = broker.send([b"a", b"b", b"c", b"d"], keys=["k", "l", "k", ""])
    assert reply.all_statuses().tolist() == [0, 0, RowStatus.DUPLICATE, 0]
    ids = reply.all_ids().tolist()
    assert ids[2] == ids[0]
    assert sorted(broker.consumer().payloads()) == [b"a", b"b", b"d"]
