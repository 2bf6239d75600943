"""Stretches of a batch read, planned and read in this process. By Spark's tasks: tests/spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from dejaqueue import Client, limits
from dejaqueue.errors import Unavailable
from dejaqueue.spark.options import Options
from dejaqueue.spark.reader import FilteringReader, Stretch
from tests.integration.access_fixture import running
from tests.unit.client.fake_transport import FakeTransport

SLAB = limits.SLAB_ROWS
SCHEMA = StructType([StructField("id", LongType()), StructField("payload", BinaryType())])


class AwayAtFirst(FakeTransport):
    """The broker is just being taken over when it is asked: that is no reason for a job to fail."""

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        if self.calls:
            return super().action(name, body)
        self.calls.append((name, body))
        away: Future[dict[str, Any]] = Future()
        away.set_exception(Unavailable("nobody answers", 1))
        return away


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where a broker's partitions begin and end; the test fills it."""
    places: list[tuple[int, int]] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        assert body == {"name": "t"}
        parts = [{"partition": n, "first": a, "end": b} for n, (a, b) in enumerate(places)]
        return {"partitions": parts}

    def transport(self: Options) -> FakeTransport:
        return AwayAtFirst(actions={"scan_ranges": answer})

    monkeypatch.setattr(Options, "transport", transport)
    return places


def planned(*filters: Any, **options: str) -> list[dict[str, Any]]:
    reader = FilteringReader(Options.of({"topic": "t", **options}), SCHEMA)
    list(reader.pushFilters(list(filters)))
    return [cast(Stretch, one).ticket for one in reader.partitions()]


def edges(tickets: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(one["partition"], one["first"], one["end"]) for one in tickets]


def test_stretches_touch__and_are_whole_slabs_in_between(ranges: list[tuple[int, int]]) -> None:
    ranges += [(5, 3 * SLAB + 1), (0, 0), (SLAB, SLAB + 1)]
    found = edges(planned(**{"rows.per.partition": "1"}))
    assert found == [
        (0, 5, SLAB),
        (0, SLAB, 2 * SLAB),
        (0, 2 * SLAB, 3 * SLAB),
        (0, 3 * SLAB, 3 * SLAB + 1),
        (2, SLAB, SLAB + 1),
    ]


def test_rows_are_shared_out_evenly(ranges: list[tuple[int, int]]) -> None:
    ranges += [(0, 10 * SLAB)]
    assert edges(planned(**{"rows.per.partition": str(9 * SLAB)})) == [
        (0, 0, 5 * SLAB),
        (0, 5 * SLAB, 10 * SLAB),
    ]
    assert len(planned(**{"rows.per.partition": str(10 * SLAB)})) == 1


def test_what_the_broker_can_filter_is_in_every_ticket(ranges: list[tuple[int, int]]) -> None:
    ranges += [(0, 2 * SLAB)]
    tickets = planned(GreaterThanOrEqual(("due",), 700), **{"rows.per.partition": "1"})
    assert [ticket["due_from"] for ticket in tickets] == [700, 700]


def test_only_partitions_that_can_have_it_are_read(ranges: list[tuple[int, int]]) -> None:
    ranges += [(0, 9)] * 3
    assert edges(planned(In(("partition",), (0, 2)))) == [(0, 0, 9), (2, 0, 9)]
    mine = 2 << limits.SEQUENCE_BITS
    tickets = planned(In(("id",), (mine + 7, 3, mine + 5)))
    named = [(ticket["partition"], ticket["ids"]) for ticket in tickets]
    assert named == [(0, [3]), (2, [mine + 5, mine + 7])]
    assert all("first" not in ticket for ticket in tickets)


def test_a_key_is_looked_for_in_every_partition_without_reading_it_through(
    ranges: list[tuple[int, int]],
) -> None:
    ranges += [(0, 9 * SLAB)] * 2
    tickets = planned(EqualTo(("key",), "k"), **{"rows.per.partition": "1"})
    assert [(one["partition"], one["keys"], "end" in one) for one in tickets] == [
        (0, ["k"], False),
        (1, ["k"], False),
    ]


def test_a_stretch_travels_to_another_process_and_is_read_there() -> None:
    schema = StructType([StructField("topic", StringType()), *SCHEMA])
    with running() as site:
        options = Options.of({"topic": "t", "url": site.flight.url})
        with Client(site.flight.url) as client:
            client.create_topic("t", partitions=2)
            table = {"payload": [b"a", b"b", b"c"], "due": [4_000_000_000_000] * 3}
            table["partition"] = pa.array([0, 0, 1], pa.int32())
            client.send_batch("t", pa.table(table)).raise_for_status()
        reader = FilteringReader(options, schema)
        stretches = reader.partitions()
        there = pickle.loads(pickle.dumps((reader, stretches)))
        rows = [
            row
            for stretch in there[1]
            for batch in there[0].read(stretch)
            for row in batch.to_pylist()
        ]
    assert [row["payload"] for row in rows] == [b"a", b"b", b"c"]
    assert {row["topic"] for row in rows} == {"t"}
    assert rows[2]["id"] == 1 << limits.SEQUENCE_BITS


def test_where_there_is_nothing_spark_asks_for_nothing() -> None:
    """Of a plan without partitions Spark makes one of its own."""
    reader = FilteringReader(Options.of({"topic": "t", "url": "dejaq://127.0.0.1:1"}), SCHEMA)
    assert list(reader.read(InputPartition(0))) == []


def marked(first: int, *reasons: str | None) -> pa.RecordBatch:
    """A batch of a scan whose damaged rows are marked, with ids from `first` on."""
    ids = pa.array(range(first, first + len(reasons)))
    payloads = pa.array([None if one else b"x" for one in reasons], pa.binary())
    arrays = [ids, payloads, pa.array(reasons, pa.utf8())]
    return pa.RecordBatch.from_arrays(arrays, names=["id", "payload", "unread"])


def test_damaged_messages_are_left_out_if_asked_for__and_the_log_says_how_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[dict[str, Any]] = []
    batches = [marked(0, None), marked(1, None, "t/2, entry 5: rot", None), marked(4, "more rot")]

    def scan(self: Options, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        asked.append(ticket)
        yield from batches

    monkeypatch.setattr(Options, "scan", scan)
    narrow = StructType([StructField("payload", BinaryType())])
    reader = FilteringReader(Options.of({"topic": "t", "mode": "DROPMALFORMED"}), narrow)
    found = list(reader.read(Stretch({"topic": "t", "partition": 2})))
    assert [batch.num_rows for batch in found] == [1, 2, 0]
    assert {name for batch in found for name in batch.schema.names} == {"payload"}
    assert asked == [{"topic": "t", "partition": 2, "columns": ["payload", "id", "unread"]}]
    assert [record.getMessage() for record in caplog.records] == [
        "topic t, partition 2: 2 damaged messages are left out, the first of them "
        "2, t/2, entry 5: rot"
    ]


def test_where_nothing_is_damaged_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Options, "scan", lambda *_: iter([marked(0, None, None)]))
    reader = FilteringReader(Options.of({"topic": "t", "mode": "DROPMALFORMED"}), SCHEMA)
    [batch] = reader.read(Stretch({"topic": "t", "partition": 0}))
    assert batch.num_rows == 2
    assert not caplog.records


def test_who_ends_a_read_early_is_told_of_what_was_left_out_by_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        Options, "scan", lambda *_: iter([marked(0, "rot", None), marked(2, "rot")])
    )
    reader = FilteringReader(Options.of({"topic": "t", "mode": "DROPMALFORMED"}), SCHEMA)
    read = reader.read(Stretch({"topic": "t", "partition": 0}))
    next(read)
    read.close()  # type: ignore[attr-defined]
    assert "1 damaged messages are left out, the first of them 0, rot" in caplog.text
