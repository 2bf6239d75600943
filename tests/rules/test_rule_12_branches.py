"""Rule 12, in branches: of what many hands staged, only the hands that won count, all at once.

Not covered here: Spark, whose tasks are such hands (tests/spark).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.transactions import home
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.model import RowStatus
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker

HOUR_MS = 3_600_000
QUERY = "6e1f"


def act(broker: BrokerFixture, action: str, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = broker.broker.transactions.act(action, body).result(PATIENCE_SECONDS)
    return answer


def begin(broker: BrokerFixture, timeout_ms: int = HOUR_MS, **of: Any) -> str:
    name: str = act(
        broker, "begin_transaction", topic=TOPIC, timeout_ms=timeout_ms, branched=True, **of
    )["transaction"]
    return name


def send(
    broker: BrokerFixture, name: str, texts: list[str], *, keys: bool = False, partition: int = 0
) -> Reply:
    columns: dict[str, Any] = {"payload": pa.array([text.encode() for text in texts], pa.binary())}
    if keys:
        columns["key"] = pa.array(texts)
    else:
        columns["partition"] = pa.array([partition] * len(texts), pa.int32())
    future: Future[Reply] = Future()
    stream = WriteStream(TOPIC, transaction=name).check()
    broker.broker.open_write(stream).submit(1, pa.record_batch(columns), future.set_result)
    return future.result(PATIENCE_SECONDS)


def commit(broker: BrokerFixture, name: str, *hands: str, action: str = "commit") -> None:
    places = [f"t/{n}" for n in range(broker.broker.topic(TOPIC).partitions)]
    act(
        broker,
        f"{action}_transaction",
        transaction=name,
        participants=places,
        branches=list(hands),
    )


def commit_epoch(broker: BrokerFixture, epoch: int, *hands: str, left_ms: int = HOUR_MS) -> None:
    act(
        broker,
        "commit_epoch",
        topic=TOPIC,
        query=QUERY,
        epoch=epoch,
        participants=[f"t/{n}" for n in range(broker.broker.topic(TOPIC).partitions)],
        branches=list(hands),
        until_ms=broker.clock.now_ms() + left_ms,
    )


def counts(broker: BrokerFixture) -> dict[str, int]:
    rows = broker.broker.call("counts", {"topic": TOPIC})["rows"]
    return {row["state"]: row["count"] for row in rows if row["count"]}


def test_branches_that_the_commit_names_count__others_never_were(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=3)
    consumer = broker.consumer()
    name = begin(broker)
    send(broker, f"{name}~0.1.aa", ["a"], partition=0)
    send(broker, f"{name}~0.2.bb", ["a again"], partition=1)
    send(broker, f"{name}~1.3.cc", ["b"], partition=2)
    assert consumer.payloads() == []
    commit(broker, name, "0.2.bb", "1.3.cc")
    assert sorted(consumer.payloads()) == [b"a again", b"b"]
    assert "staged" not in counts(broker)


def test_a_commit_that_is_repeated_gives_the_same__also_if_it_names_others(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(partitions=2)
    consumer = broker.consumer()
    name = begin(broker)
    send(broker, f"{name}~0.1", ["a"], partition=1)
    commit(broker, name, "0.1")
    commit(broker, name, "0.1")
    send(broker, f"{name}~0.2", ["late"], partition=1)
    commit(broker, name, "0.2")
    assert consumer.payloads() == [b"a"]
    assert counts(broker) == {"leased": 1}


@pytest.mark.one_process("looks into a broker")
def test_a_large_decision_is_carried_out_piece_by_piece(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "DECIDE_ROWS_MAX", 5)
    broker = make_broker(partitions=2)
    name = begin(broker)
    hands = [f"{number}.1" for number in range(20)]
    for number, hand in enumerate(hands):
        send(broker, f"{name}~{hand}", ["x", "y"], partition=number % 2)
        send(broker, f"{name}~{hand}a", ["lost"], partition=number % 2)
    pieces = []
    decide = home.decide_family

    def noting(*given: Any, **more: Any) -> bool:
        pieces.append(decide(*given, **more))
        return pieces[-1]

    monkeypatch.setattr(home, "decide_family", noting)
    commit(broker, name, *hands)
    assert pieces.count(True) >= 8
    assert pieces.count(False) == 2
    assert len(broker.consumer().payloads()) == 40
    assert "staged" not in counts(broker)


def test_an_abort_leaves_nothing_of_any_branch(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    name = begin(broker)
    send(broker, f"{name}~0.1", ["a"], partition=0)
    send(broker, f"{name}~1.1", ["b"], partition=1)
    commit(broker, name, action="abort")
    assert counts(broker) == {}
    with pytest.raises(Refused, match="aborted"):
        commit(broker, name, "0.1")


@pytest.mark.parametrize("action", ["commit", "abort"])
def test_what_is_staged_after_the_decision_changes_nothing__and_is_soon_forgotten(
    make_broker: MakeBroker, action: str
) -> None:
    broker = make_broker(partitions=2)
    consumer = broker.consumer()
    name = begin(broker, timeout_ms=HOUR_MS)
    send(broker, f"{name}~0.1", ["a"], partition=0)
    commit(broker, name, "0.1", action=action)
    send(broker, f"{name}~0.2", [f"k{n}" for n in range(9)], keys=True)
    assert counts(broker)["staged"] == 9
    broker.advance(5_000)
    broker.settle_down()
    assert consumer.payloads() == ([b"a"] if action == "commit" else [])
    assert "staged" not in counts(broker)
    free = send(broker, f"{begin(broker)}~0.1", [f"k{n}" for n in range(9)], keys=True)
    assert not free.all_statuses().any()


def test_what_nobody_decides_is_aborted_when_its_time_is_over(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    name = begin(broker, timeout_ms=5_000)
    send(broker, f"{name}~0.1", ["a"], partition=0)
    send(broker, f"{name}~1.1", ["b"], partition=1)
    broker.advance(5_000)
    broker.settle_down()
    assert counts(broker) == {}
    with pytest.raises(Refused, match="its time was over"):
        commit(broker, name, "0.1", "1.1")


@pytest.mark.parametrize("on_duplicate", ["reject", "keep", "replace"])
def test_hands_of_one_piece_of_work_do_not_take_each_others_keys(
    make_broker: MakeBroker, on_duplicate: str
) -> None:
    broker = make_broker(partitions=2, on_duplicate=on_duplicate)
    consumer = broker.consumer()
    name = begin(broker)
    texts = [f"k{n}" for n in range(20)]
    first = send(broker, f"{name}~7.1.aa", texts, keys=True)
    again = send(broker, f"{name}~7.2.bb", texts, keys=True)
    assert not first.all_statuses().any()
    assert not again.all_statuses().any()
    commit(broker, name, "7.2.bb")
    assert sorted(consumer.payloads()) == sorted(text.encode() for text in texts)


def test_hands_of_other_work_and_other_producers_do(make_broker: MakeBroker) -> None:
    broker = make_broker()
    name, other = begin(broker), begin(broker)
    send(broker, f"{name}~7.1", ["k"], keys=True)
    for rival in (f"{name}~70.1", f"{name}~8.1", f"{other}~7.2"):
        reply = send(broker, rival, ["k"], keys=True)
        assert reply.all_statuses().tolist() == [RowStatus.DUPLICATE]


def test_keys_of_hands_that_lost_are_free(make_broker: MakeBroker) -> None:
    broker = make_broker()
    name = begin(broker)
    send(broker, f"{name}~7.1", ["k", "only here"], keys=True)
    send(broker, f"{name}~7.2", ["k"], keys=True)
    commit(broker, name, "7.2")
    reply = send(broker, f"{begin(broker)}~1.1", ["only here", "k"], keys=True)
    assert reply.all_statuses().tolist() == [RowStatus.OK, RowStatus.DUPLICATE]


def test_an_epoch_is_committed_once__however_often_it_is_written(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    consumer = broker.consumer()
    for attempt in range(3):
        name = begin(broker, query=QUERY, epoch=4)
        send(broker, f"{name}~0.{attempt}", ["a"], partition=0)
        send(broker, f"{name}~1.{attempt}", ["b"], partition=1)
        commit_epoch(broker, 4, f"0.{attempt}", f"1.{attempt}")
        broker.advance(1_000)
    name = begin(broker, query=QUERY, epoch=3)
    send(broker, f"{name}~0.9", ["older"])
    commit_epoch(broker, 3, "0.9")
    name = begin(broker, query=QUERY, epoch=5)
    send(broker, f"{name}~0.9", ["next"])
    commit_epoch(broker, 5, "0.9")
    assert sorted(consumer.payloads()) == [b"a", b"b", b"next"]
    assert "staged" not in counts(broker)


def test_who_begins_an_epoch_is_told_whether_it_is_committed(make_broker: MakeBroker) -> None:
    broker = make_broker()

    def is_committed(query: str, epoch: int) -> bool:
        body = {"topic": TOPIC, "timeout_ms": HOUR_MS, "query": query, "epoch": epoch}
        begun: bool = act(broker, "begin_transaction", **body)["committed"]
        return begun

    assert not is_committed(QUERY, 0)
    commit_epoch(broker, 4)
    assert [is_committed(QUERY, epoch) for epoch in (3, 4, 5)] == [True, True, False]
    assert not is_committed("another", 4)
    assert "committed" not in act(broker, "begin_transaction", topic=TOPIC)


def test_what_a_run_that_died_staged_for_an_epoch_goes_when_the_epoch_is_committed(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(partitions=2)
    consumer = broker.consumer()
    died = begin(broker, query=QUERY, epoch=4)
    broker.advance(1_000)
    name = begin(broker, query=QUERY, epoch=4)
    assert died != name
    send(broker, f"{died}~0.7", ["k"], keys=True)
    reply = send(broker, f"{name}~0.8", ["k"], keys=True)
    assert reply.all_statuses().tolist() == [RowStatus.OK]
    commit_epoch(broker, 4, "0.8")
    assert consumer.payloads() == [b"k"]
    assert counts(broker) == {"leased": 1}


def test_an_epoch_of_which_a_hand_was_too_slow_is_not_committed(make_broker: MakeBroker) -> None:
    broker = make_broker()
    name = begin(broker, query=QUERY, epoch=4)
    send(broker, f"{name}~0.7", ["a"])
    with pytest.raises(Refused, match="its time was over"):
        commit_epoch(broker, 4, "0.7", left_ms=0)
    assert counts(broker) == {}
    name = begin(broker, query=QUERY, epoch=4)
    send(broker, f"{name}~0.8", ["a"])
    commit_epoch(broker, 4, "0.8")
    assert counts(broker) == {"scheduled": 1, "ready": 1}


def test_a_restart_remembers_epochs_and_finishes_decisions(on_files: MakeBroker) -> None:
    broker = on_files(partitions=3)
    name = begin(broker, query=QUERY, epoch=4)
    send(broker, f"{name}~0.1", ["a"], partition=2)
    commit_epoch(broker, 4, "0.1")
    job = begin(broker)
    send(broker, f"{job}~0.1", ["b"], partition=1)
    send(broker, f"{job}~0.2", ["lost"], partition=1)
    broker.restart()
    commit(broker, job, "0.1")
    name = begin(broker, query=QUERY, epoch=4)
    send(broker, f"{name}~0.2", ["again"], partition=2)
    commit_epoch(broker, 4, "0.2")
    broker.restart()
    assert sorted(broker.consumer().payloads()) == [b"a", b"b"]
    assert "staged" not in counts(broker)


@pytest.mark.parametrize(
    ("action", "body", "field"),
    [
        ("begin_transaction", {"branched": 1}, "branched"),
        ("begin_transaction", {"timeout_ms": limits.BRANCHED_MS_MAX + 1}, "timeout_ms"),
        ("begin_transaction", {"query": "q"}, "epoch"),
        ("begin_transaction", {"query": "", "epoch": 1}, "query"),
        ("commit_transaction", {"branches": "0.1"}, "branches"),
        ("commit_transaction", {"branches": ["0;1"]}, "branch"),
        ("commit_epoch", {"epoch": -1}, "epoch"),
        ("commit_epoch", {"until_ms": "now"}, "until_ms"),
        ("commit_epoch", {"participants": "t/0"}, "participants"),
    ],
)
def test_a_wrong_call_is_refused(
    make_broker: MakeBroker, action: str, body: dict[str, Any], field: str
) -> None:
    broker = make_broker()
    bodies: dict[str, dict[str, Any]] = {
        "begin_transaction": {"topic": TOPIC, "branched": True, "timeout_ms": 1_000},
        "commit_transaction": {"transaction": begin(broker), "participants": [], "branches": []},
        "commit_epoch": {
            "topic": TOPIC,
            "query": "q",
            "epoch": 1,
            "participants": [],
            "branches": [],
            "until_ms": 1,
        },
    }
    with pytest.raises(BadRequest) as refused:
        act(broker, action, **(bodies[action] | body))
    assert refused.value.field == field


@pytest.mark.one_broker("a stream is opened with its first batch")
def test_only_branches_may_take_long__and_they_only_send(make_broker: MakeBroker) -> None:
    broker = make_broker()
    name = begin(broker)
    with pytest.raises(BadRequest, match="a branch of it"):
        broker.broker.open_write(WriteStream(TOPIC, transaction=name))
    with pytest.raises(BadRequest, match="enqueue in a branch"):
        broker.broker.open_write(WriteStream(TOPIC, "ack", transaction=f"{name}~0.1"))
