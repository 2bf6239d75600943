"""Covers: schemas of users checked, and batches made what the other side expects."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.schema.messages import DEFAULT_PRIORITY, SCAN
from dejaqueue.spark.columns import HISTORY, READ, Shaper, check_read, check_write, fill, schema_of

PAYLOAD = StructField("payload", BinaryType())


def test_all_columns_of_a_scan_can_be_read() -> None:
    assert set(SCAN.names) | {"topic"} == set(READ)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (StructField("Due", LongType()), "column Due: due"),
        (StructField("colour", StringType()), "column colour: one of payload"),
        (StructField("due", StringType()), "type of column due: bigint or int or timestamp"),
        (StructField("payload", BinaryType()), "column payload: once, got: 'twice'"),
    ],
)
def test_a_wrong_column_is_named(column: StructField, text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check_write(StructType([PAYLOAD, column]))
    assert text in str(refused.value)


def test_only_known_columns_can_be_read() -> None:
    with pytest.raises(BadRequest, match="column colour"):
        check_read(StructType([StructField("colour", StringType())]))


def test_a_batch_gets_the_types_that_spark_expects() -> None:
    schema = StructType(
        [
            StructField("topic", StringType()),
            StructField("due", TimestampType()),
            StructField("priority", IntegerType()),
        ]
    )
    shaper = Shaper(schema, "t")
    assert shaper.wanted == ["due", "priority"]
    batch = pa.record_batch({"due": pa.array([5]), "priority": pa.array([7], pa.uint16())})
    shaped = shaper.shape(batch)
    assert shaped.schema.field("due").type == pa.timestamp("us", "UTC")
    assert shaped.column("due").cast(pa.int64()).to_pylist() == [5_000]
    assert shaped.column("priority").to_pylist() == [7]
    assert shaped.column("topic").to_pylist() == ["t"]


def test_times_are_timestamps_by_default__numbers_where_history_is_read() -> None:
    assert schema_of(("due", "expires", "id"), READ) == (
        "`due` timestamp, `expires` timestamp, `id` bigint"
    )
    assert schema_of(("due", "at_ms"), HISTORY) == "`due` bigint, `at_ms` bigint"
    check_read(StructType([StructField("due", LongType())]))


def test_the_first_and_the_last_instant_are_exact_to_the_millisecond() -> None:
    schema = StructType([StructField("due", TimestampType())])
    dues = [0, 1, limits.INSTANT_MS_MAX, None]
    shaped = Shaper(schema, "t").shape(pa.record_batch({"due": pa.array(dues, pa.int64())}))
    micros = shaped.column("due").cast(pa.int64()).to_pylist()
    assert micros == [0, 1_000, limits.INSTANT_MS_MAX * 1_000, None]


def test_rows_are_counted_where_only_the_topic_is_asked_for() -> None:
    shaper = Shaper(StructType([StructField("topic", StringType())]), "t")
    assert shaper.wanted == ["id"]
    assert shaper.shape(pa.record_batch({"id": [1, 2]})).to_pylist() == [{"topic": "t"}] * 2


def test_nulls_stand_for_now_and_the_usual_priority() -> None:
    batch = pa.record_batch(
        {
            "payload": [b"a", b"b"],
            "due": pa.array([None, 5], pa.int64()),
            "priority": pa.array([1, None], pa.int32()),
            "key": ["k", None],
        }
    )
    assert fill(batch, 99).to_pylist() == [
        {"payload": b"a", "due": 99, "priority": 1, "key": "k"},
        {"payload": b"b", "due": 5, "priority": DEFAULT_PRIORITY, "key": None},
    ]
    times = pa.record_batch({"due": pa.array([None], pa.timestamp("us", "UTC"))})
    assert fill(times, 99).column("due").cast(pa.int64()).to_pylist() == [99_000]


def test_a_payload_that_is_null_is_named_with_its_row() -> None:
    with pytest.raises(BadRequest, match="column payload: a value in every row, got: 'null in row"):
        fill(pa.record_batch({"payload": pa.array([b"a", None])}), 99)


def test_a_payload_read_as_text_has_a_mark_where_it_is_none__and_nulls_stay() -> None:
    shaper = Shaper(StructType([StructField("payload", StringType())]), "t")
    column = pa.array([b"left out", b"a", b"\xc3(", "ü".encode(), None], pa.binary())
    batch = pa.RecordBatch.from_arrays([column], ["payload"]).slice(1)
    shaped = shaper.shape(batch)
    assert shaped.schema.field("payload").type == pa.utf8()
    assert shaped.column("payload").to_pylist() == ["a", "\ufffd(", "ü", None]


def test_a_payload_read_as_bytes_is_what_was_sent() -> None:
    shaper = Shaper(StructType([PAYLOAD]), "t")
    batch = pa.RecordBatch.from_arrays([pa.array([b"\xc3("], pa.binary())], ["payload"])
    assert shaper.shape(batch).column("payload").to_pylist() == [b"\xc3("]
