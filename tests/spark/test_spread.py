"""Covers: a topic in shards, each on a broker of its own, is written and read as any other.

The brokers are in this process, Spark's workers ask them over their ports. Not covered: what is
done twice, what is killed (test_batch.py, test_stream_write.py, test_cluster.py): a branch of a
topic in shards is one of the same code (tests/cluster/test_spread_transactions.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.spread import SpreadCluster, shards_of
from tests.patience import PATIENCE_SECONDS, until
from tests.spark.test_stream_write import ROWS, add_file, expected, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def brokers() -> Iterator[SpreadCluster]:
    with SpreadCluster() as made:
        yield made


@pytest.mark.parametrize("streams", [False, True])
def test_what_spark_writes_is_there_once_in_every_shard(
    spark: SparkSession, brokers: SpreadCluster, tmp_path: Path, streams: bool
) -> None:
    topic, url = f"spread-{streams}", brokers._address("b")
    with brokers.client() as client:
        client.create_topic(topic, spread=3)
    until(lambda: sorted(brokers.shard_owners(topic)) == ["a", "b", "c"], "owners")
    if streams:
        add_file(tmp_path / "in", 1)
        add_file(tmp_path / "in", 2)
        writer = read(spark, tmp_path / "in").writeStream.format("dejaq").option("url", url)
        writer = writer.option("topic", topic).option("checkpointLocation", str(tmp_path / "at"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(PATIENCE_SECONDS)
        assert not query.isActive
    else:
        rows = spark.range(0, 2 * ROWS, 1, 3).selectExpr(
            f"cast(concat('p', 1 + id div {ROWS}, '-', id % {ROWS}) as binary) payload",
            "4000000000000 due",
            "'k' || id as key",
        )
        rows.write.format("dejaq").option("url", url).option("topic", topic).mode("append").save()
    table = spark.read.format("dejaq").option("url", url).load(topic).toArrow()
    assert Counter(table.column("payload").to_pylist()) == expected(1, 2)
    assert set(shards_of(table.column("id").to_pylist())) == {0, 1, 2}
    with brokers.client() as client:
        assert client.transactions(topic) == []
