"""Covers: tables to schedules and back, with a real Spark and a real broker.

Not covered: several Spark processes (test_cluster.py); what the broker does with branches
(tests/rules/test_rule_12_branches.py).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import dejaqueue
from dejaqueue import limits
from dejaqueue.spark import save as write
from dejaqueue.spark import writes
from dejaqueue.spark.refusals import status_counts
from tests.crash.broker_process import BrokerProcess
from tests.patience import until
from tests.spark.scenarios import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
FUTURE_MS = 4_000_000_000_000
ROWS = 20_000


def save(table: DataFrame, broker: BrokerProcess, topic: str, **options: Any) -> None:
    writer = table.write.format("dejaq").option("url", broker.url).option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.mode("append").save()


def load(
    spark: SparkSession, broker: BrokerProcess, topic: str, schema: str = "", **options: Any
) -> DataFrame:
    reader = spark.read.format("dejaq").option("url", broker.url)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return (reader.schema(schema) if schema else reader).load(topic)


def keyed(spark: SparkSession, rows: int = ROWS, parts: int = 4) -> DataFrame:
    return spark.range(0, rows, 1, parts).selectExpr(
        "cast(concat('p', id) as binary) payload", f"{FUTURE_MS} + id as due", "'k' || id as key"
    )


def payloads(spark: SparkSession, broker: BrokerProcess, topic: str) -> Counter[bytes]:
    table = load(spark, broker, topic, "payload binary").toArrow()
    return Counter(table.column("payload").to_pylist())


def expected(rows: int = ROWS) -> Counter[bytes]:
    return Counter(b"p%d" % number for number in range(rows))


def failing_once(marks: Path, fails: str) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """A function for mapInArrow that hands rows on, and fails in some tasks after the last one.

    Args:
        fails: "first": each task's first attempt; "always": each attempt of the last task.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        (marks / f"{context.partitionId()}-{context.attemptNumber()}").touch()
        if fails == "first" and context.attemptNumber() == 0:
            raise RuntimeError("planted")
        if fails == "always" and context.partitionId() == 3:
            raise RuntimeError("planted")

    return run


def test_what_is_written_is_read__count_by_key(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    save(keyed(spark), broker, topic)
    found = load(spark, broker, topic).groupBy("key").count().toArrow()
    assert Counter(found.column("key").to_pylist()) == Counter(f"k{n}" for n in range(ROWS))
    assert set(found.column("count").to_pylist()) == {1}


def test_every_column_comes_back_as_it_was_written(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=1)
    table = spark.createDataFrame(
        [
            (b"a", FUTURE_MS, "k1", "g", 7, ["x", "y"], {"h": "v"}, FUTURE_MS + 1),
            (b"", FUTURE_MS + 5, None, None, None, None, None, None),
        ],
        "payload binary, due bigint, key string, group string, priority int, "
        "tags array<string>, headers map<string,string>, expires bigint",
    ).coalesce(1)
    save(table, broker, topic)
    from pyspark.sql import functions as f

    back = load(spark, broker, topic)
    kinds = {name: kind for name, kind in back.dtypes if name in ("due", "expires")}
    assert kinds == {"due": "timestamp", "expires": "timestamp"}
    numbers = {name: f.unix_millis(name) for name in kinds}
    rows = [row.asDict() for row in back.orderBy("due").withColumns(numbers).collect()]
    assert rows == [
        {
            "id": 0, "due": FUTURE_MS, "attempts": 0, "key": "k1", "group": "g", "priority": 7,
            "tags": ["x", "y"], "headers": {"h": "v"}, "payload": bytearray(b"a"),
            "state": "scheduled", "expires": FUTURE_MS + 1, "partition": 0, "topic": topic,
        },
        {
            "id": 1, "due": FUTURE_MS + 5, "attempts": 0, "key": None, "group": None,
            "priority": 32768, "tags": None, "headers": None, "payload": bytearray(b""),
            "state": "scheduled", "expires": None, "partition": 0, "topic": topic,
        },
    ]  # fmt: skip


def test_times_may_be_timestamps__a_part_of_a_millisecond_is_never_early(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    save(spark.sql("select 'x' payload, timestamp_micros(4000000000000001) due"), broker, topic)
    whole = load(spark, broker, topic, "due bigint").collect()[0]
    assert whole.due == 4_000_000_000_001
    named = load(spark, broker, topic, "due timestamp, payload string, partition bigint")
    row = named.selectExpr("unix_micros(due) due", "payload", "partition").collect()[0]
    assert (row.due, row.payload) == (4_000_000_000_001_000, "x")


def test_times_are_the_same_instant_in_every_time_zone__and_go_back_as_they_came(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic, client: dejaqueue.Client
) -> None:
    from pyspark.sql import functions as f

    # An hour that clocks go through twice in one of the zones, and the last instant that there is.
    dues = [1_793_494_800_000 + 999, 1_793_498_400_000 + 1, limits.INSTANT_MS_MAX]
    first, second = make_topic(), make_topic()
    rows = {"payload": [b"x"] * len(dues), "due": dues}
    client.send_batch(first, pa.table(rows)).raise_for_status()
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for name in ("America/New_York", "Asia/Kathmandu"):
            spark.conf.set("spark.sql.session.timeZone", name)
            found = load(spark, broker, first).select(f.unix_millis("due").alias("ms")).collect()
            assert sorted(row.ms for row in found) == dues
        save(load(spark, broker, first).select("payload", "due"), broker, second)
        arrow = load(spark, broker, second).select("due").toArrow().column("due")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert sorted(arrow.cast(pa.int64()).to_pylist()) == [1_000 * due for due in dues]


def test_a_topic_is_read_in_several_stretches__each_message_once(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic, client: dejaqueue.Client
) -> None:
    topic = make_topic(partitions=1)
    rows = 150_000
    table = pa.table(
        {
            "payload": pa.array([b""] * rows, pa.binary()),
            "due": pa.array(range(FUTURE_MS, FUTURE_MS + rows)),
        }
    )
    client.send_batch(topic, table)
    client.cancel(topic, ids=list(range(70_000)))
    found = load(spark, broker, topic, "id bigint", rows__per__partition=1)
    assert found.rdd.getNumPartitions() == 2
    assert sorted(found.toArrow().column("id").to_pylist()) == list(range(70_000, rows))


@pytest.mark.parametrize("with_key", [True, False])
def test_tasks_that_are_tried_again_change_nothing(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    marks: Path,
    with_key: bool,
) -> None:
    topic = make_topic()
    table = keyed(spark) if with_key else keyed(spark).drop("key")
    save(table.mapInArrow(failing_once(marks, "first"), table.schema), broker, topic)
    assert {"0-0", "0-1", "3-0", "3-1"} <= set(os.listdir(marks))
    assert payloads(spark, broker, topic) == expected()


def test_a_job_that_fails_leaves_nothing__and_its_keys_are_free(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    marks: Path,
    client: dejaqueue.Client,
) -> None:
    topic = make_topic()
    table = keyed(spark)
    with pytest.raises(Exception, match="planted"):
        save(table.mapInArrow(failing_once(marks, "always"), table.schema), broker, topic)
    assert {"3-0", "3-1", "3-2"} <= set(os.listdir(marks))
    # A task that goes on may stage what nobody waits for: the broker finds out.
    until(lambda: sum(client.counts(topic).values()) == 0, "nothing is left", seconds=30)
    save(table, broker, topic)
    assert payloads(spark, broker, topic) == expected()


def test_nothing_is_seen_before_the_whole_job_is_done(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    marks: Path,
) -> None:
    topic = make_topic()
    url = broker.url

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 3:  # the last to begin, as two run at a time
            with dejaqueue.Client(url) as other:
                seen = other.peek(topic, limit=10).num_rows
                counts = other.counts(topic)
            (marks / "seen").write_text(json.dumps([seen, counts["staged"]]))

    table = keyed(spark)
    save(table.mapInArrow(look, table.schema), broker, topic)
    seen, staged = json.loads((marks / "seen").read_text())
    assert seen == 0
    assert staged >= ROWS // 4
    assert payloads(spark, broker, topic) == expected()


def test_a_second_run_of_a_job_with_keys_adds_nothing__refusals_are_written_where_asked(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    save(keyed(spark, 100), broker, topic)
    folder = tmp_path / "refused"
    save(keyed(spark, 150), broker, topic, refusals__path=str(folder))
    assert payloads(spark, broker, topic) == expected(150)
    files = sorted(os.listdir(folder))
    assert {name.partition("-")[0] for name in files} == {"refused", "_counts"}
    assert status_counts(str(folder)) == {"OK": 50, "DUPLICATE": 100}
    refused = parquet.read_table(folder).to_pylist()
    assert Counter(row["key"] for row in refused) == Counter(f"k{n}" for n in range(100))
    assert {row["status"] for row in refused} == {"DUPLICATE"}
    assert {row["live_id"] for row in refused} == {
        row.id for row in load(spark, broker, topic, "id bigint, key string").collect()
        if int(row.key[1:]) < 100
    }  # fmt: skip


def test_refusals_may_fail_the_job__then_nothing_of_it_is_there(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    save(keyed(spark, 100), broker, topic)
    folder = tmp_path / "refused"
    with pytest.raises(Exception, match=f"topic {topic}: 100 DUPLICATE of 150 rows"):
        save(keyed(spark, 150), broker, topic, refusals="fail", refusals__path=str(folder))
    assert payloads(spark, broker, topic) == expected(100)
    assert parquet.read_table(folder).num_rows == 100  # which rows they were, is known


def test_a_write_returns_how_many_rows_had_which_status__and_the_broker_remembers(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    assert write(keyed(spark, 100), url=broker.url, topic=topic) == {"OK": 100}
    assert write(keyed(spark, 150), url=broker.url, topic=topic) == {"OK": 50, "DUPLICATE": 100}
    assert payloads(spark, broker, topic) == expected(150)
    # Whoever writes as ever asks afterwards, by a name of its own or for the last of all.
    save(keyed(spark, 160), broker, topic, label="spring")
    [one] = writes(url=broker.url, topic=topic, label="spring")
    assert (one.label, one.epoch, one.is_committed) == ("spring", -1, True)
    assert one.counts == {"OK": 10, "DUPLICATE": 150}
    assert one.at_ms > 1_600_000_000_000
    with pytest.raises(Exception, match="160 DUPLICATE of 170 rows"):
        save(keyed(spark, 170), broker, topic, refusals="fail")
    last = writes(url=broker.url, topic=topic)[-1]
    assert not last.is_committed
    assert last.counts == {"OK": 10, "DUPLICATE": 160}
    assert payloads(spark, broker, topic) == expected(160)
    assert writes(url=broker.url, topic=topic, label="autumn") == []


def test_keys_hold_between_jobs_and_other_producers__of_what_is_there_and_of_what_is_staged(
    spark: SparkSession,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    client: dejaqueue.Client,
    marks: Path,
) -> None:
    topic, url = make_topic(), broker.url
    rows = {"payload": [b"p%d" % n for n in range(50)], "key": [f"k{n}" for n in range(50)]}
    due = pa.array([FUTURE_MS] * 50)
    client.send_batch(topic, pa.table(rows | {"due": due})).raise_for_status()
    assert write(keyed(spark, 100), url=url, topic=topic) == {"OK": 50, "DUPLICATE": 50}
    again = client.send_batch(topic, pa.table(rows | {"due": due}))
    assert set(again.statuses.tolist()) == {dejaqueue.RowStatus.DUPLICATE}

    def rival(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """When rows of the third task are staged, somebody sends messages with their keys."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 3:
            with dejaqueue.Client(url) as other:
                wait_for(lambda: other.counts(topic)["staged"] == 50)
                table = {"payload": [b"rival"] * 50, "key": [f"k{n}" for n in range(100, 150)]}
                sent = other.send_batch(topic, pa.table(table | {"due": due}))
            (marks / "rival").write_text(str(set(sent.statuses.tolist())))
        yield from batches

    table = keyed(spark, 200)
    counts = write(table.mapInArrow(rival, table.schema), url=url, topic=topic)
    assert (marks / "rival").read_text() == str({int(dejaqueue.RowStatus.DUPLICATE)})
    assert counts == {"OK": 100, "DUPLICATE": 100}
    assert payloads(spark, broker, topic) == expected(200)


BAD_TABLES = [
    ("select 1 as id, 'x' payload", "column id: one of payload, due,"),
    ("select 'x' Payload", "column Payload: payload, got: 'Payload'"),
    ("select 1 payload", "type of column payload: binary or string, got: 'int'"),
    ("select 'x' payload, 1.5D due", "type of column due: bigint or int or timestamp"),
    ("select 5L due", "column payload: a column of this name, got: 'due'"),
    ("select 'x' payload, 'k' key, 0 partition", "column partition: not together with key"),
    ("select cast(null as string) payload", "column payload: a value in every row"),
    ("select 'x' payload, -1L due", "due of row 0: UTC milliseconds: 0, or from 100000000000 to"),
    ("select 'x' payload, 70000 priority", "priority: a column that fits uint16"),
]


@pytest.mark.parametrize(("query", "text"), BAD_TABLES)
def test_a_table_that_is_no_schedule_is_refused__the_error_names_the_column(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic, query: str, text: str
) -> None:
    topic = make_topic()
    with pytest.raises(Exception) as refused:
        save(spark.sql(query), broker, topic)
    assert text in str(refused.value)


def test_options_and_modes_that_there_are_not_are_refused(
    spark: SparkSession, broker: BrokerProcess, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with pytest.raises(Exception, match="option colour: one of url"):
        load(spark, broker, topic, colour="red").collect()
    with pytest.raises(Exception, match="topic: the name of an existing topic"):
        load(spark, broker, "nothing-here").collect()
    with pytest.raises(Exception, match="column colour: one of id"):
        load(spark, broker, topic, "colour string").collect()
    with pytest.raises(Exception, match="mode: append"):
        keyed(spark).write.format("dejaq").option("url", broker.url).option("topic", topic).mode(
            "overwrite"
        ).save()


FILTERS = [
    f"due < {FUTURE_MS + 50}",
    f"due >= {FUTURE_MS + 990} and due <= {FUTURE_MS + 1_010}",
    f"due = {FUTURE_MS + 3}",
    "due < 0",
    f"due > {1 << 60}",
    "key = 'k17'",
    "key in ('k17', 'k4', 'nothing')",
    "key = ''",
    "id = 5",
    "id in (0, 1, 140737488355328, -3)",
    "priority = 5",
    "priority < 32768 and priority >= 3",
    "group = 'g1'",
    "group = 'g1' and group = 'g2'",
    "group is null",
    "group <> 'g1'",
    "state = 'scheduled'",
    "state = 'dead'",
    "partition = 1",
    "partition in (0, 7) and priority = 2",
    "state is not null and key is not null",
    "topic = 'nothing'",
    "key like 'k1%' and priority > 1",
    "group = 'g2' and key in ('k2', 'k3', 'k7')",
]


NOTHING = {
    "due < 0",
    f"due > {1 << 60}",
    "key = ''",
    "group = 'g1' and group = 'g2'",
    "state = 'dead'",
    "topic = 'nothing'",
}


@pytest.fixture(scope="session")
def filtered_topic(broker: BrokerProcess) -> str:
    """A topic of 2,000 messages with groups and priorities."""
    with dejaqueue.Client(broker.url) as client:
        client.create_topic("filtered", partitions=2)
        numbers = range(2_000)
        table = pa.table(
            {
                "payload": pa.array([b"p%d" % n for n in numbers], pa.binary()),
                "due": pa.array([FUTURE_MS + n for n in numbers]),
                "key": [f"k{n}" for n in numbers],
                "group": [("g1", "g2", None)[n % 3] for n in numbers],
                "priority": pa.array([n % 7 if n % 2 else 32768 for n in numbers], pa.uint16()),
            }
        )
        client.send_batch("filtered", table)
    return "filtered"


FILTERED_COLUMNS = (
    "id bigint, due bigint, key string, `group` string, priority int, state string, topic string, "
    "partition int"
)


@pytest.fixture(scope="module")
def both_ways(
    spark: SparkSession, broker: BrokerProcess, filtered_topic: str
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The topic for Spark to filter, and for the broker."""
    from dejaqueue.spark import register

    plain = load(spark, broker, filtered_topic, FILTERED_COLUMNS).cache()
    assert plain.count() == 2_000
    register(spark, push_filters=True)
    yield plain, load(spark, broker, filtered_topic, FILTERED_COLUMNS)
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    register(spark)
    plain.unpersist()


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_that_the_broker_applies_find_what_spark_finds(
    both_ways: tuple[DataFrame, DataFrame], condition: str
) -> None:
    plain, pushed = (table.where(condition).toArrow() for table in both_ways)
    assert pushed.sort_by("id").equals(plain.sort_by("id"))
    assert bool(plain.num_rows) != (condition in NOTHING)


PUSHED = [
    f"due >= {FUTURE_MS} and due < {FUTURE_MS + 9}",
    "priority between 2 and 5",
    "`group` = 'g1' and state = 'scheduled'",
    "key in ('k1', 'k2')",
    "id in (1, 140737488355328)",
    "partition = 1",
]


@pytest.mark.parametrize("condition", PUSHED)
def test_a_filter_reaches_the_broker__nothing_is_left_to_spark(
    both_ways: tuple[DataFrame, DataFrame], condition: str
) -> None:
    table = both_ways[1].where(condition)
    plan = table._jdf.queryExecution().executedPlan().toString()
    # Spark asks itself still whether a column that may be null is not.
    left = re.findall(r"Filter (.*)", plan.replace("RuntimeFilters", ""))
    assert all(
        re.fullmatch(r"\(?isnotnull\([^)]*\)( AND isnotnull\([^)]*\))*\)?", one) for one in left
    )
    assert 0 < table.count() < 2_000


def test_a_filter_on_ids_or_partitions_leaves_other_partitions_alone(
    both_ways: tuple[DataFrame, DataFrame],
) -> None:
    whole, one, other = (
        both_ways[1].where(condition).rdd.getNumPartitions()
        for condition in ("id >= 0", "id = 5", "partition = 1")
    )
    assert (whole, one, other) == (2, 1, 1)
