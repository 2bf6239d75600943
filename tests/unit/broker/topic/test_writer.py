"""Covers: a batch gets one reply whatever becomes of it, and rows go to the partition they name.

Not covered: what partitions do with them (tests/rules), a topic that grew (test_routing.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.access.senders import Sender
from dejaqueue.broker.topic.writer import Writer
from dejaqueue.errors import BadRequest, ResourceExhausted
from dejaqueue.model import RowStatus, pack_id
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.rules.broker_fixture import TOPIC, BrokerFixture

OK, NOT_FOUND = int(RowStatus.OK), int(RowStatus.NOT_FOUND)
LOST = int(RowStatus.LEASE_LOST)


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture(partitions=3)
    yield made
    made.stop()


def statuses(reply: Reply) -> list[int]:
    assert reply.error is None
    found: list[int] = reply.all_statuses().tolist()
    return found


def send_to(fixture: BrokerFixture, *partitions: int) -> list[int]:
    columns = {
        "payload": pa.array([b"x"] * len(partitions), pa.binary()),
        "partition": pa.array(partitions, pa.int32()),
    }
    reply = fixture.write("enqueue", columns)
    assert reply.error is None
    found: list[int] = reply.all_ids().tolist()
    return found


def test_the_reply_is_in_the_order_of_the_batch__over_all_partitions(
    fixture: BrokerFixture,
) -> None:
    assert send_to(fixture, 2, 0, 2, 1) == [pack_id(*p) for p in ((2, 0), (0, 0), (2, 1), (1, 0))]


def test_rows_that_are_named_by_id_go_to_its_partition__each_with_its_own_status(
    fixture: BrokerFixture,
) -> None:
    ids = send_to(fixture, 0, 1, 2)
    unknown = [pack_id(0, 99), pack_id(7, 0), 1 << 62]
    reply = fixture.cancel([ids[2], *unknown, ids[0]])
    assert statuses(reply) == [OK, *[NOT_FOUND] * 3, OK]
    assert fixture.counts()["scheduled"] == 1


def test_an_id_of_a_partition_that_is_not_here_names_no_message_of_another(
    fixture: BrokerFixture,
) -> None:
    """Its sequence is there in partition 0, but it is another message's."""
    send_to(fixture, 0, 1, 2)
    assert statuses(fixture.cancel([pack_id(5, 0)])) == [NOT_FOUND]
    assert fixture.counts()["scheduled"] == 3


def test_keys_name_rows_where_they_are_at_home(fixture: BrokerFixture) -> None:
    keys = [f"key {number}" for number in range(12)]
    fixture.send([b"x"] * 12, keys=keys)
    wanted = [keys[5], "nobody's", keys[0], keys[11]]
    reply = fixture.write("cancel", {"key": pa.array(wanted)})
    assert statuses(reply) == [OK, NOT_FOUND, OK, OK]
    assert fixture.counts()["scheduled"] == 9


def test_a_move_by_key_takes_its_columns_along(fixture: BrokerFixture) -> None:
    keys = [f"key {number}" for number in range(6)]
    fixture.send([b"x"] * 6, keys=keys)
    later = [fixture.now_ms + 1_000 * number for number in range(1, 7)]
    columns = {
        "key": pa.array(keys),
        "due": pa.array(later, pa.int64()),
        "priority": pa.array(range(6), pa.uint16()),
        "group": pa.array([f"g{number}" for number in range(6)]),
    }
    assert statuses(fixture.write("move", columns)) == [OK] * 6
    found = {row["key"]: (row["due"], row["priority"], row["group"]) for row in fixture.peek()}
    assert found == {key: (later[number], number, f"g{number}") for number, key in enumerate(keys)}


@pytest.mark.parametrize("op", ["ack", "nack", "extend"])
def test_settles_of_several_partitions_are_one_reply(fixture: BrokerFixture, op: str) -> None:
    ids = send_to(fixture, 0, 1, 2)
    fixture.consumer().take_all()
    columns = {
        "id": pa.array([ids[2], ids[0], ids[1]]),
        "attempts": pa.array([1, 9, 1], pa.uint16()),
    }
    assert statuses(fixture.write(op, columns, argument_ms=5_000 if op != "ack" else 0)) == [
        OK,
        LOST,
        OK,
    ]


@pytest.mark.parametrize(
    ("op", "columns"),
    [
        ("enqueue", {"payload": pa.array([b"x"], pa.binary()), "due": pa.array([-5])}),
        ("cancel", {"key": pa.array([None], pa.utf8())}),
        (
            "enqueue",
            {"payload": pa.array([b"x"], pa.binary()), "partition": pa.array([9], pa.int32())},
        ),
    ],
)
def test_what_is_wrong_with_a_batch_refuses_all_of_it__by_the_reply(
    fixture: BrokerFixture, op: str, columns: dict[str, Any]
) -> None:
    reply = fixture.write(op, columns)
    assert isinstance(reply.error, BadRequest)
    assert reply.rows == 1
    assert fixture.counts()["enqueued"] == 0


def test_a_schema_of_another_stream_is_refused_at_once(fixture: BrokerFixture) -> None:
    writer = fixture.broker.open_write(WriteStream(TOPIC, "ack"))
    with pytest.raises(BadRequest):
        writer.check_schema(pa.schema([("payload", pa.binary())]))


def test_a_stream_without_acks_gets_no_reply(fixture: BrokerFixture) -> None:
    writer = fixture.broker.open_write(WriteStream(TOPIC, "enqueue", acks="none"))
    replies: list[Reply] = []
    writer.submit(1, pa.record_batch({"payload": pa.array([b"x"], pa.binary())}), replies.append)
    writer.submit(2, pa.record_batch({"payload": pa.array([1])}), replies.append)
    fixture.settle_down()
    assert (replies, fixture.counts()["enqueued"]) == ([], 1)


def held_back(fixture: BrokerFixture, bytes_max: int) -> tuple[Writer, list[Reply]]:
    """A writer to partitions in which 10 bytes wait already."""
    topic = fixture.broker.runtime(TOPIC)
    for partition in topic.partitions:
        partition.inbox.byte_count += 10
    return Writer(WriteStream(TOPIC), topic, fixture.clock, lambda: bytes_max), []


def test_what_would_wait_too_long_is_refused_with_a_time_to_try_again(
    fixture: BrokerFixture,
) -> None:
    writer, replies = held_back(fixture, bytes_max=10)
    batch = pa.record_batch({"payload": pa.array([b"x"], pa.binary())})
    writer.submit(1, batch, replies.append)
    [reply] = replies
    assert isinstance(reply.error, ResourceExhausted)
    assert "wait to be written in partition" in str(reply.error)
    assert f"of topic {TOPIC}" in str(reply.error)


def test_a_batch_larger_than_the_bound_is_let_in_alone(fixture: BrokerFixture) -> None:
    """It would never be let in otherwise."""
    topic = fixture.broker.runtime(TOPIC)
    writer = Writer(WriteStream(TOPIC), topic, fixture.clock, lambda: 1)
    replies: list[Reply] = []
    writer.submit(1, pa.record_batch({"payload": pa.array([b"xx"], pa.binary())}), replies.append)
    fixture.settle_down()
    assert [reply.error for reply in replies] == [None]


def test_messages_are_those_of_who_opened_the_stream(fixture: BrokerFixture) -> None:
    fixture.write("enqueue", {"payload": pa.array([b"x"], pa.binary())}, sender=Sender("ada"))
    fixture.send([b"y"])
    topic = fixture.broker.runtime(TOPIC)
    owners: list[str] = []
    for number in topic.partitions.numbers:
        for words in topic.look(
            number,
            lambda core: [core.engine.senders(part) for part in core.engine.live_sequences()],
        ).result(10):
            if words is not None:
                owners += [words.names[index] for index in np.asarray(words.indices).tolist()]
    assert owners.count("ada") == 1
