"""Rule 9: until leased, a message can be moved or cancelled, by id or by key."""

from pathlib import Path

import pyarrow as pa
import pytest

from dejaqueue.limits import INSTANT_MS_MAX
from dejaqueue.model import RowStatus
from tests.rules.broker_fixture import BrokerFixture
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


def test_a_shift_counts_from_each_message_s_own_time__and_ends_with_time(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    now = broker.now_ms
    dues = [now + 100, now + 200, now + 300]
    ids = broker.send([b"a", b"b", b"c"], dues).all_ids().tolist()
    shifts = [150, -150, -INSTANT_MS_MAX]
    reply = broker.write("move", {"id": pa.array(ids), "by_ms": pa.array(shifts)})
    assert reply.statuses is None
    found = {row["id"]: row["due"] for row in broker.peek()}
    assert [found[one] for one in ids] == [now + 250, now + 50, 0]
    reply = broker.write("move", {"id": pa.array(ids[:1]), "by_ms": pa.array([INSTANT_MS_MAX])})
    assert broker.peek(ids=ids[:1])[0]["due"] == INSTANT_MS_MAX
    consumer = broker.consumer(holds=False)
    assert consumer.payloads() == [b"c"]
    broker.advance(50)
    assert consumer.payloads() == [b"b"]


@pytest.mark.parametrize("op", ["move", "cancel"])
def test_a_condition_keeps_what_somebody_moved_meanwhile(make_broker: MakeBroker, op: str) -> None:
    broker = make_broker()
    now = broker.now_ms
    dues = [now + 100, now + 200, now, now + 400, now + 500]
    ids = broker.send([b"a", b"b", b"c", b"d", b"e"], dues).all_ids().tolist()
    assert broker.consumer(holds=False).payloads() == [b"c"]
    broker.move(ids[1:2], [now + 201])
    broker.cancel(ids[3:4])
    columns = {"id": pa.array(ids), "if_due": pa.array([*dues[:4], None])}
    if op == "move":
        columns["due"] = pa.array([now + 1_000] * 5)
    reply = broker.write(op, columns)
    assert [RowStatus(status).name for status in reply.all_statuses()] == [
        *("OK", "CHANGED", "LEASED", "NOT_FOUND", "OK"),
    ]
    left = {row["id"]: row["due"] for row in broker.peek(state="scheduled")}
    moved = {ids[0]: now + 1_000, ids[4]: now + 1_000} if op == "move" else {}
    assert left == {ids[1]: now + 201} | moved


def test_shifts_and_conditions_are_replayed_as_they_were_decided(tmp_path: Path) -> None:
    broker = BrokerFixture(tmp_path / "data")
    try:
        now = broker.now_ms
        ids = broker.send([b"a", b"b"], [now + 100, now + 200]).all_ids().tolist()
        for by_ms in (30, -10):
            columns = {"id": pa.array(ids), "by_ms": pa.array([by_ms, by_ms])}
            broker.write("move", columns | {"if_due": pa.array([now + 100, None])})
        dues = {row["id"]: row["due"] for row in broker.peek()}
        assert dues == {ids[0]: now + 130, ids[1]: now + 220}
        broker.crash()
        assert {row["id"]: row["due"] for row in broker.peek()} == dues
    finally:
        broker.stop()


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_another_sender_s_message_is_not_found__whatever_it_is_due_at(
    make_broker: MakeBroker,
) -> None:
    from dejaqueue.access.senders import Sender

    broker = make_broker()
    ids = broker.send([b"a"], [broker.now_ms + 100], sender=Sender("other")).all_ids().tolist()
    columns = {"id": pa.array(ids), "due": pa.array([broker.now_ms + 5])}
    mine = Sender("me", own=True)
    reply = broker.write("move", columns | {"if_due": pa.array([7])}, sender=mine)
    assert reply.all_statuses().tolist() == [RowStatus.NOT_FOUND]
