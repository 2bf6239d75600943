"""Streaming write: the rows of an epoch of a query, exactly once.

Room: spark. Each attempt of a task stages a branch; the driver commits the epoch.
Holds: however often an epoch is written (a task that is tried again, a driver that was killed
before or after its commit and starts again from its checkpoint), its rows are there once.
See: broker/transactions/names.py for the broker's side; writer.py for batches;
docs/guides/spark.md.

Spark tells a sink's `write` nothing about the epoch, but its tasks carry it: as local properties.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dejaqueue.client.branch import begin
from dejaqueue.errors import InternalError
from dejaqueue.spark.columns import check_write
from dejaqueue.spark.options import Options
from dejaqueue.spark.writer import (
    TaskStaged,
    branch_name,
    check_summary,
    drop_refusals,
    keep_refusals,
    stage,
    summary,
)
from dejaqueue.spark.written import note

QUERY_PROPERTY = "sql.streaming.queryId"
EPOCH_PROPERTY = "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the epochs of a query into a topic."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_write(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        query, epoch = _query_and_epoch()
        core = self._options.client("spark-stream")
        try:
            of = {"query": query, "epoch": epoch}
            begun = begin(core, self._options.topic, self._options.timeout_ms, **of)
            if begun.is_committed:
                # Its rows would be refused now for the keys that they have themselves.
                staged = TaskStaged(branch_name(), is_repeat=True)
            else:
                staged = stage(self._options, core, begun.name, iterator)
        finally:
            core.close()
        staged.until_ms, staged.query, staged.transaction = begun.until_ms, query, begun.name
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Have the rows of an epoch count, unless they do already."""
        done = [message for message in messages if isinstance(message, TaskStaged)]
        if not done:
            return
        check_summary(self._options, done)
        is_repeat = any(message.is_repeat for message in done)
        core = self._options.client("spark-stream")
        try:
            count = core.call("describe_topic", {"name": self._options.topic})["partitions"]
            places = [f"{self._options.topic}/{number}" for number in range(count)]
            core.call(
                "commit_epoch",
                {
                    "topic": self._options.topic,
                    "query": done[0].query,
                    "epoch": batchId,
                    "participants": places,
                    "branches": [message.branch for message in done],
                    "until_ms": min(message.until_ms for message in done),
                },
            )
            if not is_repeat:
                note(core, self._options, summary(done), label=done[0].query, epoch=batchId)
        finally:
            core.close()
        if not is_repeat:
            keep_refusals(self._options, done, f"{done[0].query}-{batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Forget what was staged; the epoch may be written again."""
        core = self._options.client("spark-stream")
        try:
            for message in messages:
                if isinstance(message, TaskStaged):
                    name = f"{message.transaction}~{message.branch}"
                    body = {"transaction": name, "participants": message.staged.places}
                    core.call("abort_transaction", body)
        finally:
            core.close()
        drop_refusals(self._options, messages)


def _query_and_epoch() -> tuple[str, int]:
    """Which epoch of which query this task belongs to."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context else None
    epoch = context.getLocalProperty(EPOCH_PROPERTY) if context else None
    if not query or epoch is None:
        raise InternalError("Spark did not say which epoch of which query this is")
    return query, int(epoch)
