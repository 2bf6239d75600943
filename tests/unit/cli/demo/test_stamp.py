"""When rows arrived, as Spark's workers note it. In a real query: tests/spark."""

from __future__ import annotations

import pyarrow as pa

from dejaqueue.cli.demo import stamp as module
from dejaqueue.cli.demo.stamp import SCHEMA, stamp
from dejaqueue.clock import SystemClock


def batch(*keys: str) -> pa.RecordBatch:
    payloads = pa.array([key.encode() for key in keys], pa.binary())
    return pa.record_batch({"payload": payloads, "more": pa.nulls(len(keys)), "key": list(keys)})


def test_each_row_of_a_batch_has_the_time_at_which_the_batch_was_taken() -> None:
    before_ms = SystemClock().now_ms()
    stamps = stamp(iter([batch("a", "b"), batch("c")]))
    first = next(stamps)
    between_ms = SystemClock().now_ms()
    second = next(stamps)
    after_ms = SystemClock().now_ms()
    assert first.to_pydict()["key"] == ["a", "b"]
    assert first.to_pydict()["payload"] == [b"a", b"b"]
    [first_ms] = set(first["received_ms"].to_pylist())
    [second_ms] = second["received_ms"].to_pylist()
    assert before_ms <= first_ms <= between_ms <= second_ms <= after_ms
    assert next(stamps, None) is None


def test_columns_and_types_are_those_that_spark_is_told() -> None:
    schema = next(stamp(iter([batch("a")]))).schema
    spelled = {"string": pa.utf8(), "binary": pa.binary(), "bigint": pa.int64()}
    said = [column.split() for column in module.SCHEMA.split(", ")]
    assert schema == pa.schema([(name, spelled[kind]) for name, kind in said])
    assert SCHEMA.startswith("key string")
