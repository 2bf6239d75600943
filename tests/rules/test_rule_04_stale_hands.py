"""Rule 4: ack, nack and extend of a lease that ended, or of an earlier attempt, are refused."""

import numpy as np
import pytest

from dejaqueue.model import RowStatus, Topic, TopicKind
from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import TOPIC
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


@pytest.mark.parametrize("restarts", [False, True], ids=["known", "read again"])
@pytest.mark.parametrize("takes_snapshot", [False, True], ids=["journal", "snapshot"])
def test_a_stale_hand_is_refused__of_a_topic_that_was_deleted_and_made_again(
    on_files: MakeBroker, *, restarts: bool, takes_snapshot: bool
) -> None:
    """Ids of the topic made later are other ones, so a late ack settles nothing there."""
    entries = 1 if takes_snapshot else 20_000
    broker = on_files(snapshot_entries=entries, kind="priority")
    consumer = broker.consumer()
    seen: list[int] = []
    for life in range(3):
        broker.send([b"a", b"b"])
        [got] = consumer.take_all()
        assert not set(seen) & set(got.ids), life
        if seen:
            late = consumer.ack_rows(seen, [1] * len(seen))
            assert set(late.all_statuses().tolist()) == {RowStatus.LEASE_LOST}
            assert broker.cancel(seen).all_statuses().tolist() == [RowStatus.NOT_FOUND] * len(seen)
        seen += got.ids
        if takes_snapshot:
            broker.wait_for_snapshots()
        if restarts:
            broker.restart()
        broker.broker.delete_topic(TOPIC)
        broker.broker.create_topic(Topic(TOPIC, kind=TopicKind.PRIORITY))
        if restarts:
            broker.restart()
        consumer = broker.consumer()
    assert consumer.payloads() == []


def test_a_second_ack_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    broker.send([b"a"])
    [got] = consumer.take_all()
    assert consumer.ack_rows(got.ids, got.attempts).statuses is None
    again = consumer.ack_rows(got.ids, got.attempts)
    assert again.all_statuses().tolist() == [RowStatus.LEASE_LOST]


def test_of_leases_that_are_extended_together_each_has_its_status(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ms=1_000)
    consumer = broker.consumer()
    leases = []
    for payload in (b"acked", b"held", b"half acked"):
        broker.send([payload, payload])
        [got] = consumer.take_all()
        leases.append(got)
    consumer.ack(leases[0])
    consumer.ack_rows(leases[2].ids[:1], leases[2].attempts[:1])
    broker.advance(900)
    named = [leases[1].lease_id, 10**9, leases[0].lease_id, -1, leases[2].lease_id]
    reply = consumer.settle(
        SettleOp.EXTEND,
        partition=0,
        argument_ms=1_000,
        lease_ids=np.array([*named, leases[1].lease_id]),
    )
    ok, lost = RowStatus.OK, RowStatus.LEASE_LOST
    assert reply.all_statuses().tolist() == [ok, lost, lost, lost, ok, ok]
    broker.advance(999)
    assert consumer.payloads() == []
    broker.advance(1)
    assert sorted(consumer.payloads()) == [b"half acked", b"held", b"held"]
