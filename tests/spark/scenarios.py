"""Programs of users on a Spark of several processes, in which something is killed.

Run by test_cluster.py, each in a process of its own: `python -m tests.spark.scenarios NAME ...`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import dejaqueue
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 40_000
PARTS = 6

Map = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def say(text: str) -> None:
    """A line for the log, with the time."""
    print(f"{time.perf_counter():.1f} {text}", flush=True)


def parent_of(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for(condition: Callable[[], bool], seconds: int = PATIENCE_SECONDS) -> None:
    """Return when it holds; it is another process that makes it so."""
    for _ in range(seconds * 50):
        if condition():
            return
        time.sleep(0.02)  # tidy: allow sleep, because another process has no bell to ring here
    raise AssertionError("waited for too long")


def kill_executor(url: str, topic: str, mark: Path, part: int = 1) -> Map:
    """In one task's first attempt: kill its executor when some of its rows are staged."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == part and not mark.exists():
            mark.touch()
            with dejaqueue.Client(url) as client:
                wait_for(lambda: client.counts(topic).get("staged", 0) > 0)
            # Worker, its daemon, the executor.
            os.kill(parent_of(os.getppid()), signal.SIGKILL)
            threading.Event().wait(PATIENCE_SECONDS)  # the worker may live on for a moment

    return run


def wait_for_rival(folder: Path) -> Map:
    """In the first attempt of task 0: go on only when Spark has begun a second one beside it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        (folder / f"{context.partitionId()}-{context.attemptNumber()}").touch()
        yield from batches
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            try:
                wait_for(lambda: (folder / "0-1").exists())
            except AssertionError:
                (folder / "no rival came").touch()  # a second attempt after this one is none
                raise

    return run


def table_of(spark: SparkSession) -> DataFrame:
    """Rows without keys, so that nothing but the transaction tells twice from once."""
    return spark.range(0, ROWS, 1, PARTS).selectExpr(
        "cast('p' || id as binary) payload", "4000000000000 + id due"
    )


def save(table: DataFrame, url: str, topic: str) -> None:
    writer = table.write.format("dejaq").option("url", url).option("topic", topic)
    writer.mode("append").save()


def cluster(url: str, folder: Path, master: str) -> None:
    """A job whose executor is killed, one of rivals, and a query whose executor is killed."""
    from dejaqueue.spark import register
    from tests.spark.conftest import start_spark

    fast = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.2",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.minTaskRuntime": "0ms",
        "spark.executor.memory": "512m",
    }
    say("begin")
    spark = start_spark(master, **fast)
    register(spark)
    table = table_of(spark)
    say("started")
    save(table.mapInArrow(wait_for_rival(folder), table.schema), url, "rivals")
    say("rivals are done")
    killer = kill_executor(url, "killed", folder / "killed")
    save(table.mapInArrow(killer, table.schema), url, "killed")
    say("the job whose executor was killed is done")
    stream(spark, url, folder, kill_executor(url, "stream", folder / "stream-killed"))
    say("so is the query")
    spark.stop()
    say("stopped")


def stream(spark: SparkSession, url: str, folder: Path, disturb: Map | None) -> None:
    """From the topic `source` to the topic `stream`, 500 rows a batch."""
    reader: Any = spark.readStream.format("dejaq").option("url", url).option("max.rows", 500)
    table = reader.schema("payload binary").load("source")
    if disturb is not None:
        table = table.mapInArrow(disturb, table.schema)
    writer: Any = table.writeStream.format("dejaq").option("url", url).option("topic", "stream")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def kill_driver(url: str, processes: list[int], number: int) -> Map:
    """In batch `number`: kill the driver's processes when rows of the batch are staged."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        epoch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        if epoch == number and context.partitionId() == 1:
            with dejaqueue.Client(url) as client:
                wait_for(lambda: client.counts("stream").get("staged", 0) > 0)
            for process in processes:
                os.kill(process, signal.SIGKILL)

    return run


def driver(url: str, folder: Path, master: str) -> None:
    """A query whose driver is killed in the second batch, the first time."""
    from dejaqueue.spark import register
    from tests.spark.conftest import start_spark

    spark = start_spark(master, **{"spark.executor.memory": "512m"})
    register(spark)
    is_second = (folder / "checkpoint").exists()
    gateway: Any = spark.sparkContext._gateway
    processes = [os.getpid(), gateway.proc.pid]
    stream(spark, url, folder, None if is_second else kill_driver(url, processes, 1))
    spark.stop()


if __name__ == "__main__":
    {"cluster": cluster, "driver": driver}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), sys.argv[4])
