"""Rule 21: what is retained, for how long, and what a subscription gets again."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus, Topic
from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import BrokerFixture
from tests.rules.conftest import MakeBroker

VIEWS: dict[str, dict[str, Any]] = {"billing": {}, "audit": {"order": "arrival"}}
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def core_of(fixture: BrokerFixture, partition: int = 0) -> Any:
    return fixture.broker.runtime("t").partitions[partition].core


def stored(fixture: BrokerFixture) -> int:
    runtime = fixture.broker.runtime("t")

    def count(core: Any) -> int:
        core.views.check()
        return sum(part.size for part in core.views.live_locators())

    return sum(runtime.look(number, count).result(60) for number in runtime.partitions.numbers)


def drain(fixture: BrokerFixture, topic: str) -> list[bytes]:
    """Have a consumer of a subscription take what there is, and ack it."""
    consumer, payloads = fixture.consumer(topic=topic), []
    while got := consumer.take_all():
        for push in got:
            payloads += push.payloads
            consumer.ack(push)
    consumer.session.close(release=True)
    return payloads


def seek(fixture: BrokerFixture, topic: str, to: Any, **where: Any) -> dict[str, int]:
    """Seek to the end; what came back and what was passed over."""
    sums, after = {"replayed": 0, "passed": 0}, None
    while True:
        body = {"topic": topic, "to": to, "after": after, **where}
        answer = fixture.broker.call("seek", body)
        for name in sums:
            sums[name] += answer[name]
        after = answer["next"]
        if after is None:
            return sums


@pytest.mark.one_process("looks into a broker")
def test_what_is_done_stays_for_as_long_as_the_topic_says(on_files: MakeBroker) -> None:
    fixture = on_files(retention_ms=DAY_MS)
    fixture.send([b"a", b"b"])
    assert drain(fixture, "t") == [b"a", b"b"]
    assert stored(fixture) == 2
    fixture.advance(DAY_MS - 10)
    fixture.send([b"c"])
    assert stored(fixture) == 3
    fixture.crash()
    assert drain(fixture, "t") == [b"c"]  # nothing is delivered again by itself
    assert stored(fixture) == 3
    fixture.advance(10_000)
    fixture.settle_down()
    assert stored(fixture) == 1
    fixture.advance(DAY_MS)
    fixture.settle_down()
    assert stored(fixture) == 0


@pytest.mark.one_process("looks into a broker")
def test_a_message_that_nobody_got_outlives_its_time(on_files: MakeBroker) -> None:
    fixture = on_files(retention_ms=1_000)
    fixture.send([b"later"], [fixture.now_ms + HOUR_MS])
    fixture.advance(10_000)
    fixture.settle_down()
    assert core_of(fixture).views.retained.count == 0
    fixture.advance(HOUR_MS)
    assert drain(fixture, "t") == [b"later"]
    assert stored(fixture) == 0


@pytest.mark.one_process("looks into a broker")
def test_retention_can_begin_and_end_while_messages_flow(on_files: MakeBroker) -> None:
    fixture = on_files()
    fixture.send([b"before"])
    fixture.broker.alter_topic("t", {"retention_ms": DAY_MS})
    fixture.send([b"after"])
    assert drain(fixture, "t") == [b"before", b"after"]
    assert stored(fixture) == 1
    fixture.restart()
    assert seek(fixture, "t", "beginning") == {"replayed": 1, "passed": 0}
    assert drain(fixture, "t") == [b"after"]
    fixture.broker.alter_topic("t", {"retention_ms": 0})
    assert stored(fixture) == 0
    assert seek(fixture, "t", "beginning") == {"replayed": 0, "passed": 0}


@pytest.mark.one_process("looks into a broker")
def test_the_newest_bytes_are_retained(on_files: MakeBroker) -> None:
    fixture = on_files(snapshot_entries=4, retention_bytes=10)
    fixture.send([b"1", b"22", b"333"])
    assert drain(fixture, "t") == [b"1", b"22", b"333"]
    fixture.advance(10 * DAY_MS)
    assert stored(fixture) == 3  # nothing is too old
    fixture.send([b"55555"])
    drain(fixture, "t")
    fixture.advance(2_000)
    fixture.settle_down()
    fixture.crash()
    assert seek(fixture, "t", "beginning") == {"replayed": 3, "passed": 0}
    assert drain(fixture, "t") == [b"22", b"333", b"55555"]
    fixture.broker.alter_topic("t", {"retention_bytes": 0})
    assert stored(fixture) == 0


def test_the_newest_of_each_key_is_retained(on_files: MakeBroker) -> None:
    fixture = on_files(snapshot_entries=4, retention_keys=True)
    for payload, key in ((b"a1", "a"), (b"b1", "b"), (b"a2", "a"), (b"c1", "c"), (b"b2", "b")):
        fixture.send([payload], keys=[key])
        assert drain(fixture, "t") == [payload]
    fixture.send([b"none"])
    drain(fixture, "t")
    fixture.advance(10 * DAY_MS)
    fixture.settle_down()
    fixture.crash()
    assert seek(fixture, "t", "beginning") == {"replayed": 4, "passed": 0}
    assert drain(fixture, "t") == [b"a2", b"c1", b"b2", b"none"]


@pytest.mark.one_process("looks into a broker")
def test_what_a_producer_cancels_is_not_retained(on_files: MakeBroker) -> None:
    fixture = on_files(retention_ms=DAY_MS)
    soon = fixture.now_ms + HOUR_MS
    ids = fixture.send([b"a", b"b", b"c"], [soon] * 3).all_ids().tolist()
    fixture.cancel(ids[:1])
    assert stored(fixture) == 2
    fixture.advance(2 * HOUR_MS)
    assert drain(fixture, "t") == [b"b", b"c"]
    # What is done is done: a producer cannot change it, though it is retained.
    for reply in (fixture.cancel(ids[1:]), fixture.move(ids[1:], [soon] * 2)):
        assert set(reply.all_statuses().tolist()) == {RowStatus.NOT_FOUND}
    assert stored(fixture) == 2
    assert seek(fixture, "t", "beginning")["replayed"] == 2
    fixture.cancel(ids[1:2])  # it is scheduled again
    assert drain(fixture, "t") == [b"c"]


@pytest.mark.one_process("looks into a broker")
def test_a_replay_is_deliveries_of_the_same_messages(on_files: MakeBroker) -> None:
    fixture = on_files(snapshot_entries=4, subscriptions=VIEWS, retention_ms=DAY_MS)
    now_ms = fixture.now_ms
    ids = fixture.send([b"2", b"1", b"3"], [now_ms - 2, now_ms - 3, now_ms + HOUR_MS])
    ids = ids.all_ids().tolist()
    for name in ("t", "t@billing", "t@audit"):
        drain(fixture, name)
    assert seek(fixture, "t@billing", "beginning") == {"replayed": 2, "passed": 0}
    assert seek(fixture, "t@billing", "beginning") == {"replayed": 0, "passed": 0}
    fixture.crash()
    consumer = fixture.consumer(topic="t@billing")
    [got] = consumer.take_all()
    assert (got.payloads, got.ids) == ([b"1", b"2"], [ids[1], ids[0]])  # by due time, as ever
    assert drain(fixture, "t") == drain(fixture, "t@audit") == []  # the others are as they were
    fixture.crash()
    fixture.advance(60_000)
    assert seek(fixture, "t@audit", "beginning") == {"replayed": 3, "passed": 0}
    assert drain(fixture, "t@audit") == [b"2", b"1", b"3"]
    fixture.advance(HOUR_MS)
    assert drain(fixture, "t@billing") == [b"2", b"1", b"3"]  # the leases of two had ended
    assert stored(fixture) == 3


def test_whoever_had_a_message_before_the_replay_cannot_settle_it(on_files: MakeBroker) -> None:
    fixture = on_files(retention_ms=DAY_MS, max_attempts=2)
    fixture.send([b"a"])
    old = fixture.consumer(credit=1)
    [first] = old.take_all()
    old.ack(first)
    assert seek(fixture, "t", "beginning")["replayed"] == 1
    new = fixture.consumer()
    [second] = new.take_all()
    assert second.ids == first.ids
    assert second.attempts != first.attempts
    for reply in (old.ack(first), old.ack_rows(first.ids, first.attempts)):
        assert RowStatus.LEASE_LOST in reply.all_statuses().tolist()
    # Attempts before the replay do not count: it may fail once.
    assert new.settle(SettleOp.NACK, partition=0, lease_id=second.lease_id).error is None
    [third] = new.take_all()
    assert third.payloads == [b"a"]
    new.ack(third)


def test_seek_to_the_end_passes_over_what_is_due(on_files: MakeBroker) -> None:
    fixture = on_files(subscriptions=VIEWS)
    fixture.send([b"old", b"future"], [fixture.now_ms - 5, fixture.now_ms + HOUR_MS])
    consumer = fixture.consumer(topic="t@billing", credit=1)
    [held] = consumer.take_all()
    fixture.send([b"more"])
    assert seek(fixture, "t@billing", "end") == {"replayed": 0, "passed": 1}
    assert seek(fixture, "t@audit", "end") == {"replayed": 0, "passed": 3}
    assert consumer.ack(held).error is None  # it stayed with its holder
    fixture.send([b"new"])
    assert drain(fixture, "t@audit") == [b"new"]
    fixture.advance(2 * HOUR_MS)
    assert drain(fixture, "t@billing") == [b"new", b"future"]


def test_seek_to_a_time(on_files: MakeBroker) -> None:
    fixture = on_files(subscriptions=VIEWS, retention_ms=DAY_MS)
    begin_ms = fixture.now_ms
    for number in range(4):
        fixture.send([b"%d" % number])
        fixture.advance(60_000)
    assert drain(fixture, "t@billing") == [b"0", b"1", b"2", b"3"]
    assert drain(fixture, "t@audit") == [b"0", b"1", b"2", b"3"]
    for name in ("t@billing", "t@audit"):
        assert seek(fixture, name, begin_ms + 120_000)["replayed"] == 2
        assert drain(fixture, name) == [b"2", b"3"]
        # Somewhere in between, and then on: what is before the later place is passed over.
        assert seek(fixture, name, begin_ms)["replayed"] == 4
        assert seek(fixture, name, begin_ms + 180_000) == {"replayed": 0, "passed": 3}
        assert drain(fixture, name) == [b"3"]


def test_what_has_expired_does_not_come_back(on_files: MakeBroker) -> None:
    fixture = on_files(retention_ms=DAY_MS)
    now_ms = fixture.now_ms
    columns = {"payload": [b"mortal", b"immortal"], "expires": [now_ms + 60_000, None]}
    fixture.write("enqueue", _columns(columns))
    assert sorted(drain(fixture, "t")) == [b"immortal", b"mortal"]
    assert seek(fixture, "t", "beginning")["replayed"] == 2
    assert len(drain(fixture, "t")) == 2
    fixture.advance(120_000)
    assert seek(fixture, "t", "beginning")["replayed"] == 1
    assert drain(fixture, "t") == [b"immortal"]


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    import pyarrow as pa

    kinds = {"payload": pa.binary(), "expires": pa.int64(), "key": pa.utf8(), "due": pa.int64()}
    kinds |= {"group": pa.utf8(), "tags": pa.list_(pa.utf8()), "priority": pa.uint16()}
    return {name: pa.array(column, kinds[name]) for name, column in values.items()}


def test_a_replayed_message_takes_no_key(on_files: MakeBroker) -> None:
    fixture = on_files(retention_ms=DAY_MS)
    fixture.write("enqueue", _columns({"payload": [b"a"], "key": ["k"]}))
    assert drain(fixture, "t") == [b"a"]
    assert seek(fixture, "t", "beginning")["replayed"] == 1
    reply = fixture.write("enqueue", _columns({"payload": [b"b"], "key": ["k"]}))
    assert reply.all_statuses().tolist() == [RowStatus.OK]
    assert drain(fixture, "t") == [b"a", b"b"]


@pytest.mark.one_process("looks into a broker")
@pytest.mark.parametrize("order", ["due", "arrival", "priority", "groups"])
def test_a_new_subscription_begins_with_what_is_retained(on_files: MakeBroker, order: str) -> None:
    fixture = on_files(retention_ms=DAY_MS)
    begin_ms = fixture.now_ms
    fixture.send([b"done"])
    drain(fixture, "t")
    fixture.advance(60_000)
    fixture.send([b"live", b"future"], [fixture.now_ms, fixture.now_ms + HOUR_MS])
    # What is live is live in any: so the one that begins with all comes last.
    starts = {"live": "live", "new": "new", "since": begin_ms + 30_000, "all": "beginning"}
    made = {name: {"order": order, "start": start} for name, start in starts.items()}
    fixture.broker.alter_topic("t", {"subscriptions": made})
    fixture.crash()
    late = [] if order == "arrival" else [b"future"]
    now = [b"future"] if order == "arrival" else []
    assert drain(fixture, "t@all") == [b"done", b"live", *now]
    assert drain(fixture, "t@since") == drain(fixture, "t@live") == [b"live", *now]
    assert drain(fixture, "t@new") == []
    fixture.advance(HOUR_MS)
    assert drain(fixture, "t@all") == drain(fixture, "t@since") == drain(fixture, "t@live") == late
    assert stored(fixture) == 3


def test_a_subscription_by_due_time_begins_with_what_a_log_alone_has(on_files: MakeBroker) -> None:
    views = {"audit": {"order": "arrival"}}
    fixture = on_files(unnamed=False, subscriptions=views, retention_ms=DAY_MS)
    fixture.send([b"future"], [fixture.now_ms + HOUR_MS])
    fixture.broker.alter_topic("t", {"subscriptions": {"mails": {"start": "beginning"}}})
    assert drain(fixture, "t@mails") == []  # rule 2
    fixture.advance(HOUR_MS)
    assert drain(fixture, "t@mails") == [b"future"]
    with pytest.raises(BadRequest, match="subscription"):
        seek(fixture, "t", "end")


@pytest.mark.one_broker("looks into a broker")
def test_a_long_seek_is_done_in_pieces(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.broker.calls.seek.SPAN", 3)
    monkeypatch.setattr("dejaqueue.broker.calls.seek.CALL_COMMANDS_MAX", 2)
    fixture = on_files(subscriptions=VIEWS, retention_ms=DAY_MS, partitions=2, snapshot_entries=5)
    sent = [b"%02d" % number for number in range(40)]
    for payload in sent:
        fixture.send([payload])
    for name in ("t@billing", "t@audit"):
        assert sorted(drain(fixture, name)) == sent
        assert seek(fixture, name, "beginning") == {"replayed": 40, "passed": 0}
        fixture.crash()
        assert sorted(drain(fixture, name)) == sent
    assert stored(fixture) == 40


@pytest.mark.one_process("looks into a broker")
def test_a_seek_by_filter_is_about_what_it_selects(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.broker.calls.seek.SPAN", 2)
    monkeypatch.setattr("dejaqueue.broker.calls.seek.CALL_COMMANDS_MAX", 1)
    views = {"billing": {}, "audit": {"order": "arrival"}, "most": {"order": "priority"}}
    fixture = on_files(snapshot_entries=4, subscriptions=views, retention_ms=DAY_MS)
    now_ms = fixture.now_ms
    sent = {b"a": 0, b"b": 1, b"c": 0, b"d": 1, b"later": HOUR_MS}
    for number, (payload, delay_ms) in enumerate(sent.items()):
        columns = {
            "payload": [payload],
            "due": [now_ms + delay_ms],
            "group": ["acme" if number % 2 else "rest"],
            "tags": [["odd"] if number % 2 else []],
            "priority": [number],
        }
        fixture.write("enqueue", _columns(columns))
    fixture.advance(10)
    served = ("t@billing", "t@audit", "t@most")
    for name in served:
        drain(fixture, name)
    for name in served:
        assert seek(fixture, name, "beginning", group="acme") == {"replayed": 2, "passed": 0}
        assert seek(fixture, name, "beginning", group="acme") == {"replayed": 0, "passed": 0}
        assert seek(fixture, name, "beginning", group="nobody") == {"replayed": 0, "passed": 0}
        again = seek(fixture, name, "beginning", tags_none=["odd"], priority_to=1)
        assert again == {"replayed": 1, "passed": 0}
        due = seek(fixture, name, "beginning", due_from=now_ms, due_to=now_ms + 1)
        assert due == {"replayed": 1, "passed": 0}
    fixture.crash()
    for name in served:
        # A producer's due time counts for a log, too, where nothing waits for it.
        first = {"replayed": 0, "passed": 2}
        assert seek(fixture, name, "end", due_to=now_ms + 1) == first
        assert drain(fixture, name) == [b"b", b"d"]
    fixture.crash()
    fixture.advance(HOUR_MS)
    assert drain(fixture, "t@billing") == drain(fixture, "t@most") == [b"later"]
    assert drain(fixture, "t") == [b"a", b"c", b"b", b"d", b"later"]  # it noticed nothing
    assert stored(fixture) == 5
    for wrong in ({"state": "ready"}, {"group": 3}, {"colour": "red"}, {"priority_to": -1}):
        with pytest.raises(BadRequest):
            seek(fixture, "t@billing", "end", **wrong)


@pytest.mark.parametrize("to", [None, "middle", -1, True, 1.5])
def test_a_place_that_there_is_not(make_broker: MakeBroker, to: Any) -> None:
    fixture = make_broker()
    with pytest.raises(BadRequest, match="beginning, end"):
        seek(fixture, "t", to)


@pytest.mark.one_process("looks into a broker")
def test_a_topic_that_is_made_again_has_nothing_of_the_one_before(on_files: MakeBroker) -> None:
    fixture = on_files(subscriptions=VIEWS, retention_ms=DAY_MS, snapshot_entries=2)
    fixture.send([b"a"])
    for name in ("t", "t@billing", "t@audit"):
        assert drain(fixture, name) == [b"a"]
    # A subscription of the same name is another one, which may begin with what is retained.
    fixture.broker.alter_topic("t", {"subscriptions": {"billing": None}})
    assert stored(fixture) == 1
    fixture.broker.alter_topic("t", {"subscriptions": {"billing": {"start": "beginning"}}})
    assert drain(fixture, "t@billing") == [b"a"]
    fixture.broker.delete_topic("t")
    fixture.broker.create_topic(Topic("t", retention_ms=DAY_MS))
    assert seek(fixture, "t", "beginning") == {"replayed": 0, "passed": 0}
    fixture.send([b"b"])
    assert drain(fixture, "t") == [b"b"]
    fixture.restart()
    assert seek(fixture, "t", "beginning") == {"replayed": 1, "passed": 0}
    assert drain(fixture, "t") == [b"b"]


def test_what_died_comes_back_beside_its_dead_letter(on_files: MakeBroker) -> None:
    fixture = on_files(retention_ms=DAY_MS, max_attempts=1)
    fixture.send([b"a"])
    consumer = fixture.consumer(credit=1)
    [got] = consumer.take_all()
    assert consumer.settle(SettleOp.NACK, partition=0, lease_id=got.lease_id).error is None
    fixture.letters_arrive()
    assert seek(fixture, "t", "beginning") == {"replayed": 1, "passed": 0}
    assert drain(fixture, "t") == [b"a"]
    assert drain(fixture, "t.dead") == [b"a"]
