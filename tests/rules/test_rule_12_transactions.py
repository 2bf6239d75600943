"""Rule 12: a transaction over many batches, topics and partitions counts whole or not at all.

Not covered here: a real process that is killed (tests/crash/test_transactions_kill.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.access.quotas import Account
from dejaqueue.access.roles import Principal
from dejaqueue.broker.transactions.names import TransactionName
from dejaqueue.errors import BadRequest, Refused, TopicUnknown, Unavailable
from dejaqueue.model import RowStatus, Topic
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture, Got, RecordingConsumer
from tests.rules.conftest import MakeBroker


def begin(broker: BrokerFixture, topic: str = TOPIC, timeout_ms: int = 60_000) -> str:
    name: str = broker.broker.transactions.begin(topic, timeout_ms)["transaction"]
    return name


def write(
    broker: BrokerFixture,
    name: str,
    topic: str,
    columns: dict[str, Any],
    op: str,
    account: Account | None = None,
) -> Reply:
    future: Future[Reply] = Future()
    stream = WriteStream(topic, op, transaction=name).check()
    broker.broker.open_write(stream, account=account).submit(
        1, pa.record_batch(columns), future.set_result
    )
    return future.result(PATIENCE_SECONDS)


def send(
    broker: BrokerFixture,
    name: str,
    payloads: list[bytes],
    topic: str = TOPIC,
    partition: int = 0,
    account: Account | None = None,
) -> Reply:
    places = pa.array([partition] * len(payloads), pa.int32())
    columns = {"payload": pa.array(payloads, pa.binary()), "partition": places}
    return write(broker, name, topic, columns, "enqueue", account)


def ack(broker: BrokerFixture, name: str, got: Got, topic: str = TOPIC) -> Reply:
    columns = {"id": got.batch.column("id"), "attempts": got.batch.column("attempts")}
    return write(broker, name, topic, columns, "ack")


def decide(broker: BrokerFixture, name: str, *participants: str, commit: bool = True) -> None:
    broker.broker.transactions.decide(name, list(participants), commit=commit).result(
        PATIENCE_SECONDS
    )


class TopicConsumer(RecordingConsumer):
    """A consumer of another topic than the fixture's."""

    def __init__(self, fixture: BrokerFixture, topic: str) -> None:
        import queue

        from dejaqueue.wire.descriptors import ConsumeStream

        self._fixture = fixture
        self._queue = queue.SimpleQueue()
        self.session = fixture.broker.open_consume(ConsumeStream(topic), self)
        self.session.credit(1_000)


def ends_down(broker: BrokerFixture, *topics: str) -> None:
    """Return when what partitions ask each other is answered."""
    for _ in range(4):
        for topic in topics:
            runtime = broker.broker.runtime(topic)
            for number in range(len(runtime.partitions)):
                runtime.look(number, lambda place: None).result(PATIENCE_SECONDS)


@pytest.mark.one_broker("looks into a broker")
def test_nothing_is_seen_before_the_commit__all_of_it_after(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    broker.broker.create_topic(Topic("other"))
    here, there = broker.consumer(), TopicConsumer(broker, "other")
    name = begin(broker)
    assert send(broker, name, [b"a", b"b"], partition=0).error is None
    assert send(broker, name, [b"c"], partition=1).error is None
    assert send(broker, name, [b"d"], topic="other").error is None
    broker.advance(1_000)
    assert here.payloads() == []
    assert there.payloads() == []
    decide(broker, name, "t/0", "t/1", "other/0")
    assert sorted(here.payloads()) == [b"a", b"b", b"c"]
    ends_down(broker, "other")
    assert there.payloads() == [b"d"]


def test_an_abort_leaves_nothing__acked_messages_come_back(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.send([b"input"])
    consumer = broker.consumer()
    [got] = consumer.take_all()
    name = begin(broker)
    assert ack(broker, name, got).all_statuses().tolist() == [RowStatus.OK]
    send(broker, name, [b"output"])
    broker.advance(40_000)  # its lease is over, but it is the transaction's
    assert consumer.payloads() == []
    decide(broker, name, "t/0", commit=False)
    [again] = consumer.take_all()
    assert again.payloads == [b"input"]
    assert again.attempts == [2]


def test_consume_process_produce__input_and_output_change_together(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.send([b"input"])
    consumer = broker.consumer()
    [got] = consumer.take_all()
    name = begin(broker)
    ack(broker, name, got)
    send(broker, name, [b"output"])
    decide(broker, name, "t/0")
    assert consumer.payloads() == [b"output"]
    broker.advance(100_000)
    assert consumer.payloads() == [b"output"]
    counts = broker.broker.call("stats", {"topic": TOPIC})
    assert counts["acked"] == 1


def test_a_lost_lease_is_told_per_row(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ms=1_000)
    broker.send([b"a"])
    consumer = broker.consumer()
    [got] = consumer.take_all()
    broker.advance(1_000)
    assert ack(broker, begin(broker), got).all_statuses().tolist() == [RowStatus.LEASE_LOST]


@pytest.mark.one_broker("looks into a broker")
def test_its_time_is_over__it_is_aborted_and_a_late_commit_refused(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    consumer = broker.consumer()
    name = begin(broker, timeout_ms=5_000)
    send(broker, name, [b"a"], partition=0)
    send(broker, name, [b"b"], partition=1)
    broker.advance(5_000)
    ends_down(broker, TOPIC)
    counts = broker.broker.call("stats", {"topic": TOPIC})
    with pytest.raises(Refused, match="aborted"):
        decide(broker, name, "t/0", "t/1")
    assert consumer.payloads() == []
    assert broker.broker.transactions.undecided(TOPIC) == []
    assert counts["scheduled"] == 0
    late = send(broker, name, [b"c"])
    assert isinstance(late.error, Refused)


def test_a_repeated_commit_gets_the_same_answer(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    consumer = broker.consumer()
    name = begin(broker)
    send(broker, name, [b"a"], partition=0)
    send(broker, name, [b"b"], partition=1)
    for _ in range(3):
        decide(broker, name, "t/0", "t/1")
    assert sorted(consumer.payloads()) == [b"a", b"b"]
    broker.advance(60_000 + limits.TRANSACTION_MEMORY_MS - 1)
    decide(broker, name, "t/0", "t/1")
    with pytest.raises(Refused, match="committed"):
        decide(broker, name, "t/0", "t/1", commit=False)


def test_a_commit_after_an_abort_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker()
    name = begin(broker)
    send(broker, name, [b"a"])
    decide(broker, name, "t/0", commit=False)
    with pytest.raises(Refused, match="aborted"):
        decide(broker, name, "t/0")
    assert broker.consumer().payloads() == []


@pytest.mark.one_broker("looks into a broker")
def test_decisions_are_forgotten_when_nobody_can_ask(make_broker: MakeBroker) -> None:
    broker = make_broker()
    name = begin(broker)
    send(broker, name, [b"a"])
    decide(broker, name, "t/0")
    runtime = broker.broker.runtime(TOPIC)
    assert (
        len(runtime.look(0, lambda place: dict(place.engine.decisions)).result(PATIENCE_SECONDS))
        == 1
    )
    broker.advance(60_000 + limits.TRANSACTION_MEMORY_MS + 1)
    broker.send([b"b"])
    assert (
        runtime.look(0, lambda place: dict(place.engine.decisions)).result(PATIENCE_SECONDS) == {}
    )
    with pytest.raises(Refused):
        decide(broker, name, "t/0")


def test_a_key_of_a_staged_message_is_taken(make_broker: MakeBroker) -> None:
    broker = make_broker()
    name = begin(broker)
    columns = {"payload": pa.array([b"a"], pa.binary()), "key": pa.array(["k"])}
    write(broker, name, TOPIC, columns, "enqueue")
    assert broker.send([b"b"], keys=["k"]).all_statuses().tolist() == [RowStatus.DUPLICATE]
    decide(broker, name, "t/0", commit=False)
    assert broker.send([b"b"], keys=["k"]).all_statuses().tolist() == [RowStatus.OK]


@pytest.mark.parametrize(
    ("name", "participants"),
    [("", []), ("t/0/1-1-zz", []), ("x" * 300, []), (5, []), (None, "t/0"), (None, ["t"])],
)
def test_nonsense_is_refused(make_broker: MakeBroker, name: Any, participants: Any) -> None:
    broker = make_broker()
    name = begin(broker) if name is None else name
    with pytest.raises(BadRequest):
        broker.broker.transactions.decide(name, participants, commit=True)
    with pytest.raises(BadRequest):
        broker.broker.transactions.begin(TOPIC, 0)


def test_a_graceful_restart_keeps_what_is_staged(on_files: MakeBroker) -> None:
    broker = on_files()
    name = begin(broker)
    send(broker, name, [b"a"])
    broker.restart()
    decide(broker, name, "t/0")
    assert broker.consumer().payloads() == [b"a"]


@pytest.mark.one_broker("looks into a broker")
def test_who_could_not_be_told_is_told_later(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(partitions=2)
    consumer = broker.consumer()
    name = begin(broker)
    home = TransactionName.parse(name).partition
    send(broker, name, [b"a"], partition=home)
    send(broker, name, [b"b"], partition=1 - home)
    runtime = broker.broker.runtime(TOPIC)
    change = runtime.change

    def out_of_reach(partition: int, function: Any) -> Any:
        if partition == home:
            return change(partition, function)
        failed: Future[None] = Future()
        failed.set_exception(Unavailable("out of reach"))
        return failed

    monkeypatch.setattr(runtime, "change", out_of_reach)
    with pytest.raises(Unavailable, match="is committed, but not every"):
        decide(broker, name, "t/0", "t/1")
    broker.advance(2_000)
    assert consumer.payloads() == [b"a"]
    monkeypatch.undo()
    broker.advance(2_000)
    ends_down(broker, TOPIC)
    assert consumer.payloads() == [b"b"]
    decisions = runtime.look(home, lambda place: dict(place.engine.decisions)).result(
        PATIENCE_SECONDS
    )
    assert decisions == {name: (True, "")}
    decide(broker, name, "t/0", "t/1")


@pytest.mark.one_broker("looks into a broker")
def test_commit_and_the_end_of_the_time_race__all_partitions_hear_the_same(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(partitions=3)
    consumer = broker.consumer()
    outcomes = []
    for turn in range(30):
        name = begin(broker, timeout_ms=1_000)
        payloads = [b"%d-%d" % (turn, place) for place in range(3)]
        for place in range(3):
            send(broker, name, [payloads[place]], partition=place)
        broker.clock.advance(ms=999)
        done = broker.broker.transactions.decide(name, ["t/0", "t/1", "t/2"], commit=True)
        broker.clock.advance(ms=1)
        wrong = done.exception(PATIENCE_SECONDS)
        assert wrong is None or isinstance(wrong, Refused)
        ends_down(broker, TOPIC)
        got = sorted(consumer.payloads())
        assert got == ([] if wrong else payloads)
        outcomes.append(wrong is None)
        assert broker.broker.transactions.undecided(TOPIC) == []
    assert len(outcomes) == 30


@pytest.mark.one_broker("looks into a broker")
def test_a_deleted_home_aborts_what_is_undecided(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.broker.create_topic(Topic("home"))
    name = begin(broker, "home", timeout_ms=1_000)
    send(broker, name, [b"a"])
    broker.broker.delete_topic("home")
    with pytest.raises(TopicUnknown):
        decide(broker, name, "t/0")
    broker.advance(1_000)
    ends_down(broker, TOPIC)
    assert len(broker.broker.transactions.undecided(TOPIC)) == 1  # others' clocks may be behind
    broker.advance(broker.broker.settings.clock.apart_ms_max)
    ends_down(broker, TOPIC)
    assert broker.broker.transactions.undecided(TOPIC) == []
    assert broker.consumer().payloads() == []


def test_a_deleted_participant_holds_nobody_up(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.broker.create_topic(Topic("other"))
    name = begin(broker)
    send(broker, name, [b"a"])
    send(broker, name, [b"b"], topic="other")
    broker.broker.delete_topic("other")
    decide(broker, name, "t/0", "other/0")
    assert broker.consumer().payloads() == [b"a"]


@pytest.mark.one_process("sets a limit of brokers in this process")
def test_many_open_transactions_are_bounded(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONS_OPEN_MAX", 2)
    broker = make_broker()
    names = [begin(broker) for _ in range(3)]
    assert [send(broker, name, [b"a"]).error is None for name in names] == [True, True, False]
    assert send(broker, names[0], [b"b"]).error is None
    decide(broker, names[1], "t/0", commit=False)
    assert send(broker, names[2], [b"c"]).error is None


@pytest.mark.one_broker("looks into a broker")
def test_open_transactions_of_one_principal_leave_room_for_others(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONS_OPEN_MAX", 20)
    broker = make_broker()
    quotas = broker.broker.quotas
    shop = quotas.of(Principal("shop", (), "k1"), "")
    mill = quotas.of(Principal("mill", (), "k2"), "")
    names = [begin(broker) for _ in range(4)]
    assert send(broker, names[0], [b"a"], account=shop).error is None
    assert send(broker, names[1], [b"a"], account=shop).error is None
    refused = send(broker, names[2], [b"a"], account=shop).error
    assert str(refused) == "quotas.transactions_max: at most 2 for shop, got: 3"
    assert send(broker, names[0], [b"b"], account=shop).error is None  # of one that is open
    assert send(broker, names[2], [b"a"], account=mill).error is None
    assert send(broker, names[3], [b"a"]).error is None
    decide(broker, names[1], "t/0", commit=False)
    name = begin(broker)
    assert send(broker, name, [b"c"], account=shop).error is None
    decide(broker, names[0], "t/0")
    decide(broker, name, "t/0")
    assert sorted(broker.consumer().payloads()) == [b"a", b"b", b"c"]


@pytest.mark.one_broker("looks into a broker")
def test_remembered_decisions_are_bounded(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_DECISIONS_MAX", 5)
    broker = make_broker()
    for number in range(20):
        name = begin(broker)
        send(broker, name, [b"%d" % number])
        decide(broker, name, "t/0")
    broker.settle_down()
    runtime = broker.broker.runtime(TOPIC)
    assert len(runtime.look(0, lambda place: place.engine.decisions).result(PATIENCE_SECONDS)) <= 6
    assert len(broker.consumer().payloads()) == 20


@pytest.mark.one_broker("looks into a broker")
def test_a_partition_that_came_with_growth_takes_part(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    begun = begin(broker, timeout_ms=1_000)
    broker.broker.alter_topic(TOPIC, {"partitions": 3})
    assert send(broker, begun, [b"a"], partition=2).error is None
    decide(broker, begun, "t/2")
    assert consumer.payloads() == [b"a"]
    left = begin(broker, timeout_ms=1_000)
    send(broker, left, [b"b"], partition=2)
    broker.advance(1_000)
    ends_down(broker, TOPIC)
    assert broker.broker.transactions.undecided(TOPIC) == []
    assert consumer.payloads() == []


def test_a_batch_that_goes_to_several_partitions_is_staged_in_all(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=3)
    consumer = broker.consumer()
    name = begin(broker)
    columns = {
        "payload": pa.array([b"%d" % n for n in range(6)], pa.binary()),
        "partition": pa.array([0, 1, 2, 0, 1, 2], pa.int32()),
    }
    assert write(broker, name, TOPIC, columns, "enqueue").all_statuses().tolist() == [0] * 6
    keyed = {
        "payload": pa.array([b"k%d" % n for n in range(6)], pa.binary()),
        "key": pa.array([f"key {n}" for n in range(6)]),
    }
    write(broker, name, TOPIC, keyed, "enqueue")
    broker.advance(1_000)
    assert consumer.payloads() == []
    decide(broker, name, "t/0", "t/1", "t/2")
    assert len(set(consumer.payloads())) == 12
