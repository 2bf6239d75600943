"""Covers: what can be asked of a scan, its columns, the size of its batches, rows that went.

Not covered: scans of topics of any kind and of filters (tests/rules/test_scan.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls import scan as scanning
from dejaqueue.broker.calls.scan import columns_of, parse, ranges, scan
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    EncryptionKeyMissing,
    JournalDamaged,
    Unavailable,
)
from dejaqueue.model import pack_id
from dejaqueue.schema.messages import SCAN, UNREAD
from tests.rules.broker_fixture import TOPIC, BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture()
    yield made
    made.stop()


def batches(fixture: BrokerFixture, **values: Any) -> Iterator[pa.RecordBatch]:
    topic = fixture.broker.runtime(TOPIC)
    return scan(topic, parse({"partition": 0} | values, topic.partitions, fixture.now_ms))


def rows(fixture: BrokerFixture, **values: Any) -> list[dict[str, Any]]:
    return [row for batch in batches(fixture, **values) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partition", None),
        ("partition", 1),
        ("first", -1),
        ("end", limits.SEQUENCE_MAX + 1),
        ("columns", "id"),
        ("columns", ["id", "colour"]),
        ("columns", "unread"),
        ("state", "sleeping"),
    ],
)
def test_a_bad_field_is_refused_by_name(fixture: BrokerFixture, field: str, value: Any) -> None:
    topic = fixture.broker.runtime(TOPIC)
    with pytest.raises(BadRequest) as caught:
        parse({"partition": 0, field: value}, topic.partitions, 0)
    assert caught.value.field == field


def test_columns_come_in_their_own_order__each_once() -> None:
    assert columns_of(None) == tuple(SCAN.names)
    wanted = columns_of(["payload", "id", "id"])
    assert wanted == ("id", "payload")
    assert columns_of([]) == ()
    assert columns_of(["unread", "id"], (*SCAN.names, UNREAD.name)) == ("id", "unread")


def test_what_a_message_does_not_have_is_null__also_where_others_have_it(
    fixture: BrokerFixture,
) -> None:
    now_ms = fixture.now_ms
    columns = {
        "payload": pa.array([b"a", b"b"], pa.binary()),
        "key": pa.array(["k", None]),
        "group": pa.array([None, "g"]),
        "tags": pa.array([["x", "y"], None], pa.list_(pa.utf8())),
        "headers": pa.array([None, [("n", "v")]], pa.map_(pa.utf8(), pa.utf8())),
        "expires": pa.array([now_ms + 50_000, None], pa.int64()),
        "priority": pa.array([7, 9], pa.uint16()),
    }
    assert fixture.write("enqueue", columns).error is None
    first, second = rows(fixture)
    assert (first["key"], first["group"], first["tags"], first["headers"]) == (
        "k",
        None,
        ["x", "y"],
        None,
    )
    assert (second["key"], second["group"], second["tags"]) == (None, "g", None)
    assert second["headers"] == [("n", "v")]
    assert (first["expires"], second["expires"]) == (now_ms + 50_000, None)
    assert (first["priority"], second["priority"], second["partition"]) == (7, 9, 0)
    assert (first["state"], second["id"]) == ("scheduled", pack_id(0, 1))


@pytest.mark.parametrize("columns", [["id"], ["id", "key"], ["state", "due"]])
def test_only_the_columns_that_are_asked_for_come(
    fixture: BrokerFixture, columns: list[str]
) -> None:
    fixture.send([b"a"], keys=["k"])
    [batch] = batches(fixture, columns=columns)
    assert set(batch.schema.names) == set(columns)


def test_batches_grow_until_they_are_as_large_as_they_should_be(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "BATCH_BYTES", 60_000)
    fixture.send([b"x" * 100] * 2_000)
    sizes = [batch.num_rows for batch in batches(fixture)]
    assert sum(sizes) == 2_000
    assert sizes[0] == scanning._FIRST_ROWS
    assert max(sizes) > sizes[0]
    assert all(size * 100 < 120_000 for size in sizes)


@pytest.mark.parametrize(
    ("size", "rows", "byte_count", "expected"),
    [
        (256, 256, 1 << 40, 1),
        (256, 256, 0, 2_048),
        (256, 256, 1, 2_048),
        (1 << 19, 1 << 19, 1, limits.SLAB_ROWS),
    ],
)
def test_the_next_batch_has_one_row_at_least__and_does_not_leap(
    size: int, rows: int, byte_count: int, expected: int
) -> None:
    assert scanning._next_size(size, rows, byte_count) == expected


def test_rows_that_were_finished_since_they_were_looked_up_are_left_out(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in the journal no more; a batch with nulls for payloads would be a lie."""
    ids = fixture.send([b"a", b"b", b"c"]).all_ids()
    topic = fixture.broker.runtime(TOPIC)
    ticket = parse({"partition": 0}, topic.partitions, fixture.now_ms)
    core = topic.partitions[0].core
    looked = topic.look(0, lambda core: scanning._look(topic, core, ticket, 0, 99)).result(10)[0]
    real = core.journal.read

    def without_the_second(locators: Any, columns: Any) -> pa.RecordBatch:
        found = real(locators, columns)
        arrays = [
            pa.array(
                [None if row == 1 else value for row, value in enumerate(one.to_pylist())]
            ).cast(one.type)
            for one in found.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, found.schema.names)

    monkeypatch.setattr(core.journal, "read", without_the_second)
    fixture.cancel([int(ids[1])])
    [batch] = scanning.in_batches(topic, looked, ticket)
    assert batch.column("payload").to_pylist() == [b"a", b"c"]
    narrow = parse({"partition": 0, "columns": ["id", "key"]}, topic.partitions, 0)
    [batch] = scanning.in_batches(topic, looked, narrow)
    assert batch.column("id").to_pylist() == [0, 2]


def test_ranges_say_where_messages_lie(fixture: BrokerFixture) -> None:
    reply = fixture.send([b"a", b"b", b"c"])
    fixture.cancel([int(reply.all_ids()[0])])
    [found] = ranges(fixture.broker.runtime(TOPIC))["partitions"]
    assert (found["partition"], found["end"], found["live"]) == (0, 3, 2)
    assert found["first"] in (0, 1)


class Apart:
    """A payload store in which the second payload of a batch is not to be had."""

    def __init__(self, error: DejaQError) -> None:
        self._error = error

    def read(self, column: pa.Array) -> tuple[pa.Array, dict[int, DejaQError]]:
        return column, {1: self._error}


@pytest.mark.parametrize("marks", [False, True])
def test_a_payload_that_is_missing_in_the_store_is_named_with_its_entry(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch, marks: bool
) -> None:
    fixture.send([b"a", b"b", b"c"])
    [position] = {row >> limits.ROW_BITS for row in locators(fixture)}
    core = fixture.broker.runtime(TOPIC).partitions[0].core
    monkeypatch.setattr(core, "payloads", Apart(JournalDamaged("payload x/1 is missing")))
    told = f"{TOPIC}/0, entry {position}: payload x/1 is missing"
    if not marks:
        with pytest.raises(JournalDamaged) as caught:
            rows(fixture)
        assert caught.value.told() == told
        return
    found = rows(fixture, columns=["id", "payload", "unread"])
    assert [(row["payload"], row["unread"]) for row in found] == [
        (b"a", None),
        (None, told),
        (b"c", None),
    ]


def locators(fixture: BrokerFixture) -> list[int]:
    topic = fixture.broker.runtime(TOPIC)
    ticket = parse({"partition": 0}, topic.partitions, fixture.now_ms)
    looked = topic.look(0, lambda core: scanning._look(topic, core, ticket, 0, 99)).result(10)[0]
    return [int(one) for one in looked.locators]


def test_a_payload_store_that_is_away_is_no_damage__and_so_never_left_out(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture.send([b"a", b"b"])
    core = fixture.broker.runtime(TOPIC).partitions[0].core
    monkeypatch.setattr(core, "payloads", Apart(Unavailable("the store is away", 1)))
    for columns in (None, ["payload", "unread"]):
        with pytest.raises(Unavailable):
            rows(fixture, columns=columns)


def test_a_key_that_is_missing_is_no_damage__and_so_never_left_out(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it would open would be left out."""
    fixture.send([b"a", b"b"])
    core = fixture.broker.runtime(TOPIC).partitions[0].core

    def read(*_: Any) -> pa.RecordBatch:
        raise EncryptionKeyMissing("key 3 is not there")

    monkeypatch.setattr(core.journal, "read", read)
    with pytest.raises(EncryptionKeyMissing):
        rows(fixture, columns=["payload", "unread"])
