"""Covers: what is asked of the broker, and what comes from it: no rows and columns for nothing.

A broker in this process, whose scans are looked at as they leave it; tasks of a real Spark read it
over the network.
Not covered: that what is found is right (test_batch.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from dejaqueue import Client
from dejaqueue.broker.calls import scan
from tests.integration.access_fixture import Site, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "watched"
ROWS = 2_000
PAST_MS = 1_600_000_000_000
FUTURE_MS = 4_000_000_000_000
LEASED = 200


class Watched:
    """A broker, and what its scans were asked and gave."""

    def __init__(self, site: Site, patch: pytest.MonkeyPatch) -> None:
        self.url = f"dejaq://127.0.0.1:{site.flight.port}"
        self.tickets: list[dict[str, Any]] = []
        self.rows = 0
        self.byte_count = 0
        self.columns: set[str] = set()
        self._parse, self._scan = scan.parse, scan.scan
        patch.setattr(scan, "parse", self.parse)
        patch.setattr(scan, "scan", self.scan)

    def parse(self, ticket: dict[str, Any], *others: Any) -> Any:
        """As the broker's own."""
        self.tickets.append(dict(ticket))
        return self._parse(ticket, *others)

    def scan(self, topic: Any, ticket: Any) -> Iterator[pa.RecordBatch]:
        """As the broker's own."""
        return self._look(self._scan(topic, ticket))

    def _look(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            self.byte_count += batch.nbytes
            self.columns |= set(batch.schema.names)
            yield batch

    def forget(self) -> None:
        self.tickets, self.rows, self.byte_count, self.columns = [], 0, 0, set()


@pytest.fixture(scope="module")
def watched(spark: SparkSession) -> Iterator[Watched]:
    """2,000 messages in two partitions, of which 200 are leased."""
    from dejaqueue.spark import register

    with running() as site, pytest.MonkeyPatch.context() as patch:
        made = Watched(site, patch)
        with Client(made.url) as client:
            client.create_topic(TOPIC, partitions=2)
            numbers = range(ROWS)
            dues = [PAST_MS + n if n < LEASED else FUTURE_MS + n for n in numbers]
            table = {
                "payload": pa.array([b"%0500d" % n for n in numbers]),
                "due": pa.array(dues),
                "key": [f"k{n}" for n in numbers],
                "group": [("g1", "g2", None)[n % 3] for n in numbers],
                "priority": pa.array([n % 7 for n in numbers], pa.uint16()),
            }
            client.send_batch(TOPIC, pa.table(table)).raise_for_status()
            with client.consume_batches(TOPIC, batch_rows=LEASED) as batches:
                held = 0
                for batch in batches:
                    held += len(batch)
                    if held == LEASED:
                        break
                register(spark, push_filters=True)
                yield made
                spark.conf.unset("spark.sql.python.filterPushdown.enabled")
                register(spark)


def load(spark: SparkSession, watched: Watched, **options: str) -> DataFrame:
    reader = spark.read.format("dejaq").options(url=watched.url, **options)
    watched.forget()
    return reader.load(TOPIC)


def at(number: int) -> str:
    """When a message is due, as Spark's SQL says it."""
    return f"timestamp_millis({FUTURE_MS + number})"


ASKED = [
    (f"due >= {at(500)} and due < {at(600)}", {"due_from", "due_to"}, 100),
    (f"due = {at(500)}", {"due_from", "due_to"}, 1),
    ("priority = 3", {"priority_from", "priority_to"}, 286),
    ("priority <= 1", {"priority_to"}, 572),
    ("`group` = 'g1'", {"group"}, 667),
    ("key = 'k77'", {"keys"}, 1),
    ("key in ('k1', 'k2', 'nobody')", {"keys"}, 2),
    ("id = 5", {"ids"}, 1),
    ("state = 'leased'", {"state"}, LEASED),
    ("state = 'scheduled' and priority > 4", {"state", "priority_from"}, 514),
]


@pytest.mark.parametrize(("condition", "fields", "rows"), ASKED)
def test_the_broker_is_asked_for_what_a_filter_lets_through_and_sends_no_other_row(
    spark: SparkSession, watched: Watched, condition: str, fields: set[str], rows: int
) -> None:
    assert load(spark, watched).where(condition).count() == rows
    assert watched.rows == rows
    assert all(fields <= set(ticket) for ticket in watched.tickets)


def test_one_partition_is_asked_where_only_one_can_have_it(
    spark: SparkSession, watched: Watched
) -> None:
    load(spark, watched).where("partition = 1").count()
    assert [ticket["partition"] for ticket in watched.tickets] == [1]
    load(spark, watched).where("id in (1, 7)").count()
    assert [ticket["partition"] for ticket in watched.tickets] == [0]


def test_without_pushdown_every_row_is_sent__and_spark_filters(
    spark: SparkSession, watched: Watched
) -> None:
    from dejaqueue.spark import register

    register(spark, push_filters=False)
    try:
        assert load(spark, watched).where("key = 'k77'").count() == 1
        assert watched.rows == ROWS
    finally:
        register(spark, push_filters=True)


@pytest.mark.parametrize("by", ["columns", "schema"])
def test_only_the_columns_that_are_named_are_asked_for_and_sent(
    spark: SparkSession, watched: Watched, by: str
) -> None:
    load(spark, watched).write.format("noop").mode("overwrite").save()
    whole = watched.byte_count
    assert {"payload", "headers", "key"} <= watched.columns
    if by == "columns":
        table = load(spark, watched, columns="due, `group`")
    else:
        watched.forget()
        reader = spark.read.format("dejaq").options(url=watched.url)
        table = reader.schema("due bigint, `group` string").load(TOPIC)
    assert [field.name for field in table.schema] == ["due", "group"]
    assert len(table.collect()) == ROWS
    assert watched.columns == {"due", "group"}
    assert all(ticket["columns"] == ["due", "group"] for ticket in watched.tickets)
    assert watched.byte_count < whole / 10


def test_columns_that_there_are_not_are_named(spark: SparkSession, watched: Watched) -> None:
    with pytest.raises(Exception, match="option columns: names of id, due"):
        load(spark, watched, columns="id, colour")
    with pytest.raises(Exception, match="each name once"):
        load(spark, watched, columns="id, id")
    table = load(spark, watched, columns="at_ms, change", view="history")
    assert [field.name for field in table.schema] == ["at_ms", "change"]
