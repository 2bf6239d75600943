"""Covers: what a streaming query reads, whatever is done twice or breaks off.

Not covered: what a claim is (tests/rules/test_claims.py).
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS
from tests.spark.scenarios import wait_for
from tests.spark.test_batch import failing_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
ROWS = 5_000
PAST_MS = 1_600_000_000_000


def fill(client: dejaqueue.Client, topic: str, first: int = 0, rows: int = ROWS) -> None:
    """Messages that are due, in all partitions alike."""
    numbers = range(first, first + rows)
    partitions = client.topic(topic).partitions
    table = {
        "payload": [b"p%d" % n for n in numbers],
        "due": [PAST_MS + n for n in numbers],
        "partition": pa.array([n % partitions for n in numbers], pa.int32()),
    }
    client.send_batch(topic, pa.table(table)).raise_for_status()


def stream(spark: SparkSession, broker: BrokerProcess, topic: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("dejaq").option("url", broker.url).schema("payload string")
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load(topic)


def drain(table: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Write what is due into files, and end; the progress of each batch."""
    writer = table.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(PATIENCE_SECONDS)
    assert not query.isActive
    return [json.loads(one.json) for one in query.recentProgress]


def found(folder: Path) -> Counter[str]:
    # What Spark counts as written, by its own log of files.
    files: list[str] = []
    for log in sorted((folder / "out" / "_spark_metadata").iterdir()):
        if log.name[0] != ".":
            files += [json.loads(line)["path"] for line in log.read_text().splitlines()[1:]]
    tables = [parquet.read_table(name.removeprefix("file://")) for name in files]
    return Counter(value for table in tables for value in table.column("payload").to_pylist())


def expected(rows: int = ROWS) -> Counter[str]:
    return Counter(f"p{number}" for number in range(rows))


def live(client: dejaqueue.Client, topic: str) -> dict[str, int]:
    return {name: count for name, count in client.counts(topic).items() if count}


def test_what_is_due_is_drained_in_batches__and_acked(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    fill(client, topic)
    client.send(topic, b"future", due=4_000_000_000_000)
    progress = drain(stream(spark, broker, topic, max__rows=2_000), tmp_path)
    assert found(tmp_path) == expected()
    assert [batch["numInputRows"] for batch in progress if batch["numInputRows"]] == [
        2_000,
        2_000,
        1_000,
    ]
    assert live(client, topic) == {"scheduled": 1}
    fill(client, topic, ROWS, 100)
    drain(stream(spark, broker, topic), tmp_path)
    assert found(tmp_path) == expected(ROWS + 100)
    assert live(client, topic) == {"scheduled": 1}


def test_rows_tell_when_they_became_due__and_come_in_that_order(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=1)
    dues = [PAST_MS + (7 * n) % 100 for n in range(100)]
    client.send_batch(topic, pa.table({"payload": [b""] * 100, "due": dues}))
    reader = spark.readStream.format("dejaq").option("url", broker.url).schema("due bigint")
    drain(reader.load(topic), tmp_path)
    [file] = (tmp_path / "out").glob("*.parquet")
    assert parquet.read_table(file)["due"].to_pylist() == sorted(dues)


def test_a_batch_that_failed_is_read_again__the_same_rows(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
    marks: Path,
) -> None:
    topic = make_topic(partitions=4)
    fill(client, topic)
    table = stream(spark, broker, topic)
    with pytest.raises(Exception, match="planted"):
        drain(table.mapInArrow(failing_once(marks, "always"), table.schema), tmp_path)
    assert live(client, topic) == {"leased": ROWS}
    assert found_nothing(tmp_path)
    fill(client, topic, ROWS, 500)  # is not part of the batch that is done again
    progress = drain(table, tmp_path)
    assert progress[0]["numInputRows"] == ROWS
    assert found(tmp_path) == expected(ROWS + 500)
    assert live(client, topic) == {}


def found_nothing(folder: Path) -> bool:
    log = folder / "out" / "_spark_metadata"
    return not log.exists() or not [name for name in os.listdir(log) if name[0] != "."]


def test_tasks_that_are_tried_again_read_the_same(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
    marks: Path,
) -> None:
    topic = make_topic()
    fill(client, topic)
    table = stream(spark, broker, topic)
    drain(table.mapInArrow(failing_once(marks, "first"), table.schema), tmp_path)
    assert {"0-0", "0-1"} <= set(os.listdir(marks))
    assert found(tmp_path) == expected()
    assert live(client, topic) == {}


def test_a_batch_that_was_done_but_not_noted_is_done_again(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    fill(client, topic)
    table = stream(spark, broker, topic, max__rows=ROWS, lost__claims="skip")
    drain(table, tmp_path)
    # As if the driver had been killed after the sink's commit, before it could note that. Its
    # claims were acked by now; the sink knows the batch.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    drain(table, tmp_path)
    assert found(tmp_path) == expected()


def test_a_claim_that_returned_fails_the_query_and_says_so(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
    marks: Path,
) -> None:
    topic = make_topic(partitions=4)
    fill(client, topic)
    table = stream(spark, broker, topic)
    with pytest.raises(Exception, match="planted"):
        drain(table.mapInArrow(failing_once(marks, "always"), table.schema), tmp_path)
    [offsets] = [p for p in (tmp_path / "checkpoint" / "offsets").iterdir() if p.name == "0"]
    claims = json.loads(offsets.read_text().splitlines()[-1])["claims"]
    numbers = {partition: [number for number, _ in one] for partition, one in claims.items()}
    body = {"topic": topic, "claims": numbers}
    # As if its time were over, and others had had the messages.
    assert client._action("ack_claims", body) == {"lost": {}}
    with pytest.raises(Exception, match=r"claim \d+ of partition \d of topic .* is over"):
        drain(table, tmp_path)
    skipping = stream(spark, broker, topic, lost__claims="skip")
    drain(skipping, tmp_path)
    assert found(tmp_path) == Counter()


def test_from_a_topic_to_a_topic__each_message_once(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
    marks: Path,
) -> None:
    source, target = make_topic(), make_topic()
    fill(client, source)
    table = stream(spark, broker, source, max__rows=3_000)
    table = table.mapInArrow(failing_once(marks, "first"), table.schema)
    writer = table.writeStream.format("dejaq").option("url", broker.url).option("topic", target)
    query = (
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    )
    query.awaitTermination(PATIENCE_SECONDS)
    assert live(client, source) == {}
    got = client.peek(target, limit=10_000)["payload"].to_pylist()
    assert Counter(value.decode() for value in got) == expected()


def test_batches_are_about_as_large_as_max_bytes(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    payload = [b"%0100d" % n for n in range(3_000)]
    partition = pa.array([n % 2 for n in range(3_000)], pa.int32())
    client.send_batch(topic, pa.table({"payload": payload, "partition": partition}))
    progress = drain(stream(spark, broker, topic, max__bytes=100_000), tmp_path)
    sizes = [batch["numInputRows"] for batch in progress if batch["numInputRows"]]
    assert sizes == [1_000, 1_000, 1_000]
    assert sum(found(tmp_path).values()) == 3_000
    assert live(client, topic) == {}


def test_a_finished_batch_is_acked_while_the_query_runs__though_spark_commits_it_only_with_the_next(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    fill(client, topic, 0, 100)
    writer = stream(spark, broker, topic).writeStream.format("parquet")
    writer = writer.option("path", str(tmp_path / "out"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="50 milliseconds").start()
    try:
        # There is no batch after it, so Spark calls no commit() for it.
        wait_for(lambda: live(client, topic) == {})
        assert query.exception() is None
        assert found(tmp_path) == expected(100)
        fill(client, topic, 100, 100)
        wait_for(lambda: live(client, topic) == {})
    finally:
        query.stop()
    assert found(tmp_path) == expected(200)


def test_available_now_ends_with_what_was_due_when_it_began__though_more_comes(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    topic, url = make_topic(), broker.url
    fill(client, topic, 0, 1_000)

    def more(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each task of each batch has somebody send as many again."""
        for batch in batches:
            with dejaqueue.Client(url) as other:
                other.send_batch(topic, pa.table({"payload": [b"more"] * batch.num_rows}))
            yield batch

    table = stream(spark, broker, topic, max__rows=400)
    progress = drain(table.mapInArrow(more, table.schema), tmp_path)
    sizes = [batch["numInputRows"] for batch in progress if batch["numInputRows"]]
    assert sizes == [400, 400, 200]
    # A query's progress says how much was due beside the batch.
    ready = [int(batch["sources"][0]["latestOffset"]["ready"]) for batch in progress]
    assert max(ready) >= 600
    assert live(client, topic) == {"scheduled": 1_000, "ready": 1_000}
    assert sum(found(tmp_path).values()) == 1_000


def test_what_a_dead_query_claimed_returns_after_its_claim_timeout(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
    marks: Path,
) -> None:
    topic = make_topic(partitions=4)
    fill(client, topic, rows=400)
    table = stream(spark, broker, topic, claim__timeout=2)
    with pytest.raises(Exception, match="planted"):
        drain(table.mapInArrow(failing_once(marks, "always"), table.schema), tmp_path / "dead")
    wait_for(lambda: client.counts(topic).get("ready", 0) == 400)
    drain(stream(spark, broker, topic), tmp_path / "other")
    assert found(tmp_path / "other") == expected(400)
    assert live(client, topic) == {}


def test_two_queries_on_a_topic_share_it__each_message_goes_to_one_of_them(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    fill(client, topic)
    queries = []
    for name in ("one", "two"):
        writer = stream(spark, broker, topic, max__rows=500).writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / name / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / name / "checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination(PATIENCE_SECONDS)
        assert not query.isActive
    one, two = found(tmp_path / "one"), found(tmp_path / "two")
    assert one
    assert two
    assert one + two == expected()
    assert live(client, topic) == {}


def test_two_drivers_that_go_on_from_one_batch_are_fenced__its_rows_go_through_once(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
    marks: Path,
) -> None:
    topic = make_topic(partitions=4)
    fill(client, topic)
    table = stream(spark, broker, topic, max__rows=2_000)
    with pytest.raises(Exception, match="planted"):
        drain(table.mapInArrow(failing_once(marks, "always"), table.schema), tmp_path / "one")
    # A copy, as Spark lets only one driver have a checkpoint where its folder can tell.
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    drain(table, tmp_path / "one")
    assert found(tmp_path / "one") == expected()
    with pytest.raises(Exception, match=r"claim \d+ of partition \d of topic .* is over"):
        drain(table, tmp_path / "two")
    assert found_nothing(tmp_path / "two")
    assert live(client, topic) == {}
