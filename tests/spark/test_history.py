"""History through the data source, audited and archived, with a real Spark and a real broker.

Not covered: what is recorded (tests/rules/test_history.py); the page's look (tests/unit/pipelines).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import dejaqueue
from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.pipelines import archive, audit
from dejaqueue.pipelines.frame import Run
from dejaqueue.schema.history import STORED
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.crash.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
HOUR_MS = 3_600_000
NOON_MS = 20_000 * 24 * HOUR_MS + 12 * HOUR_MS
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def load(spark: SparkSession, broker: BrokerProcess, topic: str, schema: str = "") -> DataFrame:
    reader = spark.read.format("dejaq").option("url", broker.url).option("view", "history")
    return (reader.schema(schema) if schema else reader).load(topic)


def live_a_little(client: dejaqueue.Client, topic: str, messages: int = 200) -> None:
    """Messages of which half are acked, and the rest waits."""
    for number in range(20):
        client.send(topic, b"%d" % number, key=f"k{number}")
    rows = messages - 20
    client.send_batch(topic, pa.record_batch({"payload": [b"x"] * rows})).raise_for_status()
    with client.consume_batches(
        topic, batch_rows=20, prefetch=20, max_messages=messages // 2, name="worker"
    ) as batches:
        for batch in batches:
            batch.ack()


# --- the view -----------------------------------------------------------------------------------


def test_the_view_is_what_was_recorded(
    spark: SparkSession, broker: BrokerProcess, client: dejaqueue.Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(history=True)
    for number in range(30):
        client.send(topic, b"x", key=f"k{number}", group="g")
    table = load(spark, broker, topic)
    rows = table.collect()
    assert len(rows) == 30
    assert {row["partition"] for row in rows} == {0, 1}
    assert {(row["topic"], row["change"], row["group"]) for row in rows} == {
        (topic, "enqueued", "g")
    }
    assert {row["key"] for row in rows} == {f"k{number}" for number in range(30)}
    files = spark.read.parquet(str(Path(broker.data) / "history")).where(f"topic = '{topic}'")
    names = [name for name in table.columns if name != "topic"]
    same = sorted(map(tuple, files.select(*names).orderBy("id").collect()), key=str)
    assert same == sorted(map(tuple, table.select(*names).collect()), key=str)
    narrow = load(spark, broker, topic, "at_ms timestamp, change string")
    assert [field.name for field in narrow.schema] == ["at_ms", "change"]
    assert narrow.count() == 30
    with pytest.raises(Exception, match="payload"):
        load(spark, broker, topic, "payload binary").count()
    with pytest.raises(Exception, match="not with another view"):
        load(spark, broker, topic).sparkSession.read.format("dejaq").options(
            url=broker.url, view="history", state="ready"
        ).load(topic).count()


@pytest.fixture
def pushes(spark: SparkSession) -> Iterator[SparkSession]:
    """Filters go to the broker."""
    from dejaqueue.spark import register

    spark.conf.set(PUSHDOWN, "true")
    register(spark)
    yield spark
    spark.conf.unset(PUSHDOWN)
    register(spark)


def test_filters_leave_out_files_and_rows(
    pushes: SparkSession, broker: BrokerProcess, client: dejaqueue.Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(history=True)
    for _ in range(20):
        client.send(topic, b"x")
    table = load(pushes, broker, topic)
    at_ms = sorted(row["at_ms"] for row in table.collect())
    middle_ms = at_ms[10]
    everything = table.count()
    assert table.where(f"at_ms >= {middle_ms}").count() == sum(one >= middle_ms for one in at_ms)
    assert table.where(f"at_ms < {middle_ms}").count() == sum(one < middle_ms for one in at_ms)
    assert table.where(f"at_ms > {at_ms[-1]}").count() == 0
    halves = [table.where(f"partition = {number}") for number in (0, 1)]
    assert sum(half.count() for half in halves) == everything
    assert all(half.rdd.getNumPartitions() <= table.rdd.getNumPartitions() for half in halves)
    assert table.where("partition in (0, 1) and topic = 'another'").count() == 0


# --- audit --------------------------------------------------------------------------------------


class Written:
    """A history that is written by hand, for topic `t`, partition 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []

    def add(self, change: str, sequence: int, at_ms: int, **more: Any) -> None:
        row: dict[str, Any] = dict.fromkeys(STORED.names)
        row |= {"change": change, "sequence": sequence, "id": sequence, "at_ms": NOON_MS + at_ms}
        row |= {"position": len(self.rows) + 1, "priority": 32_768, "attempt": 0}
        row |= {"due": NOON_MS + more.pop("due", 0)}
        self.rows.append(row | more)

    def whole_life(self, sequence: int, due: int = 0, late: int = 3, **more: Any) -> None:
        self.add("enqueued", sequence, 0, due=due, key=f"k{sequence}", **more)
        self.deliver(sequence, due + late, due=due, **more)
        self.add("acked", sequence, due + late + 50, **more)

    def deliver(
        self, sequence: int, at_ms: int, due: int = 0, attempt: int = 1, **more: Any
    ) -> None:
        change = "delivered" if attempt == 1 else "redelivered"
        more = {"lateness_ms": at_ms - due, "ahead_ms": 25} | more
        self.add(change, sequence, at_ms, due=due, attempt=attempt, **more)

    def write(self) -> str:
        path = self.folder / "topic=t" / "partition=0" / "date=2024-10-04" / "hour=12"
        path.mkdir(parents=True)
        table = pa.Table.from_pylist(self.rows, STORED)
        parquet.write_table(table, path / "1-9.parquet", store_schema=False)
        return str(self.folder)


def audited(spark: SparkSession, **options: Any) -> Any:
    clock = VirtualClock()
    clock.advance(ms=max(0, NOON_MS + 10 * HOUR_MS - clock.now_ms()))
    with Run(spark, clock=clock) as run:
        return audit.run(audit.Options(**options), run)


def test_planted_faults_are_found_each_as_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    written = Written(tmp_path / "history")
    for sequence in range(20):
        written.whole_life(sequence, due=sequence * 1_000)
    written.add("enqueued", 20, 0, due=5_000, key="gone", group="blue")  # and nothing more
    written.add("enqueued", 21, 0, due=9_000, group="blue")
    written.deliver(21, 8_900, due=9_000, group="blue")  # 75 ms earlier than it may be
    written.add("acked", 21, 9_050, group="blue")
    written.whole_life(22, due=1_000, late=4_000, group="red")
    written.whole_life(23)
    written.deliver(23, 2_000, attempt=2)  # after it was acked
    written.add("enqueued", 24, 0)
    written.deliver(24, 5)
    written.deliver(24, 6, attempt=2)  # while the first lease runs
    written.add("acked", 24, 100)
    # What is no fault: a lease that ended, a late nack, one that came in after it was due.
    written.add("enqueued", 25, 0)
    written.deliver(25, 2)
    written.add("lapsed", 25, 30_000, due=30_000)
    written.deliver(25, 30_004, due=30_000, attempt=2)
    written.add("nacked", 25, 30_010, due=40_000)
    written.deliver(25, 39_990, due=40_000, attempt=3)
    written.add("acked", 25, 40_100)
    written.add("enqueued", 26, 60_000, due=-500_000)
    written.deliver(26, 60_002, due=-500_000)
    written.add("acked", 26, 60_003)
    report, faults = tmp_path / "out" / "audit.html", tmp_path / "faults"
    outcome = audited(
        spark, history=written.write(), report=str(report), faults=str(faults),
        figures=str(tmp_path / "figures"),
    )  # fmt: skip
    assert not outcome.is_good
    found = {name: outcome.figures[name] for name in ("lost", "early", "duplicate", "late", "gaps")}
    assert found == {"lost": 1, "early": 1, "duplicate": 2, "late": 2, "gaps": 0}
    rows = {(row["fault"], row["id"]) for row in parquet.read_table(faults).to_pylist()}
    assert rows == {
        ("lost", 20), ("early", 21), ("duplicate", 23), ("duplicate", 24),
        ("late", 22), ("late", 23),
    }  # fmt: skip
    by_group = parquet.read_table(tmp_path / "figures").to_pylist()
    blue = [row for row in by_group if row["group"] == "blue"]
    assert sum(row["lost"] for row in blue) == sum(row["early"] for row in blue) == 1
    page = report.read_text()
    assert "1 lost, 1 early, 2 duplicate, 2 late" in page
    assert not re.search(r"(src|href)\s*=", page)
    assert "<svg" in page


def test_a_whole_history_is_clean_and_a_row_that_is_there_twice_counts_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    written = Written(tmp_path)
    for sequence in range(50):
        written.whole_life(sequence, due=sequence)
    written.rows += written.rows[10:40]
    outcome = audited(spark, history=written.write(), topics="t")
    assert outcome.is_good
    assert (outcome.figures["messages"], outcome.figures["deliveries"]) == (50, 50)
    assert outcome.figures["lateness_p50_ms"] == 3
    assert outcome.figures["unknown_begin"] == 0


def test_across_a_gap_nothing_is_concluded(spark: SparkSession, tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.add("enqueued", 0, 0, due=5)
    written.add("enqueued", 1, 0, due=5)
    written.deliver(1, 6, due=5)
    gap = limits.SEQUENCE_MAX
    written.add("gap", -1, 100, id=gap, missed=7, reason="the disk did not keep up")
    written.deliver(1, 200, due=150, attempt=2)  # it may have been given back meanwhile
    written.add("acked", 1, 210)
    outcome = audited(spark, history=written.write())
    figures = outcome.figures
    assert (figures["lost"], figures["duplicate"]) == (0, 0)
    assert (figures["gaps"], figures["missed"]) == (1, 7)
    assert not outcome.is_good  # nobody can say that it was whole


def test_a_broker_is_audited_against_what_it_has(
    spark: SparkSession, broker: BrokerProcess, client: dejaqueue.Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(history=True)
    live_a_little(client, topic)
    with Run(spark) as run:
        outcome = audit.run(audit.Options(url=broker.url, topics=(topic,), late_ms=HOUR_MS), run)
    assert outcome.is_good, outcome.figures
    assert outcome.figures["messages"] == 200
    assert outcome.figures["deliveries"] >= 100
    with pytest.raises(BadRequest, match="--topics"):
        audit.run(audit.Options(url=broker.url), Run(spark))


# --- archive --------------------------------------------------------------------------------------


def test_an_archive_has_each_finished_message_once_however_often_it_is_made(
    spark: SparkSession,
    broker: BrokerProcess,
    client: dejaqueue.Client,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    topic, out = make_topic(history=True), tmp_path / "archive"
    live_a_little(client, topic)
    clock = VirtualClock()
    clock.advance(ms=max(0, dejaqueue.clock.SystemClock().now_ms() + 2 * HOUR_MS - clock.now_ms()))

    def archived() -> dict[str, Any]:
        options = archive.Options(url=broker.url, topics=(topic,), out=str(out))
        with Run(spark, clock=clock) as run:
            return dict(archive.run(options, run).figures)

    figures = archived()
    assert figures["messages"] == 100
    assert figures["changes"] == 300
    assert archived()["messages"] == 0  # it goes on where it ended
    (out / f"_archived-{topic}.json").unlink()  # as if it had broken off before the end
    assert archived()["messages"] == 100
    table = spark.read.parquet(str(out))
    assert table.count() == 300
    assert table.where("change = 'acked'").count() == 100
    assert table.select("id").distinct().count() == 100
    with Run(spark, clock=clock) as run:
        assert audit.run(audit.Options(history=str(out), late_ms=HOUR_MS), run).is_good
        clock.advance(ms=40 * 24 * HOUR_MS)
        keep = archive.Options(
            url=broker.url, topics=(topic,), out=str(out), keep_ms=30 * 24 * HOUR_MS
        )
        assert archive.run(keep, run).figures["days_deleted"] >= 1
    assert not list(out.rglob("*.parquet"))
