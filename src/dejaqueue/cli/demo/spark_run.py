"""The demo on Spark: a campaign to a year of flights, drained by a streaming query, checked.

Room: cli. A real broker as a process, the pipeline `campaign` as any program runs it.
Holds: nothing is opened beyond loopback, and what is open is looked at; whatever was started ends.
See: spark_check.py, docs/guides/pipelines.md.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from pyarrow import csv

from dejaqueue import Client
from dejaqueue.cli.demo.flights import find_file, read_rows, to_flights
from dejaqueue.cli.demo.processes import BrokerProcess
from dejaqueue.cli.demo.sockets import beyond_loopback
from dejaqueue.cli.demo.spark_check import Check, check
from dejaqueue.cli.demo.stamp import SCHEMA, stamp
from dejaqueue.clock import SystemClock, Wake
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.pipelines import campaign
from dejaqueue.pipelines.frame import Run
from dejaqueue.pipelines.frame.session import Session
from dejaqueue.pipelines.schedule.stagger import Rate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC, NAME = "flights", "welcome"
TEMPLATE = "Welcome to {airport|your destination}, {user}"
ELSEWHERE = "America/Puerto_Rico"
"""The zone of the few destinations that the list of airports lacks: Puerto Rico, Virgin Islands."""
LEAD_MS_MIN = 6_000
GRACE_MS = 60_000
LOOK_EVERY_MS = 300
SAY_EVERY_MS = 5_000
SETTINGS = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "1g"}


@dataclass(frozen=True, slots=True)
class Options:
    """What to do.

    Attributes:
        length_ms: from the first message to the last.
        rate: messages a second at most.
        day: one day instead of the year.
        out: folder for what arrived, and the page; emptied before.
    """

    length_ms: int
    rate: int
    day: date | None
    out: Path


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it.

    Attributes:
        planned: figures of the campaign.
        sockets: those open beyond loopback; None = nobody can tell here.
    """

    check: Check
    planned: dict[str, Any]
    sockets: list[str] | None

    @property
    def is_good(self) -> bool:
        """True if each message came once, at its time, and nothing was open to the world."""
        return self.check.is_good and not self.sockets and not self.planned["late"]

    def figures(self) -> dict[str, Any]:
        """Each figure by its printed name."""
        shown = {name: self.planned[name] for name in ("peak_per_second", "late", "first", "last")}
        beyond = None if self.sockets is None else len(self.sockets)
        return {**self.check.figures(), **shown, "sockets_beyond_loopback": beyond}


def run_demo(options: Options) -> Result:
    """Run it and tell what came of it."""
    clock = SystemClock()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dejaq-demo-")))
        arrived = options.out / "arrived"
        shutil.rmtree(arrived, ignore_errors=True)
        options.out.mkdir(parents=True, exist_ok=True)
        run = Run(session=Session("dejaq demo-spark", settings=SETTINGS), clock=clock)
        stack.enter_context(run)
        # Whoever lacks Java is told before a broker is started.
        spark = run.spark
        broker = BrokerProcess(folder / "data", folder / "broker.log")
        stack.enter_context(broker)
        with Client(broker.url) as client:
            client.create_topic(TOPIC, partitions=2)
        began_ms = clock.now_ms()
        with run.step("joining flights with the time zones of their airports"):
            table = _write_flights(folder / "flights.parquet", options.day)
            _write_airports(folder / "airports.parquet")
        lead_ms = LEAD_MS_MIN + 4 * (clock.now_ms() - began_ms)
        start_ms = clock.now_ms() + lead_ms
        with run.step(f"writing the audience of {table.num_rows:,}"):
            _write_audience(spark, folder, table, start_ms, options.length_ms)
        planned = dict(
            campaign.run(
                campaign.Options(
                    url=broker.url, topic=TOPIC, campaign=NAME, template=TEMPLATE,
                    audience=str(folder / "audience"), send_at="send_at", zone_default=ELSEWHERE,
                    rate=Rate(options.rate),
                ),
                run,
            ).figures
        )  # fmt: skip
        with run.step("reading the schedule as a table"):
            table_reader = spark.read.format("dejaq").option("url", broker.url)
            scheduled = table_reader.schema("key string, due bigint").load(TOPIC)
            scheduled.write.parquet(str(folder / "scheduled"))
        drain = Drain(spark, broker.url, arrived, folder / "checkpoint")
        sockets = drain.until(planned["planned"], clock, start_ms + options.length_ms, run)
        with run.step("checking every key"):
            tables = [folder / "audience", folder / "scheduled", arrived]
            expected, planned_rows, came = (spark.read.parquet(str(path)) for path in tables)
            found = check(expected, planned_rows, came, NAME, options.rate)
    return Result(found, planned, sockets)


def _write_flights(path: Path, day: date | None) -> pa.Table:
    """Flights with a key each, where they go, and their scheduled departure, as Parquet."""
    rows = read_rows(find_file()).combine_chunks()
    flights = to_flights(rows)
    table = pa.table(
        {"user": flights.keys, "dest": rows["dest"], "scheduled_ms": flights.scheduled_ms}
    )
    if day is not None:
        days = [rows[name].to_numpy() for name in ("year", "month", "day")]
        wanted = (days[0] == day.year) & (days[1] == day.month) & (days[2] == day.day)
        table = table.filter(pa.array(wanted))
        if not table.num_rows:
            raise BadRequest("--date", "a day of 2013", day.isoformat())
    parquet.write_table(table, path)
    return table


def _write_airports(path: Path) -> None:
    """Airports with their names and time zones, as Parquet."""
    options = csv.ConvertOptions(
        include_columns=["faa", "name", "tzone"], null_values=["", "NA"], strings_can_be_null=True
    )
    table = csv.read_csv(find_file("airports.csv"), convert_options=options)
    parquet.write_table(table.rename_columns(["dest", "airport", "zone"]), path)


def _write_audience(
    spark: SparkSession, folder: Path, table: pa.Table, start_ms: int, length_ms: int
) -> None:
    """Each flight with the local time, where it goes, at which its message is wanted.

    The departures of the whole stretch are put into `length_ms` from `start_ms` on. `asked_ms` and
    `words` are for the check; the pipeline reads neither.
    """
    from pyspark.sql import functions as sql

    scheduled = table["scheduled_ms"].to_numpy()
    first, span = int(scheduled.min()), max(int(np.ptp(scheduled)), 1)
    asked = start_ms + (scheduled - first) * length_ms // span
    parquet.write_table(
        table.append_column("asked_ms", pa.array(asked)), folder / "flights.parquet"
    )
    flights = spark.read.parquet(str(folder / "flights.parquet"))
    airports = spark.read.parquet(str(folder / "airports.parquet"))
    instant, zone = sql.timestamp_millis("asked_ms"), sql.coalesce("zone", sql.lit(ELSEWHERE))
    joined = flights.join(sql.broadcast(airports), "dest", "left").select(
        "user",
        "zone",
        "airport",
        "asked_ms",
        sql.from_utc_timestamp(instant, zone).cast("timestamp_ntz").alias("send_at"),
        sql.expr("concat('Welcome to ', coalesce(airport, 'your destination'), ', ', user)").alias(
            "words"
        ),
    )
    joined.write.parquet(str(folder / "audience"))


class Drain:
    """The streaming query that takes what is due, and writes it as Parquet with its time."""

    def __init__(self, spark: SparkSession, url: str, out: Path, checkpoint: Path) -> None:
        self._spark, self._url = spark, url
        self._out, self._checkpoint = str(out), str(checkpoint)
        self._counts: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Rows in batches that are done."""
        return sum(self._counts.values())

    def until(self, planned: int, clock: SystemClock, end_ms: int, run: Run) -> list[str] | None:
        """Drain until so many have come, or they should have; sockets open beyond loopback.

        Raises:
            Unavailable: the query failed.
        """
        query = self._start()
        sockets: list[str] | None = []
        said_ms = clock.now_ms()
        with run.step(f"draining {planned:,} messages as they fall due"):
            while self.count < planned and clock.now_ms() < end_ms + GRACE_MS:
                clock.wait_until((clock.now_ms() + LOOK_EVERY_MS) * 1_000, Wake())
                if self._look(query) and not sockets:
                    sockets = beyond_loopback(os.getpid())
                if clock.now_ms() - said_ms >= SAY_EVERY_MS:
                    said_ms = clock.now_ms()
                    run.say(f"{self.count:,} have arrived")
            query.stop()
        # Once more from the checkpoint, as after a restart: it acks the last batch, and what was
        # done is not done again.
        with run.step("restarting the query from its checkpoint"):
            again = self._start(available_now=True)
            again.awaitTermination()
        return sockets

    def _start(self, *, available_now: bool = False) -> StreamingQuery:
        source = self._spark.readStream.format("dejaq").option("url", self._url)
        rows = source.schema("key string, payload binary").load(TOPIC)
        writer = rows.mapInArrow(stamp, SCHEMA).writeStream.format("parquet")
        writer = writer.option("path", self._out).option("checkpointLocation", self._checkpoint)
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def _look(self, query: StreamingQuery) -> bool:
        """Note the batches that are done; True if there are any."""
        failure = query.exception()
        if failure is not None:
            raise Unavailable(f"the streaming query failed: {str(failure)[:500]}")
        for progress in query.recentProgress:
            self._counts[progress.batchId] = progress.numInputRows
        return self.count > 0
