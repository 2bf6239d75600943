"""Covers: what is told of one message, of one broker and of several; gaps, and where it goes on.

Not covered: recording (tests/rules/test_history.py); how brokers of a cluster ask one another
(tests/cluster/test_message_history.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.broker.calls import message_history
from dejaqueue.broker.calls.message_history import join, parse, recorded
from dejaqueue.errors import BadRequest, TopicUnknown, Unavailable
from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker, make_broker, on_files

__all__ = ["make_broker", "on_files"]


def life(broker: BrokerFixture, message_id: int, **more: Any) -> dict[str, Any]:
    return broker.broker.call("message_history", {"topic": TOPIC, "id": message_id, **more})


def words(answer: dict[str, Any]) -> list[str]:
    return [change["change"] for change in answer["changes"]]


def lead(broker: BrokerFixture) -> None:
    """Three messages, of which the first is moved, given back once and acked."""
    broker.send([b"a", b"b", b"c"], [broker.now_ms + 1_000] * 3, ["one", "two", "three"])
    broker.move([0], [broker.now_ms + 500])
    consumer = broker.consumer(consumer="worker")
    broker.advance(600)
    (got,) = consumer.take_all()
    consumer.settle(
        SettleOp.NACK, partition=0, lease_id=got.lease_id, argument_ms=100, reason="busy"
    )
    broker.advance(110)
    (again,) = consumer.take_all()
    consumer.ack(again)


def test_the_life_of_a_message_is_told__and_of_no_other(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    began_ms = broker.now_ms
    lead(broker)
    answer = life(broker, 0)
    told = ["enqueued", "moved", "delivered", "nacked", "redelivered", "acked"]
    assert words(answer) == told
    assert (answer["history"], answer["gaps"], answer["silent"], answer["next"]) == (
        True, [], [], None,
    )  # fmt: skip
    came, _, given, nacked, *_ = answer["changes"]
    assert (came["key"], came["at_ms"], came["due"]) == ("one", began_ms, began_ms + 1_000)
    assert (given["consumer"], given["lateness_ms"], given["attempt"]) == ("worker", 100, 1)
    assert nacked["reason"] == "busy"
    assert "consumer" not in nacked
    assert words(life(broker, 1)) == ["enqueued"]
    assert words(life(broker, 99)) == []
    broker.restart()
    assert words(life(broker, 0)) == told


def test_where_history_is_off_nothing_is_known__and_the_answer_says_so(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    broker.send([b"a"])
    answer = life(broker, 0)
    assert answer == {"history": False, "changes": [], "gaps": [], "silent": [], "next": None}


def test_the_time_in_which_it_was_off_is_a_gap(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    broker.send([b"a", b"b"], [broker.now_ms + 9_000] * 2)
    broker.broker.alter_topic(TOPIC, {"history": False})
    broker.move([0], [broker.now_ms + 500])
    broker.broker.alter_topic(TOPIC, {"history": True})
    broker.cancel([0])
    answer = life(broker, 0)
    assert words(answer) == ["enqueued", "cancelled"]
    [gap] = answer["gaps"]
    assert gap["reason"] == "history was off"
    came, cancelled = answer["changes"]
    assert came["position"] < gap["first"] <= gap["last"] < cancelled["position"]
    broker.send([b"c"], [broker.now_ms + 9_000])
    assert life(broker, 2)["gaps"] == [], "it came later than what is missing"


def test_a_long_search_says_where_to_go_on(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = on_files(history=True)
    broker.send([b"a"], [broker.now_ms + 90_000])
    life(broker, 0)  # a file is finished by each look
    broker.move([0], [broker.now_ms + 80_000])
    life(broker, 0)
    broker.cancel([0])
    whole = life(broker, 0)
    assert words(whole) == ["enqueued", "moved", "cancelled"]
    read = message_history._in_file

    def slowly(*values: Any) -> Any:
        broker.clock.advance(us=message_history.SEARCH_US + 1)
        return read(*values)

    monkeypatch.setattr(message_history, "_in_file", slowly)
    told, after = [], None
    for _ in range(9):
        page = life(broker, 0, after=after)
        told += page["changes"]
        after = page["next"]
        if after is None:
            break
        assert len(page["changes"]) <= 1
    assert told == whole["changes"]


@pytest.mark.parametrize(
    "body",
    [{"id": "7"}, {"id": -1}, {"id": True}, {"id": 1 << 63}, {"id": 0, "after": "x"},
     {"id": 0, "after": -1}, {"id": 0, "topic": f"{TOPIC}@billing"}],
)  # fmt: skip
def test_what_is_wrong_is_said(make_broker: MakeBroker, body: dict[str, Any]) -> None:
    broker = make_broker()
    with pytest.raises(BadRequest):
        broker.broker.call("message_history", {"topic": TOPIC} | body)


def test_an_unknown_topic_is_said__and_an_id_of_no_partition_has_no_history(
    on_files: MakeBroker,
) -> None:
    broker = on_files(history=True)
    with pytest.raises(TopicUnknown):
        broker.broker.call("message_history", {"topic": "nobody", "id": 0})
    assert words(life(broker, 77 << 47)) == []


# --- of several brokers


class Others:
    """Stands in for the other brokers of a cluster."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert (action, body["topic"]) == ("ask_history", TOPIC)
        answer: Future[dict[str, Any]] = Future()
        told = self.answers[url]
        if isinstance(told, Exception):
            answer.set_exception(told)
        else:
            answer.set_result(told)
        return answer


def test_what_others_recorded_comes_with_it__and_who_is_silent_is_named(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = on_files(history=True)
    broker.send([b"a"], [broker.now_ms + 9_000])
    mine = life(broker, 0)["changes"]
    later = {"change": "moved", "position": mine[-1]["position"] + 1, "at_ms": 9, "attempt": 0}
    before = {"changes": [*mine, later], "gaps": [], "recorded": 99, "reached": None}
    cluster = {
        "node": "me",
        "nodes": [{"node": name, "url": name} for name in ("me", "ann", "bob")],
    }
    monkeypatch.setattr(broker.broker, "cluster", lambda *_values, **_more: cluster)
    broker.broker.peers = Others({"ann": before, "bob": Unavailable("away")})
    answer = life(broker, 0)
    assert answer["changes"] == [*mine, later]
    assert answer["silent"] == ["bob"]


def test_another_broker_is_told_what_this_one_recorded(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    lead(broker)
    life(broker, 0)
    told = broker.broker.call("ask_history", {"topic": TOPIC, "id": 0, "after": 0})
    assert words(told)[0] == "enqueued"
    assert told["recorded"] > 0
    asked = parse(TOPIC, {"id": 0, "after": told["changes"][0]["position"]})
    rest = recorded(broker.broker.history, asked, broker.broker.clock)
    assert words(rest) == words(told)[1:]


def one(position: int, change: str = "moved", **more: Any) -> dict[str, Any]:
    return {"position": position, "change": change, "at_ms": position, "attempt": 0, **more}


def told(*changes: dict[str, Any], recorded: int, gaps: Any = (), reached: Any = None) -> Any:
    missing = [{"first": low, "last": high, "at_ms": 0, "reason": "x"} for low, high in gaps]
    return {"changes": list(changes), "gaps": missing, "recorded": recorded, "reached": reached}


def test_a_change_that_two_recorded_comes_once__with_the_consumer_if_one_knows_it() -> None:
    known = one(5, "delivered", consumer="worker")
    for answers in (
        [told(one(5, "delivered"), recorded=5), told(known, recorded=5)],
        [told(known, recorded=5), told(one(5, "delivered"), recorded=5)],
    ):
        assert join(answers)["changes"] == [known]


def test_a_gap_of_one_is_none_where_another_knows__and_is_told_once_otherwise() -> None:
    joined = join([told(recorded=20, gaps=[(3, 9)]), told(recorded=8)])
    assert [(gap["first"], gap["last"]) for gap in joined["gaps"]] == [(3, 9)]
    assert join([told(recorded=20, gaps=[(3, 9)]), told(recorded=9)])["gaps"] == []
    twice = join([told(recorded=20, gaps=[(3, 9)]), told(recorded=20, gaps=[(3, 9)])])
    assert len(twice["gaps"]) == 1


def test_what_is_missing_before_it_came_or_after_its_end_is_not_its() -> None:
    lived = (one(10, "enqueued"), one(20, "acked"))
    gaps = [(2, 4), (12, 13), (30, 31)]
    joined = join([told(*lived, recorded=40, gaps=gaps)])
    assert [(gap["first"], gap["last"]) for gap in joined["gaps"]] == [(12, 13)]


def test_nothing_is_told_of_behind_where_one_stopped_looking() -> None:
    joined = join([told(one(4), one(9), recorded=9), told(one(3), recorded=9, reached=5)])
    assert [change["position"] for change in joined["changes"]] == [3, 4]
    assert joined["next"] == 5
