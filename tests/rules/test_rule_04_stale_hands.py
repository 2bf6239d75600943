"""Rule 4: ack, nack and extend of a lease that ended, or of an earlier attempt, are refused."""

import pytest

from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import SettleOp
from tests.rules.conftest import MakeBroker


@pytest.mark.parametrize("op", list(SettleOp), ids=lambda op: op.name.lower())
def test_a_stale_hand_is_refused__after_lease_end(make_broker: MakeBroker, op: SettleOp) -> None:
    broker = make_broker(lease_ms=1_000)
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    broker.advance(1_000)
    reply = consumer.settle(op, partition=0, lease_id=got.lease_id)
    assert set(reply.all_statuses().tolist()) == {RowStatus.LEASE_LOST}
    [again] = consumer.take_all()
    assert again.attempts == [2]
    stale = consumer.ack_rows(got.ids, got.attempts)
    assert stale.all_statuses().tolist() == [RowStatus.LEASE_LOST]
    assert consumer.ack(again).all_statuses().tolist() in ([RowStatus.OK], [])


def test_a_second_ack_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    assert consumer.ack_rows(got.ids, got.attempts).statuses is None
    again = consumer.ack_rows(got.ids, got.attempts)
    assert again.all_statuses().tolist() == [RowStatus.LEASE_LOST]
