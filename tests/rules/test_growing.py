"""Growing: partitions are added while messages flow; keys and batches stay what they are."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from dejaqueue.broker.calls.peek import peek
from dejaqueue.broker.partition.requests import Request
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.broker.topic.route import key_partitions
from dejaqueue.broker.topic.writer import Writer
from dejaqueue.errors import BadRequest, ResourceExhausted
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import BrokerFixture
from tests.rules.conftest import MakeBroker

KEYS = [f"key-{number}" for number in range(40)]
SOON = 1_000_000


def grow(broker: BrokerFixture, partitions: int) -> None:
    broker.broker.alter_topic("t", {"partitions": partitions})


def send_keys(broker: BrokerFixture, keys: list[str], **stream: object) -> list[int]:
    dues = [broker.now_ms + SOON] * len(keys)
    reply = broker.send([key.encode() for key in keys], dues, keys, **stream)
    assert reply.error is None, reply.error
    statuses: list[int] = reply.all_statuses().tolist()
    return statuses


@pytest.mark.one_broker("a topic in shards has as many partitions in each")
def test_partitions_are_never_taken_away(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=3)
    with pytest.raises(BadRequest, match="topic.partitions: at least 3, what it has"):
        grow(broker, 2)


@pytest.mark.one_broker("looks into a broker")
@pytest.mark.parametrize("counts", [(1, 4), (2, 3, 7), (1, 2, 4, 16)])
def test_a_key_stays_unique_and_is_found(on_files: MakeBroker, counts: tuple[int, ...]) -> None:
    broker = on_files(partitions=counts[0])
    for place, count in enumerate(counts):
        if place:
            grow(broker, count)
        assert set(send_keys(broker, KEYS[: 10 * (place + 1)])[10 * place :]) == {RowStatus.OK}
    broker.restart()
    have = 10 * len(counts)
    assert send_keys(broker, KEYS[:have]) == [RowStatus.DUPLICATE] * have
    runtime = broker.broker.runtime("t")
    assert peek(runtime, {"keys": KEYS[:have]}, broker.now_ms).num_rows == have
    named = {"key": pa.array(KEYS[:have]), "due": pa.array([broker.now_ms] * have)}
    assert not broker.write("move", named).all_statuses().any()
    assert not broker.write("cancel", {"key": pa.array(KEYS[:have])}).all_statuses().any()
    assert send_keys(broker, KEYS) == [RowStatus.OK] * len(KEYS)


@pytest.mark.one_process("looks into a broker")
def test_a_topic_grows_by_itself_when_an_instant_is_hot(on_files: MakeBroker) -> None:
    """And only then, and not beyond what the settings allow."""
    few = {"partition_rows_per_s": 100, "auto_partitions_max": 3}
    broker = on_files(auto_partitions=True, dispatch=few)
    noon = broker.now_ms + 600_000
    homes: set[int] = set()

    def send(count: int, spread_ms: int) -> None:
        dues = [noon + place * spread_ms for place in range(count)]
        reply = broker.send([b"x"] * count, dues)
        assert reply.error is None
        homes.add(int(reply.all_ids()[0]) >> 47)

    def count() -> int:
        broker.advance(3_000)
        broker.settle_down()
        for thread in threading.enumerate():
            if thread.name == "dejaq-grow":
                thread.join(PATIENCE_SECONDS)
        return broker.broker.topic("t").partitions

    send(1_000, 20)  # 50 in a second
    assert count() == 1
    send(150, 0)
    assert count() == 2
    send(10_000, 0)
    assert count() == 3
    for _ in range(3):
        send(10, 0)
    assert homes == {0, 1, 2}
    broker.restart()
    assert broker.broker.topic("t").partitions == 3
    known = broker.broker.topic("t")
    asked = replace(known, partitions=1)
    assert broker.broker.create_topic(asked, exist_ok=True) == known


@pytest.mark.one_broker("looks into a broker")
def test_replace_works_across_a_raise(make_broker: MakeBroker) -> None:
    broker = make_broker(on_duplicate="replace")
    send_keys(broker, KEYS)
    grow(broker, 5)
    for _ in range(3):
        assert send_keys(broker, KEYS) == [RowStatus.OK] * len(KEYS)
    assert peek(broker.broker.runtime("t"), {"keys": KEYS}, broker.now_ms).num_rows == len(KEYS)
    consumer = broker.consumer()
    broker.advance(SOON + 1)
    assert sorted(consumer.payloads()) == sorted(key.encode() for key in KEYS)


@pytest.mark.one_broker("a topic in shards has as many partitions in each")
def test_a_batch_sent_again_after_a_raise_is_recognised(on_files: MakeBroker) -> None:
    broker = on_files(partitions=2)
    sent = {n: broker.send([b"x", b"y"], producer="p", number=n).all_ids() for n in range(1, 7)}
    keyed = broker.send([b"k"] * 9, [broker.now_ms] * 9, KEYS[:9], producer="p", number=7)
    grow(broker, 5)
    broker.restart()
    for number, ids in sent.items():
        assert (broker.send([b"x", b"y"], producer="p", number=number).all_ids() == ids).all()
    again = broker.send([b"k"] * 9, [broker.now_ms] * 9, KEYS[:9], producer="p", number=7)
    assert (again.all_ids() == keyed.all_ids()).all()
    assert not again.all_statuses().any()


@pytest.mark.one_broker("a topic in shards has as many partitions in each")
def test_a_batch_sent_again_is_not_taken_for_others_of_as_many_rows(on_files: MakeBroker) -> None:
    """Its parts were told by their sizes, and another number of partitions may give the same."""

    def sizes(keys: list[str], count: int) -> list[list[int]]:
        homes = key_partitions(hash_column(text_column(pa.array(keys))), count).tolist()
        return [[row for row, home in enumerate(homes) if home == place] for place in range(3)]

    for turn in range(1_000):
        keys = [f"{turn}-{row}" for row in range(12)]
        before, after = sizes(keys, 3), sizes(keys, 4)
        if any(a and a != b and len(a) == len(b) for a, b in zip(before, after, strict=True)):
            break
    broker = on_files(partitions=3)
    dues = [broker.now_ms + SOON] * 12
    first = broker.send([key.encode() for key in keys], dues, keys, producer="p", number=5)
    grow(broker, 4)
    again = broker.send([key.encode() for key in keys], dues, keys, producer="p", number=5)
    assert again.error is None, again.error
    assert again.all_ids().tolist() == first.all_ids().tolist()
    assert broker.counts()["scheduled"] == 12
    others = [f"other-{row}" for row in range(12)]
    second = broker.send([b"x"] * 12, dues, others, producer="p", number=6)
    grow(broker, 5)
    broker.restart()
    for number, names, known in ((5, keys, first), (6, others, second)):
        again = broker.send([b"x"] * 12, dues, names, producer="p", number=number)
        assert again.all_ids().tolist() == known.all_ids().tolist()


def keys_by_homes(old: int, new: int) -> list[str]:
    """A key for each pair of homes, one by each number of partitions; those that move."""
    found: dict[tuple[int, int], str] = {}
    for number in range(1_000):
        hashes = hash_column(text_column(pa.array([f"k{number}"])))
        homes = tuple(int(key_partitions(hashes, count)[0]) for count in (old, new))
        if homes[0] != homes[1]:
            found.setdefault((homes[0], homes[1]), f"k{number}")
    return [found[homes] for homes in sorted(found)]


@pytest.mark.one_broker("a topic in shards has as many partitions in each")
@pytest.mark.parametrize("lost", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("grows_again", [False, True])
def test_a_batch_is_there_once__keys_lived_in_an_older_home(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch, lost: int | None, grows_again: bool
) -> None:
    """They are gone when it is sent again, so that it would be split in another way; and at the
    first sending one of the partitions took nothing."""
    broker = on_files(partitions=3, on_duplicate="replace")
    keys = keys_by_homes(3, 4)
    send_keys(broker, keys[::2])
    grow(broker, 4)
    batch = [*keys, "", "", *(f"new-{number}" for number in range(20))]
    dues, payloads = [broker.now_ms + SOON] * len(batch), [b"%d" % n for n in range(len(batch))]

    def send() -> Reply:
        return broker.send(payloads, dues, batch, producer="p", number=5)

    with monkeypatch.context() as patch:
        inner = Writer._put

        def put(self: Writer, partition: int, request: Request) -> None:
            if partition == lost:
                raise ResourceExhausted("no room", 50)
            inner(self, partition, request)

        patch.setattr(Writer, "_put", put)
        first = send()
    assert (first.error is None) == (lost is None)
    stored = [row for row in broker.peek(limit=1_000) if row["payload"].isdigit()]
    assert (lost is None) == (len(stored) == len(batch))
    gone = [row["key"] for row in stored if row["key"] in keys]
    broker.write("cancel", {"key": pa.array(keys)})  # some are of before, and were not replaced
    if grows_again:
        grow(broker, 5)
    broker.restart()
    second = send()
    assert second.error is None, second.error
    assert not second.all_statuses().any()
    ids_of = {int(row["payload"]): row["id"] for row in stored}
    assert all(second.all_ids()[row] == number for row, number in ids_of.items())
    assert len(set(second.all_ids().tolist())) == len(batch)
    assert broker.counts()["scheduled"] == len(batch) - len(gone)
    third = send()
    assert third.all_ids().tolist() == second.all_ids().tolist()
    other = broker.send([b"x"] * 3, dues[:3], batch[:3], producer="p", number=5)
    assert isinstance(other.error, BadRequest)
    assert "other rows were sent with this number before" in str(other.error)


def test_consumers_get_from_new_partitions_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker()
    consumer = broker.consumer()
    grow(broker, 4)
    for number in range(8):
        broker.send([b"%d" % number], producer="p", number=number)
    got = consumer.take_all()
    assert {batch.partition for batch in got} == {0, 1, 2, 3}
    for batch in got:
        assert consumer.ack(batch).error is None


def test_an_exclusive_topic_shares_its_new_partitions(make_broker: MakeBroker) -> None:
    broker = make_broker(assignment="exclusive")
    one, two = broker.consumer(consumer="one"), broker.consumer(consumer="two")
    grow(broker, 4)
    for number in range(8):
        broker.send([b"%d" % number], producer="p", number=number)
    assert {got.partition for got in one.take_all()} == {0, 1}
    assert {got.partition for got in two.take_all()} == {2, 3}


def test_many_threads_send_the_same_keys_while_the_topic_grows(make_broker: MakeBroker) -> None:
    broker = make_broker()
    accepted: list[list[int]] = []

    def send() -> None:
        mine = [0] * len(KEYS)
        for start in range(0, len(KEYS), 4):
            statuses = send_keys(broker, KEYS[start : start + 4])
            mine[start : start + 4] = [status == RowStatus.OK for status in statuses]
        accepted.append(mine)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for count in (2, 3, 8):
        grow(broker, count)
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(accepted) == 4
    assert [sum(column) for column in zip(*accepted, strict=True)] == [1] * len(KEYS)
