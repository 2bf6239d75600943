"""Covers: into which parts a batch goes, by partition, key, group or in turn, and who gets them.

Not covered: batches that are sent again around a raise (tests/rules/test_growing.py), and what
becomes of a part (tests/unit/broker/partition).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.partition.requests import EnqueueRequest
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.broker.topic.routing import Batch, Router
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import TopicKind
from dejaqueue.schema.checks import check_send
from dejaqueue.schema.row_fields import Fields
from dejaqueue.schema.send_rows import check_rows
from dejaqueue.wire.frames import Reply
from tests.rules.broker_fixture import TOPIC, BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture(partitions=3)
    yield made
    made.stop()


class Put:
    """Notes the requests instead of leaving them, and answers when it is told to."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, EnqueueRequest]] = []
        self.refused: set[int] = set()

    def __call__(self, partition: int, request: EnqueueRequest) -> None:
        if partition in self.refused:
            raise ResourceExhausted(f"partition {partition} is full", 50)
        self.parts.append((partition, request))

    def payloads(self) -> dict[int, list[bytes]]:
        return {
            partition: pa.array(request.columns.payloads).to_pylist()
            for partition, request in self.parts
        }


def batch_of(
    fixture: BrokerFixture, payloads: list[bytes], number: int = 1, producer: str = "", **more: Any
) -> Batch:
    columns = {"payload": pa.array(payloads, pa.binary())} | more
    topic = fixture.broker.topic(TOPIC)
    checked = check_send(pa.record_batch(columns), topic, fixture.now_ms)
    hashes = None if checked.keys is None else hash_column(text_column(checked.keys))
    return Batch(number, checked, producer, hashes, None, "all")


def routed(
    fixture: BrokerFixture, batch: Batch, put: Put | None = None, first: int = 0
) -> tuple[Put, list[Reply]]:
    put, replies = put or Put(), list[Reply]()
    Router(fixture.broker.runtime(TOPIC), first, put).send(batch, replies.append)
    return put, replies


def test_rows_go_to_the_partition_that_they_name(fixture: BrokerFixture) -> None:
    partitions = pa.array([2, 0, 2], pa.int32())
    put, _ = routed(fixture, batch_of(fixture, [b"a", b"b", b"c"], partition=partitions))
    assert put.payloads() == {0: [b"b"], 2: [b"a", b"c"]}


def test_a_batch_that_is_of_one_partition_is_not_copied(fixture: BrokerFixture) -> None:
    batch = batch_of(fixture, [b"a", b"b"], partition=pa.array([1, 1], pa.int32()))
    put, _ = routed(fixture, batch)
    [(partition, request)] = put.parts
    assert (partition, request.columns is batch.columns) == (1, True)


def test_one_key_has_one_partition__whatever_else_is_in_the_batch(fixture: BrokerFixture) -> None:
    homes: dict[str, set[int]] = {}
    for number in range(5):
        keys = [f"key {(number + row) % 12}" for row in range(12)]
        payloads = [key.encode() for key in keys]
        put, _ = routed(fixture, batch_of(fixture, payloads, number, key=pa.array(keys)))
        for partition, found in put.payloads().items():
            for payload in found:
                homes.setdefault(payload.decode(), set()).add(partition)
    assert {len(found) for found in homes.values()} == {1}
    assert set().union(*homes.values()) == {0, 1, 2}


def test_rows_without_a_key_go_in_turn__with_the_number_of_the_batch(
    fixture: BrokerFixture,
) -> None:
    """A batch that is sent again goes where it went before."""
    places = []
    for number in (1, 2, 3, 4, 1):
        put, _ = routed(fixture, batch_of(fixture, [b"a", b"b"], number), first=1)
        [(partition, request)] = put.parts
        assert request.columns.rows == 2
        places.append(partition)
    assert places == [2, 0, 1, 2, 2]


def test_of_a_batch_with_some_keys_the_other_rows_stay_together(fixture: BrokerFixture) -> None:
    keys = pa.array(["k1", None, "k2", None, "k3", None])
    put, _ = routed(fixture, batch_of(fixture, [b"%d" % n for n in range(6)], 4, key=keys))
    assert {b"1", b"3", b"5"} <= set(put.payloads()[4 % 3]), "where the turn of batch 4 is"


def test_a_group_has_one_partition__where_its_order_is_kept() -> None:
    fixture = BrokerFixture(partitions=3, kind="fair")
    try:
        groups = pa.array([f"g{row % 6}" for row in range(24)])
        payloads = [f"g{row % 6}".encode() for row in range(24)]
        put, _ = routed(fixture, batch_of(fixture, payloads, group=groups))
        together = fixture.broker.topic(TOPIC).groups_stay_together
        if together:
            homes = [set(found) for found in put.payloads().values()]
            assert sum(map(len, homes)) == len(set().union(*homes)) == 6
        else:
            assert len(put.parts) == 1
    finally:
        fixture.stop()


# --- replies


def test_several_parts_are_one_reply__in_the_order_of_the_batch(fixture: BrokerFixture) -> None:
    partitions = pa.array([2, 0, 2, 1], pa.int32())
    put, replies = routed(fixture, batch_of(fixture, [b"x"] * 4, partition=partitions))
    for partition, request in reversed(put.parts):
        assert replies == []
        request.reply(Reply(1, request.rows, first_id=100 * partition))
    [reply] = replies
    assert reply.all_ids().tolist() == [200, 0, 201, 100]


def test_a_partition_that_is_full_answers_for_its_rows__the_others_go_on(
    fixture: BrokerFixture,
) -> None:
    put = Put()
    put.refused = {1}
    partitions = pa.array([0, 1], pa.int32())
    put, replies = routed(fixture, batch_of(fixture, [b"a", b"b"], partition=partitions), put)
    assert put.payloads() == {0: [b"a"]}
    put.parts[0][1].reply(Reply(1, 1, first_id=7))
    [reply] = replies
    assert isinstance(reply.error, ResourceExhausted)


def test_a_batch_of_one_part_that_is_refused_was_not_sent_at_all(fixture: BrokerFixture) -> None:
    put = Put()
    put.refused = {0, 1, 2}
    with pytest.raises(ResourceExhausted):
        routed(fixture, batch_of(fixture, [b"a"]), put)


# --- a topic that grew meanwhile


def test_a_request_that_is_met_after_a_raise_is_routed_anew(fixture: BrokerFixture) -> None:
    """It was on its way while partitions were added: its keys may be at home elsewhere now."""
    keys = [f"key {number}" for number in range(20)]
    payloads = [key.encode() for key in keys]
    put, replies = routed(fixture, batch_of(fixture, payloads, key=pa.array(keys)))
    topic, before = fixture.broker.runtime(TOPIC), list(put.parts)
    for partition, request in before:
        assert request.goes_back is not None
        assert not request.goes_back(request, topic.partitions[partition].core)
    fixture.broker.alter_topic(TOPIC, {"partitions": 5})
    done = threading.Event()
    put.parts.clear()
    for partition, request in before:
        assert request.goes_back is not None
        assert request.goes_back(request, topic.partitions[partition].core)
    topic.again(done.set)
    assert done.wait(10)
    assert {partition for partition, _ in put.parts} == set(range(5))
    numbers: list[int] = []
    for partition, request in put.parts:
        numbers += [partition] * request.rows
        request.reply(Reply(1, request.rows, first_id=1_000 * partition))
    [reply] = replies
    found: Int64s = reply.all_ids()
    homes = topic.partitions.homes(hash_column(text_column(pa.array(keys))), 5)
    assert (found // 1_000).tolist() == homes.tolist()
    assert len(numbers) == 20


def test_a_batch_that_was_stored_before_a_raise_is_answered_as_it_was(
    fixture: BrokerFixture,
) -> None:
    keys = [f"key {number}" for number in range(10)]
    first = fixture.send([b"x"] * 10, keys=keys, producer="p", number=1)
    fixture.broker.alter_topic(TOPIC, {"partitions": 5})
    again = fixture.send([b"x"] * 10, keys=keys, producer="p", number=1)
    assert again.all_ids().tolist() == first.all_ids().tolist()
    assert fixture.counts()["enqueued"] == 10


def test_a_topic_that_is_closed_answers_what_would_have_to_be_routed_anew(
    fixture: BrokerFixture,
) -> None:
    put, replies = routed(fixture, batch_of(fixture, [b"a"]))
    topic = fixture.broker.runtime(TOPIC)
    topic.again(lambda: None)
    fixture.broker.alter_topic(TOPIC, {"partitions": 4})
    [(partition, request)] = put.parts
    core = topic.partitions[partition].core
    fixture.broker.stop()
    assert request.goes_back is not None
    assert request.goes_back(request, core)
    [reply] = replies
    assert "the topic is closed" in str(reply.error)


@pytest.mark.parametrize("field", ["keys", "groups"])
def test_a_message_alone_goes_where_it_would_go_among_others(field: str) -> None:
    fixture = BrokerFixture(partitions=3, kind=TopicKind.FAIR, group_in_flight_max=5)
    try:
        texts = [f"text-{number}" for number in range(9)] + [""]
        topic, router_of = fixture.broker.topic(TOPIC), fixture.broker.runtime(TOPIC)
        assert topic.groups_stay_together
        column = {field[:-1]: pa.array(texts)}
        together, _ = routed(fixture, batch_of(fixture, [b"x"] * len(texts), **column))
        homes = {
            text: partition
            for partition, request in together.parts
            for text in getattr(request.columns, field).to_pylist()
        }
        for text in texts:
            texts_of: dict[str, Any] = {field: [text.encode()]}
            fields = Fields(**texts_of)
            row = check_rows([b"x"], None, topic, fixture.now_ms, fields)
            put = Put()
            Router(router_of, 0, put).send(Batch(1, row, "", None, None, "all"), lambda _: None)
            assert [partition for partition, _ in put.parts] == [homes[text]]
    finally:
        fixture.stop()
