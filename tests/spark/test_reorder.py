"""Covers: the pipeline `reorder`, from a topic of a real Kafka to another one.

Not covered: options and expressions that are refused (tests/unit/pipelines).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dejaqueue
from dejaqueue.errors import BadRequest
from dejaqueue.pipelines import reorder
from dejaqueue.pipelines.frame import Outcome, Run
from dejaqueue.pipelines.frame.progress import Quiet
from dejaqueue.pipelines.reordering.records import FROM_HEADER
from dejaqueue.pipelines.reordering.target import Target
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS
from tests.spark.kafka_process import KafkaProcess, is_installed, spark_jars
from tests.spark.scenarios import wait_for
from tests.spark.standalone import ENVIRONMENT

# Maven Central is not reachable everywhere; where it is, CI runs them.
pytestmark = pytest.mark.may_skip

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000
KEYS = 7
_numbers = count()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[KafkaProcess]:
    """A broker of Kafka."""
    if not is_installed():
        pytest.skip("no Kafka: scripts/install_kafka.sh")
    process = KafkaProcess(tmp_path_factory.mktemp("kafka") / "kafka")
    try:
        process.start()
        yield process
    finally:
        process.stop()


class Line:
    """A Kafka topic, a topic of DejaQ and a Kafka topic, and the pipeline through them."""

    def __init__(
        self, spark: SparkSession, kafka: KafkaProcess, broker: BrokerProcess, folder: Path
    ) -> None:
        name = f"line{next(_numbers)}"
        self.spark, self._kafka = spark, kafka
        self.from_topic, self.to_topic, self.topic = f"{name}.in", f"{name}.out", name
        self._url, self._folder = broker.url, folder

    def put(self, table: DataFrame) -> None:
        """Write records to the first topic."""
        writer: Any = table.write.format("kafka").option("includeHeaders", "true")
        writer = writer.option("kafka.bootstrap.servers", self._kafka.servers)
        writer.option("topic", self.from_topic).save()

    def get(self) -> list[dict[str, Any]]:
        """The records of the last topic, of each of its partitions in their order."""
        reader: Any = self.spark.read.format("kafka").option("includeHeaders", "true")
        reader = reader.option("kafka.bootstrap.servers", self._kafka.servers)
        found = reader.option("subscribe", self.to_topic).load().toArrow()
        rows: list[dict[str, Any]] = found.sort_by(
            [("partition", "ascending"), ("offset", "ascending")]
        ).to_pylist()
        return rows

    def options(self, **more: Any) -> reorder.Options:
        given: dict[str, Any] = {
            "url": self._url, "kafka": self._kafka.servers, "from_topic": self.from_topic,
            "to_topic": self.to_topic, "topic": self.topic, "state": str(self._folder / "state"),
            "column": "get_json_object(value, '$.due')", "once": True,
        }  # fmt: skip
        return reorder.Options(**(given | more))

    def run(self, **more: Any) -> Outcome:
        with Run(self.spark, progress=Quiet()) as run:
            return reorder.run(self.options(**more), run)


@pytest.fixture
def line(spark: SparkSession, kafka: KafkaProcess, broker: BrokerProcess, tmp_path: Path) -> Line:
    return Line(spark, kafka, broker, tmp_path)


def orders(spark: SparkSession, rows: int = ROWS, first: int = 0, due: str = "") -> DataFrame:
    """Records whose time is another order than theirs, in the past by default."""
    due = due or "1700000000000L + pmod(hash(id), 100000)"
    return spark.range(first, first + rows, 1, 2).selectExpr(
        f"cast(concat('k', id % {KEYS}) as binary) key",
        f"cast(to_json(struct(id, {due} as due, id % 11 as urgency)) as binary) value",
    )


def numbers(rows: list[dict[str, Any]]) -> Counter[int]:
    return Counter(json.loads(row["value"])["id"] for row in rows)


def from_of(row: dict[str, Any]) -> bytes:
    [found] = [one["value"] for one in row["headers"] if one["key"] == FROM_HEADER]
    assert isinstance(found, bytes)
    return found


def by_key(rows: list[dict[str, Any]], field: str) -> dict[bytes, list[int]]:
    """The values of a field in the order of the target, by key."""
    found: dict[bytes, list[int]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append(json.loads(row["value"])[field])
    return found


def test_records_come_out_in_the_order_of_their_times__each_once(
    line: Line, client: dejaqueue.Client
) -> None:
    line.put(orders(line.spark))
    line.put(orders(line.spark, 50, ROWS, due="4000000000000L"))
    outcome = line.run()
    rows = line.get()
    assert numbers(rows) == Counter(range(ROWS))
    assert len({from_of(row) for row in rows}) == ROWS
    orders_of_keys = by_key(rows, "due")
    assert len(orders_of_keys) == KEYS
    assert all(dues == sorted(dues) for dues in orders_of_keys.values())
    assert outcome.figures["records_in"] == ROWS + 50
    assert outcome.figures["records_out"] == ROWS
    assert client.counts(line.topic)["scheduled"] == 50
    # A second start goes on: nothing of this comes again.
    line.put(orders(line.spark, 10, ROWS + 50))
    assert line.run().figures["records_out"] == 10
    assert numbers(line.get()) == Counter([*range(ROWS), *range(ROWS + 50, ROWS + 60)])


def test_the_most_urgent_come_first(line: Line) -> None:
    line.put(orders(line.spark, 300))
    line.run(by="priority", column="cast(get_json_object(value, '$.urgency') as int)")
    rows = line.get()
    assert numbers(rows) == Counter(range(300))
    assert all(found == sorted(found) for found in by_key(rows, "urgency").values())
    with pytest.raises(
        BadRequest, match="--topic: of kind timeline, for --by due, got: 'priority'"
    ):
        line.run(state=line.options().state + "2")


def test_a_record_comes_out_as_it_went_in(line: Line) -> None:
    table = line.spark.createDataFrame(
        [
            (b"\xff\x00key", b"\x00\xfe", [("h", b"\xff"), ("h", None), ("text", b"x")]),
            (None, b"", None),
            (b"gone", None, None),
        ],
        "key binary, value binary, headers array<struct<key:string,value:binary>>",
    ).coalesce(1)
    line.put(table)
    line.run(column="headers['nothing']")
    found = {
        (row["key"], row["value"], tuple((h["key"], h["value"]) for h in row["headers"][:-1]))
        for row in line.get()
    }
    assert found == {
        (b"\xff\x00key", b"\x00\xfe", (("h", b"\xff"), ("h", None), ("text", b"x"))),
        (None, b"", ()),
        (b"gone", None, ()),
    }


def test_a_batch_that_broke_off_is_done_again__what_kafka_has_of_it_is_left_out(
    line: Line, monkeypatch: pytest.MonkeyPatch, client: dejaqueue.Client
) -> None:
    line.put(orders(line.spark, 500))
    write = Target.write

    def half(self: Target, batch: DataFrame, number: int) -> None:
        # As if the driver had been killed when Kafka had a part of the batch.
        write(self, batch.where("hash(payload) % 2 = 0"), number)
        raise RuntimeError("planted")

    monkeypatch.setattr(Target, "write", half)
    with pytest.raises(Exception, match="planted"):
        line.run()
    monkeypatch.undo()
    had = len(line.get())
    assert 0 < had < 500
    outcome = line.run()
    rows = line.get()
    assert numbers(rows) == Counter(range(500))
    assert outcome.figures["records_left_out"] == had
    assert not any(client.counts(line.topic).values())


def test_a_lost_state_doubles_nothing_that_waits(line: Line, client: dejaqueue.Client) -> None:
    line.put(orders(line.spark, 100, due="4000000000000L"))
    line.run()
    line.run(state=line.options().state + "2")
    assert client.counts(line.topic)["scheduled"] == 100


def start_program(options: reorder.Options, log: Path) -> subprocess.Popen[bytes]:
    """`dejaq pipeline reorder` as a program of its own, on a Spark of its own."""
    arguments = ["--once", "--max-rows", str(options.max_rows), "--by", options.by]
    arguments += ["--claim-timeout", f"{options.claim_timeout_ms}ms"]
    for name in ("kafka", "from_topic", "to_topic", "topic", "column", "state", "url"):
        arguments += ["--" + name.replace("_", "-"), getattr(options, name)]
    settings = {
        "spark.jars": spark_jars(),
        "spark.jars.packages": "",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "512m",
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.sql.codegen.wholeStage": "false",
    }
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "dejaqueue", "pipeline", "reorder", *arguments, "--json"],
            stdout=out,
            stderr=out,
            env=os.environ | ENVIRONMENT,
            start_new_session=True,
        )


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("SPARK_HEAVY") != "1", reason="make spark-heavy")
def test_the_program_is_killed_while_it_writes__after_its_restart_each_record_is_there_once(
    line: Line, client: dejaqueue.Client, tmp_path: Path
) -> None:
    line.put(orders(line.spark))
    options, log = line.options(max_rows=200, claim_timeout_ms=20_000), tmp_path / "log"
    client.create_topic(line.topic)
    first = start_program(options, log)

    def is_writing() -> bool:
        """All of it was in DejaQ, and some of that is gone."""
        counts = client.counts(line.topic)
        return first.poll() is not None or 0 < counts["leased"] <= counts["scheduled"] < ROWS - 400

    try:
        wait_for(is_writing, 240)
    finally:
        os.killpg(first.pid, signal.SIGKILL)  # the JVM too
        first.wait(PATIENCE_SECONDS)
    assert first.returncode == -signal.SIGKILL, log.read_text()[-4_000:]
    assert 0 < len(line.get()) < ROWS
    second = start_program(options, log)
    assert second.wait(200) == 0, log.read_text()[-4_000:]
    # What was claimed when the program died, and noted nowhere, comes when the claim is over.
    wait_for(lambda: not client.counts(line.topic)["leased"])
    line.run()
    assert numbers(line.get()) == Counter(range(ROWS))
    assert not any(client.counts(line.topic).values())
