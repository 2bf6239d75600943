"""How many rows a second go from Spark into a topic, and from a topic into Spark?

- `write`: a cached table of 100 B payloads, due ahead, is saved into a topic of two partitions:
  staged, durable, committed. `write_keys`: with a key in every row.
- `read`: all columns of such a topic; `read_columns`: id, due and payload alone.
- `stream_read`: a streaming query drains a topic in batches of 100,000 rows, id, due and payload.
- `write_ceiling`, `read_ceiling`: the same job of Spark with a sink that drops what it gets, and a
  source that has its batches ready: what Spark itself takes.

Spark runs with two threads in one process, and two of Python; the broker is on the same cores. The
JVM is warm: the first round is not counted. What counts is the median of the rounds; a ratio is the
median of the rounds' ratios to the ceiling.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.system import Plan

QUESTION = "spark"
UNIT = "rows/s"
CEILING_OF = {
    "write": "write_ceiling",
    "write_keys": "write_ceiling",
    "read": "read_ceiling",
    "read_columns": "read_columns_ceiling",
    "stream_read": "stream_read_ceiling",
}
PARTS = 4
PAYLOAD_BYTES = 100
NARROW = "id bigint, due bigint, payload binary"
BATCH_ROWS = 65_536
STREAM_ROWS = 100_000

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    missing = missing_part()
    if missing:
        return Outcome(left_out=[missing])
    system = DejaqSystem()
    system.start(plan.folder)
    session = start_spark()
    rates: dict[str, list[float]] = {}
    try:
        for number in range(plan.rounds + 1):
            for case, seconds in _round(session, system, plan.rows):
                rate = plan.rows / seconds
                if number or plan.quick:
                    rates.setdefault(case, []).append(rate)
                report(f"round {number}: {case}: {rate:,.0f} {UNIT}")
    finally:
        stop_spark(session)
        system.stop()
    outcome = Outcome(rows=rows_of(rates))
    outcome.spreads = {f"{_system(case)}/{case}": spread(values) for case, values in rates.items()}
    return outcome


def rows_of(rates: dict[str, list[float]]) -> list[Row]:
    """The rows of the rates of each round, by case."""
    rows = []
    for case, values in rates.items():
        ceiling = CEILING_OF.get(case)
        ratio = None
        if ceiling is not None:
            ratio = round(median(a / b for a, b in zip(values, rates[ceiling], strict=True)), 3)
        value = round(median(values), 1)
        rows.append(Row(QUESTION, _system(case), case, value, UNIT, ratio, ceiling))
    return rows


def _system(case: str) -> str:
    return "spark" if case.endswith("_ceiling") else "dejaq"


def missing_part() -> str:
    """What a measurement with Spark lacks here; "" = nothing."""
    if importlib.util.find_spec("pyspark") is None:
        return "spark: the Python package pyspark is not installed"
    if shutil.which("java") is None:
        return "spark: Java is not installed"
    return ""


def start_spark() -> Any:
    """A session with two threads, in which Python is this one."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    from pyspark.sql import SparkSession

    from dejaqueue.spark import register

    builder: Any = SparkSession.builder
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        # Where others work, too, a Python takes its time to start.
        "spark.python.authenticate.socketTimeout": "60s",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.master("local[2]").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    nothing, ready = _ceilings()
    session.dataSource.register(nothing)
    session.dataSource.register(ready)
    return session


def stop_spark(session: Any) -> None:
    """End the session and its JVM, so that what it used counts as ours."""
    from pyspark import SparkContext

    session.stop()
    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


def _round(session: Any, system: DejaqSystem, rows: int) -> Iterator[tuple[str, float]]:
    """Each case once, with its seconds."""
    start_ms = system.clock.now_ms() + 3_600_000
    table = _rows(session, rows, f"{start_ms} + id % 3600000").cache()
    assert table.selectExpr("max(length(payload))").collect()[0][0] == PAYLOAD_BYTES
    plain = table.drop("key")
    topic = system.new_topic(partitions=2)
    keyed_topic = system.new_topic(partitions=2)
    options = {"url": system.url, "topic": topic}
    yield "write_ceiling", _seconds(lambda: _save(plain, "dejaq_bench_nothing", {}))
    yield "write", _seconds(lambda: _save(plain, "dejaq", options))
    keyed = options | {"topic": keyed_topic}
    yield "write_keys", _seconds(lambda: _save(table, "dejaq", keyed))
    table.unpersist(blocking=True)
    ready = {"rows": str(rows)}
    yield "read_ceiling", _seconds(lambda: _read(session, "dejaq_bench_ready", ready, ""))
    yield "read", _seconds(lambda: _read(session, "dejaq", options, ""))
    narrow = NARROW
    yield (
        "read_columns_ceiling",
        _seconds(lambda: _read(session, "dejaq_bench_ready", ready, narrow)),
    )
    yield "read_columns", _seconds(lambda: _read(session, "dejaq", options, narrow))
    yield "stream_read_ceiling", _drain(session, "dejaq_bench_ready", ready, narrow)
    past = system.new_topic(partitions=2)
    due = _rows(session, rows, f"{system.clock.now_ms() - 60_000} - id").drop("key")
    _save(due, "dejaq", options | {"topic": past})
    drained = options | {"topic": past, "max.rows": str(STREAM_ROWS)}
    yield "stream_read", _drain(session, "dejaq", drained, narrow)
    for name in (topic, keyed_topic, past):
        system.client.delete_topic(name)


def _rows(session: Any, rows: int, due: str) -> Any:
    """A table with payloads that do not compress, as good as random: three hashes."""
    return session.range(0, rows, 1, PARTS).selectExpr(
        "unhex(concat(sha2(string(id), 512), sha2(string(id), 256), lpad(hex(id), 8, '0'))) "
        "payload",
        f"{due} due",
        "'order-' || lpad(id, 10, '0') key",
    )


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _save(table: Any, name: str, options: dict[str, str]) -> None:
    table.write.format(name).options(**options).mode("append").save()


def _read(session: Any, name: str, options: dict[str, str], schema: str) -> None:
    """Have Spark take every row, and do nothing with it."""
    reader = session.read.format(name).options(**options)
    table = (reader.schema(schema) if schema else reader).load()
    table.write.format("noop").mode("overwrite").save()


def _drain(session: Any, name: str, options: dict[str, str], schema: str) -> float:
    """Seconds of the batches of a query that reads all there is and keeps nothing."""
    folder = tempfile.mkdtemp(prefix="dejaq-bench-")
    try:
        reader = session.readStream.format(name).options(**options).schema(schema)
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took_ms = sum(batch["durationMs"]["triggerExecution"] for batch in query.recentProgress)
        return float(took_ms / 1000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ceilings() -> tuple[type, type]:
    """A sink that drops what it gets, and a source that has its batches ready."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    from dejaqueue.spark.columns import READ, schema_of

    class Dropping(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Ready(DataSourceReader):
        def __init__(self, schema: Any, rows: int) -> None:
            self._schema, self._rows = schema, rows

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(part) for part in range(2)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            from pyspark.sql.pandas.types import to_arrow_schema

            schema = to_arrow_schema(self._schema, timezone="UTC")
            batch = _ready_batch(schema)
            left = self._rows // 2
            while left > 0:
                yield batch.slice(0, left) if left < batch.num_rows else batch
                left -= batch.num_rows

    class ReadyStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
        """The rows in batches as large as those of DejaQ."""

        def __init__(self, schema: Any, rows: int) -> None:
            self._batches = Ready(schema, STREAM_ROWS)
            self._count = max(1, rows // STREAM_ROWS)

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"batch": 0}

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            pass

        def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
            return {"batch": min(start["batch"] + 1, self._count)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return self._batches.partitions() if start != end else []

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return self._batches.read(partition)

    class NothingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dejaq_bench_nothing"

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            return Dropping()

    class ReadySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dejaq_bench_ready"

        def schema(self) -> str:
            return schema_of((), READ)

        def reader(self, schema: Any) -> DataSourceReader:
            return Ready(schema, int(self.options["rows"]))

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return ReadyStream(schema, int(self.options["rows"]))

    return NothingSource, ReadySource


def _ready_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of what a read gives, in Spark's types."""
    rows = BATCH_ROWS
    columns = {
        "payload": pa.Array.from_buffers(
            pa.binary(),
            rows,
            [
                None,
                pa.py_buffer(
                    np.arange(0, (rows + 1) * PAYLOAD_BYTES, PAYLOAD_BYTES, dtype=np.int32)
                ),
                pa.py_buffer(os.urandom(PAYLOAD_BYTES) * rows),
            ],
        ),
        "state": pa.repeat(pa.scalar("scheduled"), rows),
        "topic": pa.repeat(pa.scalar("topic-1"), rows),
    }
    numbers = pa.array(range(rows), pa.int64())
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        if column is None and pa.types.is_integer(field.type) and field.name != "expires":
            column = numbers.cast(field.type)
        arrays.append(pa.nulls(rows, field.type) if column is None else column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
