"""Covers: what a streaming query writes is there once, whatever is done twice.

A query reads files of numbers, one a batch, so that a restarted one has the same batches to do.
Not covered: several Spark processes (test_cluster.py).
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dejaqueue.spark import writes
from dejaqueue.spark.refusals import status_counts
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS
from tests.spark.test_batch import failing_once, payloads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
ROWS = 500


def add_file(folder: Path, number: int, rows: int = ROWS) -> None:
    """A file of payloads; a query takes one a batch, in order."""
    folder.mkdir(exist_ok=True)
    lines = "".join(f"p{number}-{row}\n" for row in range(rows))
    (folder / f".{number}").write_text(lines)
    os.utime(folder / f".{number}", (number, number))
    (folder / f".{number}").rename(folder / f"{number}.txt")


def read(spark: SparkSession, folder: Path) -> DataFrame:
    files = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))
    return files.selectExpr(
        "cast(value as binary) payload", "4000000000000 due", "value as key"
    ).repartition(2)


def run(table: DataFrame, broker: BrokerProcess, topic: str, place: Path, **options: Any) -> None:
    """Do all batches that there are, and end."""
    writer = table.writeStream.format("dejaq").option("url", broker.url).option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
    query.awaitTermination(PATIENCE_SECONDS)
    assert not query.isActive


def expected(*numbers: int) -> Counter[bytes]:
    return Counter(f"p{n}-{row}".encode() for n in numbers for row in range(ROWS))


def test_batches_follow_each_other__a_restarted_query_goes_on(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    add_file(tmp_path / "in", 1)
    add_file(tmp_path / "in", 2)
    run(read(spark, tmp_path / "in"), broker, topic, tmp_path / "checkpoint")
    assert payloads(spark, broker, topic) == expected(1, 2)
    add_file(tmp_path / "in", 3)
    run(read(spark, tmp_path / "in"), broker, topic, tmp_path / "checkpoint")
    assert payloads(spark, broker, topic) == expected(1, 2, 3)
    epochs = writes(url=broker.url, topic=topic)
    assert [(one.epoch, one.counts) for one in epochs] == [(n, {"OK": ROWS}) for n in range(3)]
    assert len({one.label for one in epochs}) == 1  # the query's id


@pytest.mark.parametrize("with_key", [True, False])
def test_a_batch_that_was_committed_is_done_again_after_a_crash__its_rows_are_there_once(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    tmp_path: Path,
    with_key: bool,
) -> None:
    topic = make_topic()
    add_file(tmp_path / "in", 1)
    add_file(tmp_path / "in", 2)
    table = read(spark, tmp_path / "in")
    table = table if with_key else table.drop("key")
    run(table, broker, topic, tmp_path / "checkpoint")
    # As if the driver had been killed after the sink's commit, before it could note that.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run(table, broker, topic, tmp_path / "checkpoint")
    assert payloads(spark, broker, topic) == expected(1, 2)
    # Another query over the same files is another one: it writes them again, but for their keys.
    shutil.rmtree(tmp_path / "checkpoint")
    run(table, broker, topic, tmp_path / "checkpoint")
    times = 1 if with_key else 2
    assert set(payloads(spark, broker, topic).values()) == {times}


def test_a_batch_that_is_done_again_is_not_refused_for_its_own_keys(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    add_file(tmp_path / "in", 1)
    table = read(spark, tmp_path / "in")
    options = {"refusals": "fail", "refusals.path": str(tmp_path / "refused")}
    run(table, broker, topic, tmp_path / "checkpoint", **options)
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run(table, broker, topic, tmp_path / "checkpoint", **options)
    assert payloads(spark, broker, topic) == expected(1)
    assert status_counts(str(tmp_path / "refused")) == {"OK": ROWS}


def test_tasks_that_are_tried_again_change_nothing(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    tmp_path: Path,
    marks: Path,
) -> None:
    topic = make_topic()
    add_file(tmp_path / "in", 1)
    table = read(spark, tmp_path / "in")
    table = table.mapInArrow(failing_once(marks, "first"), table.schema)
    run(table, broker, topic, tmp_path / "checkpoint")
    assert {"0-0", "0-1", "1-0", "1-1"} <= set(os.listdir(marks))
    assert payloads(spark, broker, topic) == expected(1)


def test_an_epoch_that_failed_is_written_when_the_query_is_started_again(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    tmp_path: Path,
    marks: Path,
) -> None:
    topic = make_topic()
    add_file(tmp_path / "in", 1)
    table = read(spark, tmp_path / "in")

    def broken(batches: Any) -> Any:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            raise RuntimeError("planted")

    with pytest.raises(Exception, match="planted"):
        run(table.mapInArrow(broken, table.schema), broker, topic, tmp_path / "checkpoint")
    assert payloads(spark, broker, topic) == Counter()
    run(table, broker, topic, tmp_path / "checkpoint")
    assert payloads(spark, broker, topic) == expected(1)


def test_only_append(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic, tmp_path: Path
) -> None:
    add_file(tmp_path / "in", 1)
    table = read(spark, tmp_path / "in").groupBy("payload").count().select("payload")
    writer = table.writeStream.format("dejaq").option("url", broker.url)
    writer = writer.option("topic", make_topic()).outputMode("complete")
    with pytest.raises(Exception, match="append"):
        query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
        query.awaitTermination(PATIENCE_SECONDS)
