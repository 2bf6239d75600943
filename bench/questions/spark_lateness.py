"""How late does a streaming query of Spark have what is due, by its trigger?

Messages are due evenly, 200 a second. A query reads them, and each batch's rows are collected by
the program (`foreachBatch`). Lateness is from a message's due time until the program has its row.

- `as_fast`: a `processingTime` of 0, as without a trigger: a batch when the one before is done.
- `every_second`: a `processingTime` of one second.
- `available_now`: a query that ends when it has read what was due, and is started again at once.
- `…_ceiling`: the same with a source that needs no broker and makes its rows by the clock: what
  Spark itself takes for a source that is written in Python.
- `batch`: how long a batch of `as_fast` takes, and `batch_…` what of it a part takes, in Spark's
  words for them: half of all batches.

Spark's other two triggers, `continuous` and `realTime`, are tried: what it says to them is kept.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load import even_load
from bench.percentiles import percentile, spread
from bench.questions.spark import missing_part, start_spark, stop_spark
from bench.results import Outcome, Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.system import Plan
from dejaqueue.clock import SystemClock

QUESTION = "spark_lateness"
PER_SECOND = 200
AHEAD_MS = 1_000
WARM_ROWS = 100
WAIT_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.2
REFUSAL_SECONDS_MAX = 30
ROUNDS_MAX = 3
PERCENTS = {"p50": 50.0, "p99": 99.0}
TRIGGERS: dict[str, dict[str, Any]] = {
    "as_fast": {"processingTime": "0 seconds"},
    "every_second": {"processingTime": "1 second"},
    "available_now": {"availableNow": True},
}
REFUSED: dict[str, dict[str, Any]] = {
    "continuous": {"continuous": "1 second"},
    "realTime": {"realTime": "5 seconds"},
}
PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Of a batch, in Spark's words."""

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    missing = missing_part()
    if missing:
        return Outcome(left_out=[missing])
    system = DejaqSystem()
    system.start(plan.folder)
    session = start_spark()
    session.dataSource.register(clocked_source())
    found: dict[str, list[float]] = {}
    outcome = Outcome()
    sources: dict[str, Topic | Clocked] = {"": Topic(system), "_ceiling": Clocked()}
    try:
        for number in range(min(plan.rounds, ROUNDS_MAX) + 1):
            for case, trigger in TRIGGERS.items():
                for name, source in sources.items():
                    measured = Reading(session, source, trigger).run(plan.seconds)
                    report(f"round {number}: {case}{name}: {measured.words()}")
                    if number == 0 and not plan.quick:
                        continue  # the JVM compiles
                    for part, value in measured.figures(f"{case}{name}").items():
                        found.setdefault(part, []).append(value)
        for name, trigger in REFUSED.items():
            outcome.left_out.append(f"{name}: {refusal(session, trigger)}")
    finally:
        stop_spark(session)
        system.stop()
    for case, values in found.items():
        of = "spark" if "_ceiling" in case else "dejaq"
        outcome.rows.append(Row(QUESTION, of, case, round(median(values), 1), "ms"))
        outcome.spreads[f"{of}/{case}"] = spread(values)
    return outcome


@dataclass(frozen=True, slots=True)
class Measured:
    """What a query did: the lateness of each row in milliseconds, and parts of its batches."""

    late_ms: list[float]
    batches: list[dict[str, int]]

    def figures(self, case: str) -> dict[str, float]:
        """Percentiles by the names of cases; of `as_fast` what a batch consists of, too."""
        figures = {f"{case}_{name}": percentile(self.late_ms, p) for name, p in PERCENTS.items()}
        if case == "as_fast":
            figures["batch"] = median(one["triggerExecution"] for one in self.batches)
            for part in PARTS:
                figures[f"batch_{part}"] = median(one.get(part, 0) for one in self.batches)
        return figures

    def words(self) -> str:
        """The same for people."""
        return ", ".join(f"{name} {value:.4g} ms" for name, value in self.figures("").items())


class Topic:
    """Messages of a topic, due evenly."""

    def __init__(self, system: DejaqSystem) -> None:
        self._system = system
        self._topic = ""

    def stream(self, session: Any, first_ms: int) -> Any:
        """The topic as a stream, with some messages that do not count."""
        self._topic = self._system.new_topic(partitions=2)
        self.fill(first_ms, WARM_ROWS)
        options = {"url": self._system.url, "topic": self._topic}
        return session.readStream.format("dejaq").options(**options).schema("due bigint").load()

    def fill(self, first_ms: int, rows: int) -> None:
        """Have so many messages more, due one after the other from then on."""
        load = even_load(rows, first_ms, PER_SECOND, 1)
        self._system.fill(self._topic, load, WAIT_SECONDS_MAX)


class Clocked:
    """Rows that a source makes by the clock, without an end."""

    def stream(self, session: Any, first_ms: int) -> Any:
        """The rows as a stream."""
        options = {"first_ms": str(first_ms)}
        return session.readStream.format("dejaq_bench_clocked").options(**options).load()

    def fill(self, first_ms: int, rows: int) -> None:
        """They come by themselves."""


class Reading:
    """One query, from its start until the last row that counts came."""

    def __init__(self, session: Any, source: Topic | Clocked, trigger: dict[str, Any]) -> None:
        self._session, self._source, self._trigger = session, source, trigger
        self._clock = SystemClock()
        self._late_ms: list[float] = []
        self._span_ms = range(0)
        self._is_warm, self._is_over = threading.Event(), threading.Event()

    def run(self, seconds: float) -> Measured:
        """Read what is due in so many seconds, once the query has shown its first rows."""
        began_ms = self._clock.now_ms()
        table = self._source.stream(self._session, began_ms)
        folder = tempfile.mkdtemp(prefix="dejaq-bench-")
        queries: list[Any] = []
        try:
            writer = table.writeStream.foreachBatch(self._take).trigger(**self._trigger)
            writer = writer.option("checkpointLocation", folder)
            for phase, over in ((None, self._is_warm), (began_ms, self._is_over)):
                if phase is not None:
                    self._begin(began_ms, seconds)
                queries += self._wait(writer, over, queries)
            queries[-1].stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        batches = [one for query in queries for one in query.recentProgress]
        counted = [dict(one["durationMs"]) for one in batches if one["numInputRows"]]
        return Measured(self._late_ms, counted[1:] or counted)

    def _begin(self, began_ms: int, seconds: float) -> None:
        """From soon on rows count; they are due when a clocked source has some, too."""
        step_ms = 1_000 // PER_SECOND
        steps = (self._clock.now_ms() + AHEAD_MS - began_ms) // step_ms
        first_ms, rows = began_ms + steps * step_ms, int(PER_SECOND * seconds)
        self._span_ms = range(first_ms, first_ms + rows * step_ms, step_ms)
        self._source.fill(first_ms, rows)

    def _wait(self, writer: Any, over: threading.Event, queries: list[Any]) -> list[Any]:
        """Have a query run until then: the one that runs, or one after the other; the new ones."""
        ends = "availableNow" in self._trigger
        started: list[Any] = []
        until = time.monotonic() + WAIT_SECONDS_MAX
        while not over.is_set():
            if time.monotonic() > until:
                raise AssertionError(f"{len(self._late_ms)} of {len(self._span_ms)} rows came")
            if ends or not queries + started:
                started.append(writer.start())
            # Raises what ended a query that should go on.
            (queries + started)[-1].awaitTermination(None if ends else LOOK_SECONDS)
        return started

    def _take(self, table: Any, _number: int) -> None:
        dues_ms = [row[0] for row in table.select("due").collect()]
        now_ms = self._clock.now_us() / 1_000
        self._late_ms += [now_ms - due for due in dues_ms if due in self._span_ms]
        if dues_ms:
            self._is_warm.set()
        if self._span_ms and len(self._late_ms) >= len(self._span_ms):
            self._is_over.set()


def refusal(session: Any, trigger: dict[str, Any]) -> str:
    """What Spark says to a query with such a trigger; the first sentence of it."""
    from pyspark.errors import PySparkException

    table = Clocked().stream(session, SystemClock().now_ms())
    folder = tempfile.mkdtemp(prefix="dejaq-bench-")
    try:
        # A sink that both triggers know: it is about the source.
        writer = table.writeStream.format("console").outputMode("update").trigger(**trigger)
        query = writer.option("checkpointLocation", folder).start()
        if query.awaitTermination(REFUSAL_SECONDS_MAX):
            return "it ends at once"
        query.stop()
    except PySparkException as refused:
        found = re.search(r"\[[A-Z_.]+\] [^\n]*", str(refused))
        return found[0] if found else str(refused).splitlines()[0]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise AssertionError(f"Spark takes {trigger} now: measure it")


def clocked_source() -> type:
    """A source that has a row every 5 ms, by the clock, and asks nobody."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    class Stretch(InputPartition):
        def __init__(self, first: int, end: int) -> None:
            self.first, self.end = first, end

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        """Rows are numbered; each is there when its time has come."""

        def __init__(self, options: Any) -> None:
            self._first_ms = int(options["first_ms"])
            self._rows_most: int | None = None

        def _due(self) -> int:
            passed_ms = SystemClock().now_ms() - self._first_ms + 1
            return max(0, -(-passed_ms * PER_SECOND // 1_000))

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"row": 0}

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._rows_most = self._due()

        def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
            most = self._due() if self._rows_most is None else self._rows_most
            return {"row": max(start["row"], most)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            middle = (start["row"] + end["row"]) // 2
            edges = ((start["row"], middle), (middle, end["row"]))
            return [Stretch(first, last) for first, last in edges if first < last]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            assert isinstance(partition, Stretch)
            rows = np.arange(partition.first, partition.end)
            dues_ms = self._first_ms + rows * 1_000 // PER_SECOND
            yield pa.RecordBatch.from_pydict({"due": pa.array(dues_ms, pa.int64())})

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dejaq_bench_clocked"

        def schema(self) -> str:
            return "due bigint"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return Reader(self.options)

    return Source
