"""The demo on Spark: a campaign to a year of flights, drained, checked by key, and audited.

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
from dejaqueue.pipelines import audit, campaign
from dejaqueue.pipelines.frame import Outcome, Run
from dejaqueue.pipelines.frame.session import Session
from dejaqueue.pipelines.schedule.stagger import Rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC, NAME = "flights", "welcome"
TEMPLATE = "Welcome to {airport|your destination}, {user}"
ELSEWHERE = "America/Puerto_Rico"
"""The zone of the few destinations that the list of airports lacks: Puerto Rico, Virgin Islands."""
LEAD_MS = 1_000
YEAR_ROWS = 336_776
REHEARSED = 1_000
FAR_MS = 3_600_000
GRACE_MS = 60_000
AUDITED = ("messages", "lost", "early", "duplicate", "late", "gaps")
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
        not_stopped: messages of the rehearsal that a stop of it left; should be none.
        sockets: those open beyond loopback; None = nobody can tell here.
        audited: what the broker's own history says of it.
    """

    check: Check
    planned: dict[str, Any]
    not_stopped: int
    sockets: list[str] | None
    audited: Outcome

    @property
    def is_good(self) -> bool:
        """True if each message came once, at its time, and nothing was open to the world."""
        wrong = (self.sockets, self.planned["late"], self.not_stopped)
        return self.check.is_good and self.audited.is_good and not any(wrong)

    def figures(self) -> dict[str, Any]:
        """Each figure by its printed name."""
        shown = {name: self.planned[name] for name in ("peak_per_second", "late", "first", "last")}
        beyond = None if self.sockets is None else len(self.sockets)
        more = {"not_stopped": self.not_stopped, "sockets_beyond_loopback": beyond}
        audited = self.audited.figures
        more |= {f"audit_{name}": audited[name] for name in AUDITED if name in audited}
        return {**self.check.figures(), **shown, **more}


def run_demo(options: Options) -> Result:
    """Run it and tell what came of it."""
    clock = SystemClock()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dejaq-demo-")))
        # Spark has a folder of its own in mind for what is relative.
        arrived = (options.out / "arrived").absolute()
        shutil.rmtree(arrived, ignore_errors=True)
        options.out.mkdir(parents=True, exist_ok=True)
        run = Run(session=Session("dejaq demo-spark", settings=SETTINGS), clock=clock)
        stack.enter_context(run)
        # Whoever lacks Java is told before a broker is started.
        spark = run.spark
        broker = BrokerProcess(folder / "data", folder / "broker.log")
        stack.enter_context(broker)
        flights = _read_flights(options.day)
        _write_airports(folder / "airports.parquet")
        not_stopped, rehearsed_ms = _rehearse(run, broker.url, folder, flights, options.rate)
        start_ms = clock.now_ms() + _lead_ms(rehearsed_ms, flights.num_rows)
        cast = Cast(run, broker.url, TOPIC, folder / "flights", options.rate)
        planned = cast.schedule(flights, start_ms, options.length_ms)
        drain = Drain(spark, broker.url, arrived, folder / "checkpoint")
        sockets = drain.until(planned["planned"], clock, start_ms + options.length_ms, run)
        with run.step("checking every key"):
            came = spark.read.parquet(str(arrived))
            found = check(cast.audience(), cast.scheduled(), came, NAME, options.rate)
        asked = audit.Options.of(
            {
                "url": broker.url,
                "topics": TOPIC,
                "late_ms": FAR_MS,
                "report": str(options.out / "audit.html"),
            }
        )
        audited = audit.run(asked, run)
    return Result(found, planned, not_stopped, sockets, audited)


def _lead_ms(rehearsed_ms: int, rows: int) -> int:
    """How far ahead the first message has to be, so that all are scheduled by then.

    Of a few rows Spark takes most of its time for itself, as long as it took for the rehearsal;
    with a year of them that is a third longer.

    >>> _lead_ms(8_000, 1_000), _lead_ms(8_000, YEAR_ROWS)
    (8208, 11400)
    """
    return LEAD_MS + rehearsed_ms * (900 + 400 * rows // YEAR_ROWS) // 1_000


def _rehearse(run: Run, url: str, folder: Path, flights: pa.Table, rate: int) -> tuple[int, int]:
    """The same with some flights, and stopped: (messages that were cancelled, how long it took).

    The first of everything takes Spark longer; and the demo has to know how far ahead it begins.
    """
    began_ms = run.clock.now_ms()
    some = flights.slice(0, REHEARSED)
    cast = Cast(run, url, "rehearsal", folder / "rehearsal", rate)
    run.say(f"a rehearsal with {some.num_rows:,} flights, which is stopped again")
    cast.run_campaign(some, began_ms + FAR_MS, FAR_MS)
    stopping = campaign.Options(url=url, topic=cast.topic, campaign=NAME, stop=True)
    stopped = campaign.run(stopping, run).figures["cancelled"]
    return some.num_rows - int(stopped), run.clock.now_ms() - began_ms


@dataclass(frozen=True, slots=True)
class Cast:
    """A campaign of flights: its audience, its topic, and what the topic then has."""

    run: Run
    url: str
    topic: str
    folder: Path
    rate: int

    def schedule(self, flights: pa.Table, start_ms: int, length_ms: int) -> dict[str, Any]:
        """Run the campaign, and note what the topic then has; the campaign's figures."""
        figures = self.run_campaign(flights, start_ms, length_ms)
        with self.run.step("reading the topic as a table"):
            reader = self.run.spark.read.format("dejaq").option("url", self.url)
            table = reader.schema("key string, due bigint").load(self.topic)
            table.write.parquet(str(self.folder / "scheduled"))
        return figures

    def run_campaign(self, flights: pa.Table, start_ms: int, length_ms: int) -> dict[str, Any]:
        """Run the campaign; its figures."""
        with Client(self.url) as client:
            client.create_topic(self.topic, partitions=2, history=True)
        with self.run.step(f"writing an audience of {flights.num_rows:,}"):
            _write_audience(self.run.spark, self.folder, flights, start_ms, length_ms)
        options = campaign.Options(
            url=self.url,
            topic=self.topic,
            campaign=NAME,
            template=TEMPLATE,
            audience=str(self.folder / "audience"),
            send_at="send_at",
            zone_default=ELSEWHERE,
            rate=Rate(self.rate),
        )
        return dict(campaign.run(options, self.run).figures)

    def audience(self) -> DataFrame:
        """What was wanted."""
        return self.run.spark.read.parquet(str(self.folder / "audience"))

    def scheduled(self) -> DataFrame:
        """What the topic had, before any of it was due."""
        return self.run.spark.read.parquet(str(self.folder / "scheduled"))


def _read_flights(day: date | None) -> pa.Table:
    """Flights with a key each, where they go, and their scheduled departure."""
    rows = read_rows(find_file()).combine_chunks()
    flights = to_flights(rows)
    table = pa.table(
        {"user": flights.keys, "dest": rows["dest"], "scheduled_ms": flights.scheduled_ms}
    )
    if day is None:
        return table
    days = [rows[name].to_numpy() for name in ("year", "month", "day")]
    wanted = (days[0] == day.year) & (days[1] == day.month) & (days[2] == day.day)
    if not wanted.any():
        raise BadRequest("--date", "a day of 2013", day.isoformat())
    return table.filter(pa.array(wanted))


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
    folder.mkdir(exist_ok=True)
    path = folder / "flights.parquet"
    parquet.write_table(table.append_column("asked_ms", pa.array(asked)), path)
    flights = spark.read.parquet(str(path))
    airports = spark.read.parquet(str(folder.parent / "airports.parquet"))
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
                if self.count and clock.now_ms() - said_ms >= SAY_EVERY_MS:
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
