"""Batch write: a table as a schedule, atomic for the whole job.

Room: spark. Begun and decided on the driver; each attempt of a task stages a branch of its own.
Holds: at job commit the rows of the attempts that Spark counts become visible together; those of
attempts that failed, were done twice, or of a job that was aborted, never were.
See: client/branch.py, broker/transactions/names.py; docs/adr/0008; docs/guides/spark.md.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dejaqueue.client.branch import Branch, Staged, begin
from dejaqueue.client.core import ClientCore
from dejaqueue.client.sending.inputs import conform
from dejaqueue.errors import DejaQError, Refused
from dejaqueue.model import RowStatus
from dejaqueue.spark import refusals
from dejaqueue.spark.columns import check_write, fill
from dejaqueue.spark.options import Options
from dejaqueue.spark.written import note

log = logging.getLogger("dejaqueue.spark")


@dataclass
class TaskStaged(WriterCommitMessage):
    """What an attempt of a task staged.

    Attributes:
        branch: its name.
        staged: rows, statuses, places.
        refusals: the file of its refused rows; "" = none.
        until_ms: the end of its time.
        transaction, query: of a stream: what it is a branch of, and whose epoch that is.
        is_repeat: of a stream: the epoch was committed before, and nothing was staged.
    """

    branch: str
    staged: Staged = field(default_factory=Staged)
    refusals: str = ""
    until_ms: int = 0
    transaction: str = ""
    query: str = ""
    is_repeat: bool = False


def stage(
    options: Options, core: ClientCore, transaction: str, batches: Iterator[pa.RecordBatch]
) -> TaskStaged:
    """Stage what a task has to write, on its executor."""
    branch = branch_name()
    hand = Branch(core, options.topic, f"{transaction}~{branch}")
    try:
        for batch in batches:
            if batch.num_rows:
                hand.send(conform(fill(batch, core.now_ms())))
        staged = hand.finish()
        path = refusals.write(options.refusals_path, branch, hand.refused)
    except BaseException:
        try:
            hand.abort()
        except DejaQError as wrong:
            log.warning("branch %s ends with its transaction: %s", branch, wrong)
        raise
    return TaskStaged(branch, staged, refusals=path)


def branch_name() -> str:
    """A name for this attempt of this task, which no other one ever has."""
    context = TaskContext.get()
    part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    return f"{part}.{attempt}.{uuid.uuid4().hex[:16]}"


def summary(messages: list[TaskStaged]) -> Counter[str]:
    """Rows by status."""
    counts: Counter[str] = Counter()
    for message in messages:
        counts.update({RowStatus(code).name: n for code, n in message.staged.counts.items()})
    return counts


def check_summary(options: Options, messages: list[TaskStaged]) -> None:
    """Say what was refused; raise Refused if that is a failure."""
    counts = summary(messages)
    refused = {name: count for name, count in counts.items() if name != "OK"}
    if not refused:
        log.info("topic %s: %d rows written", options.topic, counts["OK"])
        return
    shown = ", ".join(f"{count} {name}" for name, count in sorted(refused.items()))
    text = f"topic {options.topic}: {shown} of {counts.total()} rows"
    if options.fails_on_refusals:
        raise Refused(text)
    log.warning("%s were not written", text)


def keep_refusals(options: Options, done: list[TaskStaged], name: str) -> None:
    """Keep the refused rows of these attempts, and the counts of a job or epoch."""
    names = [message.refusals for message in done]
    refusals.keep(options.refusals_path, names, name, summary(done))


def drop_refusals(options: Options, messages: list[WriterCommitMessage | None]) -> None:
    """Forget the refused rows of attempts that do not count."""
    names = [message.refusals for message in messages if isinstance(message, TaskStaged)]
    refusals.drop(options.refusals_path, names)


class Writer(DataSourceArrowWriter):
    """Writes a table into a topic."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_write(schema)
        self._options = options
        core = options.client("spark-job")
        try:
            described = core.call("describe_topic", {"name": options.topic})
            self._partition_count = int(described["partitions"])
            self._transaction = begin(core, options.topic, options.timeout_ms).name
        finally:
            core.close()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        core = self._options.client("spark-task")
        try:
            return stage(self._options, core, self._transaction, iterator)
        finally:
            core.close()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Have the rows of these tasks count, and nothing else of the job."""
        done = [message for message in messages if isinstance(message, TaskStaged)]
        try:
            check_summary(self._options, done)
        except Refused:
            self._decide([], commit=False, counts=summary(done))
            self._keep(done)  # whoever is told of refusals wants to know of which
            raise
        self._decide(done, commit=True, counts=summary(done))
        self._keep(done)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Have nothing of the job count."""
        self._decide([], commit=False)
        drop_refusals(self._options, messages)

    def _keep(self, done: list[TaskStaged]) -> None:
        keep_refusals(self._options, done, self._transaction.replace("/", "."))

    def _decide(
        self, done: list[TaskStaged], *, commit: bool, counts: Counter[str] | None = None
    ) -> None:
        """Commit or abort; with `counts` the broker is told of what."""
        places = [f"{self._options.topic}/{number}" for number in range(self._partition_count)]
        places += [place for message in done for place in message.staged.places]
        body = {
            "transaction": self._transaction,
            "participants": list(dict.fromkeys(places)),
            "branches": [message.branch for message in done],
        }
        core = self._options.client("spark-job")
        try:
            core.call("commit_transaction" if commit else "abort_transaction", body)
            if counts is not None:
                note(core, self._options, counts, label=self._transaction, committed=commit)
        finally:
            core.close()
