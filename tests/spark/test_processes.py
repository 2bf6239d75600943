"""Covers: Spark at `dejaq serve --processes 3`: tables and streams, also where one is killed.

The topics have a shard in each process, and Spark knows the shared address alone. Where one is
killed rows have no keys: nothing but transactions and claims tells what was done twice.
Not covered: processes of Spark that are killed (test_cluster.py); what the broker does with
branches on processes (tests/rules/test_rule_12_branches.py).
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import dejaqueue
from dejaqueue.spark import save as write
from dejaqueue.spark import writes
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_processes_kill import children_of, is_gone
from tests.patience import PATIENCE_SECONDS, until
from tests.spark.test_batch import load, save
from tests.spark.test_stream_read import fill, live, stream
from tests.spark.test_stream_write import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 3
ROWS = 6_000
BATCH = 1_500

pytestmark = [pytest.mark.crash]

Map = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of three processes."""
    folder = tmp_path_factory.mktemp("processes")
    made = BrokerProcess(folder / "data", folder / "log", server__processes=COUNT)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def client(processes: BrokerProcess) -> Iterator[dejaqueue.Client]:
    with dejaqueue.Client(processes.url, retry_ms_max=PATIENCE_SECONDS * 1_000) as made:
        yield made
        for topic in made.topics():
            made.delete_topic(topic.name)


def make(client: dejaqueue.Client, topic: str) -> str:
    """A topic of which each process serves two partitions."""
    client.create_topic(topic, partitions=2 * COUNT, spread=COUNT)
    until(lambda: len(servers(client, topic)) == COUNT, f"{topic} in all processes")
    return topic


def servers(client: dejaqueue.Client, topic: str) -> set[str]:
    """The processes that serve a topic."""
    return {one["node"] for one in client.cluster(topic)["topics"] if one["node"]}


def table_of(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 4).selectExpr(
        "cast('p' || id as binary) payload", "4000000000000 + id due"
    )


def payloads(spark: SparkSession, broker: BrokerProcess, topic: str) -> Counter[str]:
    table = load(spark, broker, topic, "payload string").toArrow()
    return Counter(table.column("payload").to_pylist())


def expected(rows: int = ROWS) -> Counter[str]:
    return Counter(f"p{number}" for number in range(rows))


def kill_one(broker: BrokerProcess, topic: str, marks: Path) -> Map:
    """Kill a process when rows of task 1 are staged: in each batch another one, once."""
    url, parent = broker.url, broker.pid

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId") or "0"
        yield from batches
        mark = marks / batch
        if context.partitionId() == 1 and not mark.exists():
            with dejaqueue.Client(url, retry_ms_max=PATIENCE_SECONDS * 1_000) as client:
                until(lambda: client.counts(topic).get("staged", 0) > 0, "rows are staged")
            until(lambda: len(children_of(parent)) == COUNT, "all processes are there")
            victim = children_of(parent)[0]  # the oldest: one that was not killed before
            mark.touch()
            os.kill(victim, signal.SIGKILL)
            until(lambda: is_gone(victim), "it has ended")

    return run


def test_tables_and_streams_go_through_all_processes__each_row_once(
    spark: SparkSession, processes: BrokerProcess, client: dejaqueue.Client, tmp_path: Path
) -> None:
    target, source, end = (make(client, name) for name in ("target", "source", "end"))
    rows = table_of(spark).selectExpr("*", "'k' || payload as key")
    assert write(rows, url=processes.url, topic=target) == {"OK": ROWS}
    assert payloads(spark, processes, target) == expected()
    assert all(one.scheduled for one in client.stats(target).partitions)
    fill(client, source, rows=ROWS)
    run(stream(spark, processes, source, max__rows=BATCH), processes, end, tmp_path / "checkpoint")
    assert live(client, source) == {}
    assert payloads(spark, processes, end) == expected()
    counts = [(one.epoch, one.counts) for one in writes(url=processes.url, topic=end)]
    assert counts == [(number, {"OK": BATCH}) for number in range(ROWS // BATCH)]
    assert client.transactions(target) == client.transactions(end) == []


def test_a_process_is_killed_while_a_table_is_written__each_row_is_there_once(
    spark: SparkSession,
    processes: BrokerProcess,
    client: dejaqueue.Client,
    marks: Path,
) -> None:
    topic = make(client, "killed")
    table = table_of(spark)
    killing = table.mapInArrow(kill_one(processes, topic, marks), table.schema)
    save(killing, processes, topic)
    assert os.listdir(marks) == ["0"]
    assert payloads(spark, processes, topic) == expected()
    until(lambda: "staged" not in live(client, topic), "nothing is staged any more")


def test_each_process_is_killed_once_while_a_stream_drains_a_topic__each_row_once(
    spark: SparkSession,
    processes: BrokerProcess,
    client: dejaqueue.Client,
    tmp_path: Path,
    marks: Path,
) -> None:
    source, end = make(client, "drained"), make(client, "filled")
    fill(client, source, rows=ROWS)
    table = stream(spark, processes, source, max__rows=BATCH)
    killing = table.mapInArrow(kill_one(processes, end, marks), table.schema)
    run(killing, processes, end, tmp_path / "checkpoint")
    assert len(os.listdir(marks)) >= COUNT
    assert live(client, source) == {}
    assert payloads(spark, processes, end) == expected()
    until(lambda: "staged" not in live(client, end), "nothing is staged any more")
