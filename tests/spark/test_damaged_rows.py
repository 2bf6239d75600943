"""Covers: a message that is damaged on the broker's disk, read by a real Spark: tables and queries.

A bit of one message is flipped in a segment while the broker is stopped. Tasks of Spark read from
it over the network.
Not covered: the other ways to read (tests/integration/test_damaged_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
import pytest

from dejaqueue.flight.server import FlightServer
from tests.damaged import BAD, COUNT, HOUR_MS, damaged, payload
from tests.rules.broker_fixture import TOPIC, BrokerFixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS = [payload(number) for number in range(COUNT) if number != BAD]
LOGGING = "spark.sql.pyspark.worker.logging.enabled"


@dataclass
class Site:
    """A broker with a damaged message, and what it says of it."""

    broker: BrokerFixture
    url: str

    @property
    def bad(self) -> dict[str, Any]:
        [row] = [row for row in self.broker.peek(limit=COUNT) if row["unread"]]
        return row

    def table(self, spark: SparkSession, schema: str, **options: str) -> list[Any]:
        """The rows of messages, but for those that fill a segment, which were sent after them."""
        reader = spark.read.format("dejaq").option("url", self.url).options(**options)
        found = reader.schema(schema).load(TOPIC).collect()
        return sorted(row for row in found if row["id"] < COUNT)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    broker = damaged(tmp_path / "data")
    flight = FlightServer(broker.broker)
    flight.start()
    yield Site(broker, flight.url)
    flight.stop()
    broker.stop()


def test_a_table_fails_by_the_name_of_the_entry(spark: SparkSession, site: Site) -> None:
    told = site.bad["unread"]
    assert told.startswith(f"{TOPIC}/0, entry ")
    for options in ({}, {"mode": "FAILFAST"}):
        with pytest.raises(Exception, match=told):
            site.table(spark, "id bigint, payload binary", **options)
    # What is not stored is not read, and so whole.
    assert len(site.table(spark, "id bigint, due bigint")) == COUNT


def test_a_table_has_the_others_if_asked_for__and_says_how_many_it_lacks(
    spark: SparkSession, site: Site
) -> None:
    bad = site.bad
    spark.conf.set(LOGGING, "true")
    try:
        rows = site.table(spark, "id bigint, payload binary", mode="DROPMALFORMED")
        lines = spark.tvf.python_worker_logs().collect()
    finally:
        spark.conf.unset(LOGGING)
    assert [bytes(row["payload"]) for row in rows] == OTHERS
    assert bad["id"] not in {row["id"] for row in rows}
    ours = [line for line in lines if line["logger"] == "dejaqueue.spark"]
    assert [(line["level"], line["msg"]) for line in ours] == [
        (
            "WARNING",
            f"topic {TOPIC}, partition 0: 1 damaged messages are left out, the first of them "
            f"{bad['id']}, {bad['unread']}",
        )
    ]


def streamed(spark: SparkSession, site: Site, folder: Path, **options: str) -> None:
    """A query to its end."""
    reader = spark.readStream.format("dejaq").option("url", site.url).options(**options)
    writer = reader.schema("id bigint, payload binary").load(TOPIC).writeStream
    writer = writer.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(100)


def test_a_query_fails_by_the_name_of_the_entry__and_acks_nothing(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    told, before = site.bad["unread"], site.broker.counts()["scheduled"]
    site.broker.advance(HOUR_MS)
    with pytest.raises(Exception, match=told):
        streamed(spark, site, tmp_path)
    counts = site.broker.counts()
    assert counts["scheduled"] + counts["leased"] == before


def test_a_query_may_leave_nothing_out__it_would_be_acked(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    site.broker.advance(HOUR_MS)
    with pytest.raises(Exception, match="option mode: FAILFAST in a streaming query"):
        streamed(spark, site, tmp_path, mode="DROPMALFORMED")
    assert site.broker.counts()["leased"] == 0


def test_a_query_goes_on_without_a_message_that_was_given_up(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    """As the guide says."""
    bad = site.bad
    site.broker.advance(HOUR_MS)
    with pytest.raises(Exception, match=bad["unread"]):
        streamed(spark, site, tmp_path, **{"claim.timeout": "60"})
    site.broker.advance(60_000)
    assert site.broker.cancel([bad["id"]]).error is None
    streamed(spark, site, tmp_path, **{"lost.claims": "skip"})
    rows = parquet.read_table(tmp_path / "out").to_pylist()
    assert sorted(row["payload"] for row in rows if row["id"] < COUNT) == OTHERS
