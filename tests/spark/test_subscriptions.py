"""Covers: Spark reads a subscription as a table and as a stream; the others notice nothing.

Not covered: what is the same for a topic (test_stream_read.py).
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess
from tests.spark.test_batch import failing_once, payloads
from tests.spark.test_stream_read import fill, live
from tests.spark.test_stream_write import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
ROWS = 1_000


def stream(spark: SparkSession, broker: BrokerProcess, topic: str, subscription: str) -> DataFrame:
    reader = spark.readStream.format("dejaq").option("url", broker.url)
    reader = reader.option("subscription", subscription).option("lost.claims", "skip")
    return reader.option("max.rows", 600).schema("payload binary").load(topic)


def test_a_stream_of_a_subscription_goes_into_a_sink_exactly_once(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    tmp_path: Path,
    marks: Path,
) -> None:
    topic, out = make_topic(), make_topic()
    client.create_subscription(topic, "audit", order="arrival")
    client.create_subscription(topic, "billing")
    fill(client, topic, rows=ROWS)
    table = stream(spark, broker, topic, "audit")
    checkpoint = tmp_path / "checkpoint"
    # A task fails and is done again; then it is as if the driver had been killed after the sink's
    # commit, before it could note that.
    run(table.mapInArrow(failing_once(marks, "first"), table.schema), broker, out, checkpoint)
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    run(table, broker, out, checkpoint)
    assert payloads(spark, broker, out) == Counter(b"p%d" % number for number in range(ROWS))
    assert live(client, f"{topic}@audit") == {}
    assert client.stats(f"{topic}@audit")["acked"] == ROWS
    for other in (topic, f"{topic}@billing"):
        assert live(client, other) == {"ready": ROWS, "scheduled": ROWS}
    # Another query with a checkpoint of its own takes what another subscription has.
    shutil.rmtree(checkpoint)
    run(stream(spark, broker, f"{topic}@billing", ""), broker, out, checkpoint)
    assert set(payloads(spark, broker, out).values()) == {2}


def test_a_subscription_is_a_table_of_what_it_is_not_done_with(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
) -> None:
    topic = make_topic()
    client.create_subscription(topic, "audit", order="arrival")
    fill(client, topic, rows=20)
    with client.consume(topic, subscription="audit", max_messages=5) as messages:
        done = [message.payload for message in messages if message.ack() is None]

    def table(**options: str) -> DataFrame:
        reader = spark.read.format("dejaq").option("url", broker.url)
        return reader.schema("topic string, payload binary").options(**options).load(topic)

    rows = table(subscription="audit").collect()
    assert {row.topic for row in rows} == {topic}
    assert {bytes(row.payload) for row in rows} == {b"p%d" % n for n in range(20)} - set(done)
    assert table().count() == 20
    frame = spark.createDataFrame([("x",)], "payload string")
    with pytest.raises(Exception, match="option subscription"):
        frame.write.format("dejaq").option("url", broker.url).mode("append").save(f"{topic}@audit")
