"""Rule 19: each message is for each subscription once; rule 20: what a producer changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.shard import seeding_chore
from dejaqueue.broker.watching.findings import findings_of
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.model import RowStatus, Topic
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import SettleOp
from tests.rules.conftest import MakeBroker

VIEWS: dict[str, dict[str, Any]] = {"billing": {}, "audit": {"order": "arrival"}}


def statuses(reply: Any) -> list[RowStatus]:
    return [RowStatus(status) for status in reply.all_statuses().tolist()]


def test_each_message_is_for_each_subscription_once(on_files: MakeBroker) -> None:
    fixture = on_files(subscriptions=VIEWS)
    soon = fixture.now_ms + 60_000
    fixture.send([b"late", b"soon"], [soon + 10_000, soon])
    unnamed, billing, audit = (
        fixture.consumer(topic=name) for name in ("t", "t@billing", "t@audit")
    )
    assert audit.payloads() == [b"late", b"soon"]  # as they came, at once
    assert unnamed.payloads() == billing.payloads() == []
    fixture.advance(80_000)
    [first] = unnamed.take_all()
    [second] = billing.take_all()
    assert first.payloads == second.payloads == [b"soon", b"late"]
    assert first.ids == second.ids
    assert first.lease_id != second.lease_id
    unnamed.ack(first)
    assert billing.settle(SettleOp.NACK, partition=0, lease_id=second.lease_id).error is None
    assert unnamed.payloads() == []
    [again] = billing.take_all()
    assert (again.payloads, again.attempts) == ([b"late", b"soon"], [2, 2])  # both are due now
    # The unnamed view is done with them: what they are is still stored, also after a restart.
    fixture.crash()
    assert fixture.consumer(topic="t").payloads() == []
    fixture.advance(60_000)
    assert fixture.consumer(topic="t@billing").payloads() == [b"late", b"soon"]


@pytest.mark.one_process("looks into a broker")
def test_a_payload_goes_when_every_view_is_done_with_it(make_broker: MakeBroker) -> None:
    fixture = make_broker(subscriptions=VIEWS)
    ids = fixture.send([b"a", b"b"]).all_ids().tolist()
    got = {}
    for name in ("t", "t@billing"):
        consumer = fixture.consumer(topic=name)
        [got[name]] = consumer.take_all()
        consumer.ack(got[name])
    assert [row["payload"] for row in fixture.peek("t@audit", ids=ids)] == [b"a", b"b"]
    assert fixture.peek("t", ids=ids) == fixture.peek("t@billing", ids=ids) == []
    core = fixture.broker.runtime("t").partitions[0].core
    assert sum(part.size for part in core.views.live_locators()) == 2
    audit = fixture.consumer(topic="t@audit")
    audit.ack(audit.take_all()[0])
    assert sum(part.size for part in core.views.live_locators()) == 0
    core.views.check()


@pytest.mark.one_broker("looks into a broker")
def test_orders(on_files: MakeBroker) -> None:
    orders = {order: {"order": order} for order in ("due", "priority", "groups", "arrival")}
    fixture = on_files(snapshot_entries=3, subscriptions=orders)
    now_ms = fixture.now_ms
    columns = {
        "payload": pa.array([b"0", b"1", b"2", b"3"], pa.binary()),
        "due": pa.array([now_ms - 1, now_ms - 2, now_ms - 3, now_ms - 4]),
        "priority": pa.array([7, 1, 9, 3], pa.uint16()),
        "group": pa.array(["x", "x", "x", "y"]),
    }
    assert fixture.write("enqueue", columns).error is None
    fixture.settle_down()
    fixture.wait_for_snapshots()
    for _ in range(3):  # so that a snapshot is taken that has the views in it
        fixture.send([b"later"], [now_ms + 3_600_000])
        fixture.settle_down()
    fixture.wait_for_snapshots()
    fixture.crash()
    for order, expected in {
        "due": [b"3", b"2", b"1", b"0"],
        "priority": [b"1", b"3", b"0", b"2"],
        "groups": [b"0", b"3", b"1", b"2"],
        "arrival": [b"0", b"1", b"2", b"3", b"later", b"later", b"later"],
    }.items():
        assert (order, fixture.consumer(topic=f"t@{order}").payloads()) == (order, expected)
    fixture.broker.runtime("t").partitions[0].core.views.check()


@pytest.mark.one_process("looks into a broker")
def test_a_new_subscription_begins_now_or_with_what_there_is(on_files: MakeBroker) -> None:
    fixture = on_files()
    unnamed = fixture.consumer()
    fixture.send([b"done"])
    unnamed.ack(unnamed.take_all()[0])
    fixture.send([b"leased"])
    unnamed.take_all()
    later = fixture.now_ms + 60_000
    fixture.send([b"due", b"x"], [later, later + 1], keys=["k", "l"])
    made = {"new": {}, "live": {"start": "live"}, "log": {"start": "live", "order": "arrival"}}
    topic = fixture.broker.alter_topic("t", {"subscriptions": made})
    assert {name: values["order"] for name, values in topic.subscriptions.items()} == {
        "new": "due",
        "live": "due",
        "log": "arrival",
    }
    fixture.send([b"after"])
    fixture.advance(1_000)
    assert fixture.consumer(topic="t@new").payloads() == [b"after"]
    assert fixture.consumer(topic="t@live").payloads() == [b"after", b"leased"]
    assert fixture.consumer(topic="t@log").payloads() == [b"leased", b"due", b"x", b"after"]
    fixture.broker.runtime("t").partitions[0].core.views.check()
    fixture.restart()
    fixture.advance(120_000)
    assert sorted(fixture.consumer(topic="t@live").payloads()) == [
        b"after",
        b"due",
        b"leased",
        b"x",
    ]
    fixture.broker.runtime("t").partitions[0].core.views.check()


@pytest.mark.one_process("looks into a broker")
def test_a_subscription_begins_in_pieces(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeding_chore, "SPAN", 2)
    fixture = on_files(snapshot_entries=3)
    payloads = [b"%d" % number for number in range(9)]
    fixture.send(payloads)
    fixture.broker.alter_topic("t", {"subscriptions": {"a": {"start": "live"}}})
    view = fixture.broker.runtime("t").partitions[0].core.views.find("a")
    assert view is not None
    assert view.seeding is None  # the call answers when it has all
    fixture.crash()
    assert fixture.consumer(topic="t@a").payloads() == payloads
    assert fixture.consumer().payloads() == payloads


@pytest.mark.one_process("looks into a broker")
def test_a_subscription_is_for_messages_with_its_tags(on_files: MakeBroker) -> None:
    made = {
        "eu": {"tags_any": ["eu", "uk"]},
        "rest": {"tags_none": ["eu", "uk"], "order": "arrival"},
        "both": {"tags_all": ["eu", "big"]},
    }
    fixture = on_files(snapshot_entries=3, subscriptions=made, unnamed=False)

    def send(names: str, tags: list[list[str]]) -> None:
        payloads = pa.array([name.encode() for name in names], pa.binary())
        columns = {"payload": payloads, "tags": pa.array(tags, pa.list_(pa.string()))}
        assert fixture.write("enqueue", columns).error is None

    send("abcd", [["eu"], ["us"], [], ["big", "eu"]])
    core = fixture.broker.runtime("t").partitions[0].core
    backlogs = {name: fixture.counts(f"t@{name}")["scheduled"] for name in made}
    assert backlogs == {"eu": 2, "rest": 2, "both": 1}
    fixture.crash()
    for name, expected in (("eu", b"ad"), ("rest", b"bc"), ("both", b"d")):
        consumer = fixture.consumer(topic=f"t@{name}")
        [got] = consumer.take_all()
        assert b"".join(got.payloads) == expected
        consumer.ack(got)
        consumer.session.close(release=True)
    core = fixture.broker.runtime("t").partitions[0].core
    assert sum(part.size for part in core.views.live_locators()) == 0
    # What is for nobody is gone at once; other tags are for what comes from then on.
    fixture.broker.alter_topic("t", {"subscriptions": {"rest": None}})
    send("e", [["us"]])
    assert sum(part.size for part in core.views.live_locators()) == 0
    fixture.broker.alter_topic("t", {"subscriptions": {"eu": {"tags_any": ["us"]}, "both": None}})
    send("fg", [["us"], ["eu"]])
    assert fixture.consumer(topic="t@eu").payloads() == [b"f"]
    core.views.check()


@pytest.mark.one_broker("looks into a broker")
def test_who_is_refused_is_told_which_subscription_is_full(make_broker: MakeBroker) -> None:
    fixture = make_broker(subscriptions={"idle": {}, "new": {}}, max_backlog_count=2)
    fixture.send([b"a", b"b"])
    for name in ("t", "t@new"):
        consumer = fixture.consumer(topic=name)
        consumer.ack(consumer.take_all()[0])
    refused = fixture.send([b"c"])
    assert "2 messages are live in t@idle" in str(refused.error)
    [found] = [one for one in findings_of(fixture.broker) if one.check == "subscriptions"]
    assert found.text == "t@idle has 2 of the 2 messages that t may hold: its producers are refused"
    fixture.broker.alter_topic("t", {"subscriptions": {"idle": None}})
    assert fixture.send([b"c"]).error is None


@pytest.mark.parametrize("tags", ["eu", [1], [""], ["x"] * 17, ["y" * 65], None])
def test_what_are_no_tags_of_a_subscription(make_broker: MakeBroker, tags: Any) -> None:
    fixture = make_broker()
    with pytest.raises(BadRequest):
        fixture.broker.create_topic(Topic("u", subscriptions={"a": {"tags_any": tags}}))


@pytest.mark.one_broker("a stream hears of its end a moment later")
def test_a_subscription_that_is_made_again_begins_anew(make_broker: MakeBroker) -> None:
    fixture = make_broker(subscriptions={"s": {}})
    fixture.send([b"old"])
    consumer = fixture.consumer(topic="t@s")
    assert consumer.payloads() == [b"old"]
    fixture.broker.alter_topic("t", {"subscriptions": {"s": None}})
    assert isinstance(consumer.ended_by, TopicUnknown)
    with pytest.raises(TopicUnknown, match="t@s"):
        fixture.consumer(topic="t@s")
    with pytest.raises(BadRequest):
        fixture.broker.alter_topic("t", {"subscriptions": {"s": None}})
    fixture.broker.alter_topic("t", {"subscriptions": {"s": {}}})
    fixture.send([b"new"])
    assert fixture.consumer(topic="t@s").payloads() == [b"new"]
    assert fixture.consumer().payloads() == [b"old", b"new"]


@pytest.mark.one_process("looks into a broker")
def test_a_topic_without_the_unnamed_one_keeps_nothing_for_nobody(make_broker: MakeBroker) -> None:
    fixture = make_broker(unnamed=False, subscriptions={"s": {}})
    fixture.send([b"a"], keys=["k"])
    assert fixture.consumer().payloads() == []
    assert statuses(fixture.send([b"b"], keys=["k"])) == [RowStatus.DUPLICATE]
    consumer = fixture.consumer(topic="t@s")
    [got] = consumer.take_all()
    assert got.payloads == [b"a"]
    consumer.ack(got)
    core = fixture.broker.runtime("t").partitions[0].core
    assert sum(part.size for part in core.views.live_locators()) == 0
    assert statuses(fixture.send([b"b"], keys=["k"])) == [RowStatus.OK]
    core.views.check()


@pytest.mark.one_broker("a stream is refused a moment later")
def test_settings_are_a_subscriptions_own(on_files: MakeBroker) -> None:
    views = {"strict": {"max_attempts": 1, "lease_ms": 5_000}, "stopped": {"paused": True}}
    fixture = on_files(subscriptions=views)
    fixture.send([b"a"])
    stopped = fixture.consumer(topic="t@stopped")
    assert stopped.payloads() == []
    strict = fixture.consumer(topic="t@strict")
    [got] = strict.take_all()
    assert got.lease_end_ms <= fixture.now_ms + 5_000 + 25
    strict.settle(SettleOp.NACK, partition=0, lease_id=got.lease_id, reason="no")
    fixture.letters_arrive()
    [letter] = fixture.peek("t.strict.dead")
    assert letter["payload"] == b"a"
    assert strict.payloads() == []
    assert fixture.consumer().payloads() == [b"a"]
    fixture.broker.alter_topic("t", {"subscriptions": {"stopped": {"paused": False}}})
    assert stopped.payloads() == [b"a"]
    with pytest.raises(BadRequest):
        fixture.broker.alter_topic("t", {"subscriptions": {"strict": {"order": "arrival"}}})
    with pytest.raises(BadRequest):
        fixture.broker.open_write(WriteStream("t@strict", "enqueue"))


def test_a_stale_hand_of_another_view_is_refused(make_broker: MakeBroker) -> None:
    fixture = make_broker(subscriptions=VIEWS)
    fixture.send([b"a"])
    billing, audit = (fixture.consumer(topic=f"t@{name}") for name in VIEWS)
    [got] = billing.take_all()
    lost = audit.settle(SettleOp.ACK, partition=0, lease_id=got.lease_id)
    assert statuses(lost) == [RowStatus.LEASE_LOST]
    reply = fixture.write(
        "ack",
        {"id": pa.array(got.ids), "attempts": pa.array(got.attempts, pa.uint16())},
        topic="t@billing",
    )
    assert statuses(reply) == [RowStatus.OK]
    fixture.advance(60_000)
    assert billing.payloads() == []


# --- rule 20: all or none -------------------------------------------------------------------------


@pytest.mark.one_process("looks into a broker")
def test_what_a_producer_changes_holds_in_every_view(make_broker: MakeBroker) -> None:
    fixture = make_broker(subscriptions=VIEWS)
    later = fixture.now_ms + 60_000
    ids = fixture.send([b"a", b"b"], [later, later]).all_ids().tolist()
    # The log has them already: nothing changes anywhere.
    audit = fixture.consumer(topic="t@audit")
    [log] = audit.take_all()
    assert statuses(fixture.move(ids, [later + 1, later + 1])) == [RowStatus.LEASED] * 2
    assert statuses(fixture.cancel(ids)) == [RowStatus.LEASED] * 2
    audit.ack(log)
    assert statuses(fixture.move(ids[:1], [later + 60_000])) == [RowStatus.OK]
    assert statuses(fixture.cancel([ids[1], ids[1]])) == [RowStatus.OK, RowStatus.NOT_FOUND]
    unnamed, billing = fixture.consumer(), fixture.consumer(topic="t@billing")
    fixture.advance(90_000)
    assert unnamed.payloads() == billing.payloads() == []
    fixture.advance(60_000)
    assert unnamed.payloads() == billing.payloads() == [b"a"]
    fixture.broker.runtime("t").partitions[0].core.views.check()


@pytest.mark.one_process("looks into a broker")
def test_a_change_reaches_views_that_are_not_done_though_others_are(
    make_broker: MakeBroker,
) -> None:
    fixture = make_broker(subscriptions={"slow": {}}, on_duplicate="replace")
    fixture.send([b"a"], keys=["k"])
    unnamed = fixture.consumer()
    unnamed.ack(unnamed.take_all()[0])
    assert statuses(fixture.send([b"b"], keys=["k"])) == [RowStatus.OK]  # replaces it in `slow`
    assert unnamed.payloads() == [b"b"]
    # One of its views has it leased: it is not replaced in the other one either.
    assert statuses(fixture.send([b"c"], keys=["k"])) == [RowStatus.DUPLICATE]
    assert fixture.consumer(topic="t@slow").payloads() == [b"b"]
    fixture.broker.runtime("t").partitions[0].core.views.check()


@pytest.mark.one_broker("shards are walked one after the other, a call each")
@pytest.mark.parametrize("unnamed", [True, False])
def test_a_change_by_filter_reaches_what_any_view_still_has(
    make_broker: MakeBroker, unnamed: bool
) -> None:
    fixture = make_broker(unnamed=unnamed, subscriptions=VIEWS, partitions=2)
    now_ms = fixture.now_ms
    dues = [now_ms, *(now_ms + 60_000 + 1_000 * at for at in range(8))]
    fixture.send([b"%d" % at for at in range(9)], dues)
    for name in ["t", "t@audit"] if unnamed else ["t@audit"]:
        consumer = fixture.consumer(topic=name)  # done with the first; the log with all of them
        for got in consumer.take_all():
            consumer.ack(got)

    def change(name: str, **fields: Any) -> int:
        dry_run = fixture.broker.call(name, {"topic": "t", "dry_run": True, **fields})
        answer = fixture.broker.call(name, {"topic": "t", **fields})
        assert (answer, dry_run) == (dry_run, {"count": answer["count"], "next": None})
        return int(answer["count"])

    assert change("cancel_where", due_to=dues[5]) == 5
    assert change("move_where", by_ms=10_000) == 4
    left = fixture.peek("t@billing")
    assert [row["due"] for row in left] == [due + 10_000 for due in dues[5:]]
    fixture.advance(dues[6] + 10_000 - now_ms)
    assert fixture.consumer(topic="t@billing").payloads() == [b"5", b"6"]
    assert change("move_where", set_priority=7, due_to=dues[7] + 10_001) == 1  # leased: as it is
    assert change("cancel_where") == 2
    assert [row["payload"] for row in fixture.peek("t@billing")] == [b"5", b"6"]
    for partition in fixture.broker.runtime("t").partitions:
        partition.core.views.check()


def test_what_a_producer_changes_is_not_one_subscriptions(make_broker: MakeBroker) -> None:
    fixture = make_broker(subscriptions=VIEWS)
    for name, fields in {"move_where": {"due": 5}, "cancel_where": {}}.items():
        with pytest.raises(BadRequest, match="topic: a topic, as what a producer changes counts"):
            fixture.broker.call(name, {"topic": "t@billing", **fields})
