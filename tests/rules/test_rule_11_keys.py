"""Rule 11: one live message per key. What a second one gets: `reject`, `keep`, `replace`."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.model import RowStatus
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker

OK, DUPLICATE, KEPT = int(RowStatus.OK), int(RowStatus.DUPLICATE), int(RowStatus.KEPT)


def cancelled_count(broker: BrokerFixture) -> int:
    def look(place: PartitionCore) -> int:
        return place.engine.counts.cancelled

    return broker.broker.runtime(TOPIC).look(0, look).result(PATIENCE_SECONDS)


def test_a_second_message_of_a_key_is_refused__until_the_first_is_done(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(partitions=2)
    first = broker.send([b"a"], keys=["k"])
    second = broker.send([b"b"], keys=["k"])
    assert second.all_statuses().tolist() == [DUPLICATE]
    assert second.all_ids().tolist() == first.all_ids().tolist()
    consumer = broker.consumer()
    [got] = consumer.take_all()
    consumer.ack(got)
    assert broker.send([b"c"], keys=["k"]).all_statuses().tolist() == [OK]


def test_a_key_repeated_in_one_batch(make_broker: MakeBroker) -> None:
    broker = make_broker()
    reply = broker.send([b"a", b"b", b"c", b"d"], keys=["k", "l", "k", ""])
    assert reply.all_statuses().tolist() == [OK, OK, DUPLICATE, OK]
    ids = reply.all_ids().tolist()
    assert ids[2] == ids[0]
    assert sorted(broker.consumer().payloads()) == [b"a", b"b", b"d"]


def test_keep__the_live_message_stays_and_its_id_is_the_answer(make_broker: MakeBroker) -> None:
    broker = make_broker(on_duplicate="keep")
    [live] = broker.send([b"a"], keys=["k"]).all_ids().tolist()
    reply = broker.send([b"b", b"c", b"d", b"e"], keys=["k", "l", "l", "k"])
    assert reply.all_statuses().tolist() == [KEPT, OK, KEPT, KEPT]
    ids = reply.all_ids().tolist()
    assert ids == [live, ids[1], ids[1], live]
    assert sorted(broker.consumer().payloads()) == [b"a", b"c"]
    # Leased now, and live still.
    assert broker.send([b"f"], keys=["k"]).all_statuses().tolist() == [KEPT]


@pytest.mark.one_broker("looks into a broker")
def test_replace__the_old_message_goes_and_the_new_one_comes(make_broker: MakeBroker) -> None:
    broker = make_broker(on_duplicate="replace")
    soon, late = broker.now_ms + 100, broker.now_ms + 500
    [old] = broker.send([b"old"], [soon], keys=["k"]).all_ids().tolist()
    reply = broker.send([b"new", b"other"], [late, soon], keys=["k", "l"])
    assert reply.all_statuses().tolist() == [OK, OK]
    new = reply.all_ids().tolist()[0]
    assert new != old
    assert broker.cancel([old]).all_statuses().tolist() == [RowStatus.NOT_FOUND]
    consumer = broker.consumer()
    broker.advance(100)
    assert consumer.payloads() == [b"other"]
    broker.advance(400)
    assert consumer.payloads() == [b"new"]
    assert cancelled_count(broker) == 1


def test_replace__the_last_of_a_batch_wins_and_the_earlier_ones_tell_its_id(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(on_duplicate="replace")
    broker.send([b"old"], keys=["k"])
    reply = broker.send([b"1", b"2", b"3", b"4"], keys=["k", "l", "k", "k"])
    assert reply.all_statuses().tolist() == [KEPT, OK, KEPT, OK]
    ids = reply.all_ids().tolist()
    assert ids[0] == ids[2] == ids[3] != ids[1]
    assert sorted(broker.consumer().payloads()) == [b"2", b"4"]


def test_replace__a_leased_message_cannot_be_replaced__until_its_lease_is_over(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(on_duplicate="replace", lease_ms=1_000)
    [old] = broker.send([b"old"], keys=["k"]).all_ids().tolist()
    consumer = broker.consumer()
    assert consumer.payloads() == [b"old"]
    reply = broker.send([b"1", b"2"], keys=["k", "k"])
    assert reply.all_statuses().tolist() == [DUPLICATE, DUPLICATE]
    assert reply.all_ids().tolist() == [old, old]
    consumer.session.credit(0)
    broker.advance(1_000)
    assert broker.send([b"new"], keys=["k"]).all_statuses().tolist() == [OK]
    assert broker.consumer().payloads() == [b"new"]


@pytest.mark.parametrize("on_duplicate", ["keep", "replace"])
def test_a_batch_sent_again_gets_its_first_answer(
    make_broker: MakeBroker, on_duplicate: str
) -> None:
    """Rule 10 holds for rows that were kept or replaced, too."""
    broker = make_broker(on_duplicate=on_duplicate)
    broker.send([b"old"], keys=["k"])
    first = broker.send([b"1", b"2", b"3"], keys=["k", "l", "l"], producer="p", number=7)
    broker.send([b"4"], keys=["l"])
    again = broker.send([b"1", b"2", b"3"], keys=["k", "l", "l"], producer="p", number=7)
    assert again.all_statuses().tolist() == first.all_statuses().tolist()
    assert again.all_ids().tolist() == first.all_ids().tolist()


def test_a_batch_of_kept_rows_alone_is_remembered(make_broker: MakeBroker) -> None:
    broker = make_broker(on_duplicate="keep")
    broker.send([b"a"], keys=["k"])
    first = broker.send([b"b"], keys=["k"], producer="p", number=1)
    assert first.all_statuses().tolist() == [KEPT]
    consumer = broker.consumer()
    [got] = consumer.take_all()
    consumer.ack(got)
    again = broker.send([b"b"], keys=["k"], producer="p", number=1)
    assert again.all_statuses().tolist() == [KEPT]
    assert consumer.payloads() == []


def test_replaced_messages_do_not_come_back(on_files: MakeBroker) -> None:
    """Rules 6 and 13: nor after a restart."""
    broker = on_files(on_duplicate="replace")
    for number in range(5):
        broker.send([b"%d" % number, b"x"], keys=["k", f"l{number}"])
    hashes = broker.state_hashes()
    broker.restart()
    assert broker.send([b"last"], keys=["k"]).all_statuses().tolist() == [OK]
    assert hashes != broker.state_hashes()
    assert sorted(broker.consumer().payloads()) == [b"last", *[b"x"] * 5]


def test_on_duplicate_can_change_while_messages_flow(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.send([b"a"], keys=["k"])
    for on_duplicate, status in (("keep", KEPT), ("replace", OK), ("reject", DUPLICATE)):
        broker.broker.alter_topic(TOPIC, {"on_duplicate": on_duplicate})
        assert broker.send([b"b"], keys=["k"]).all_statuses().tolist() == [status]


def test_keys_move_and_cancel_the_message_that_replaced(make_broker: MakeBroker) -> None:
    broker = make_broker(on_duplicate="replace")
    for payload in (b"1", b"2"):
        broker.send([payload], [broker.now_ms + 1_000], keys=["k"])
    reply = broker.write("cancel", {"key": pa.array(["k"])})
    assert reply.all_statuses().tolist() == [OK]
    broker.advance(1_000)
    assert broker.consumer().payloads() == []
