"""`dejaq pipeline audit`: what history says was lost, early, delivered twice, late.

Room: pipelines.
Holds: nothing is leased and nothing changes; where history has a gap nothing is concluded across
it, and the gap is named.
See: auditing/ (what is looked for, figures, page), docs/guides/audit.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.auditing.faults import (
    FAULTS,
    GAP_COLUMNS,
    HISTORY_COLUMNS,
    Bounds,
    faults_of,
    gaps_of,
    with_lives,
)
from dejaqueue.pipelines.auditing.figures import (
    COUNTED,
    QUANTILES,
    figures_of,
    spread_of,
    totals_of,
)
from dejaqueue.pipelines.auditing.findings import EXAMPLES_MAX, Findings
from dejaqueue.pipelines.frame import (
    Instant,
    Names,
    Outcome,
    Pipeline,
    PipelineOptions,
    Run,
    Shown,
    Span,
    main,
)
from dejaqueue.times import show_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUPS_SHOWN = 50
HOURS_SHOWN = 24 * 366


class Options(PipelineOptions):
    """Options of an audit."""

    topics: Names = Field(default=(), description="Whose messages; of --history: all by default.")
    history: Annotated[str | None, Shown("DIRECTORY")] = Field(
        default=None,
        description="Read the history in this directory, a broker's or an archive's. "
        "[default: through the broker]",
    )
    from_ms: Instant | None = Field(default=None, description="What happened from then on.")
    to_ms: Instant | None = Field(default=None, description="What happened before.")
    late_ms: Span = Field(
        default="1s", validate_default=True, description="A delivery that is later is a fault."
    )
    lost_ms: Span = Field(
        default="1h",
        validate_default=True,
        description="With --history: a message to which nothing happened for so long after it was "
        "due is lost. Otherwise the broker is asked what it has.",
    )
    report: Annotated[str | None, Shown("FILE")] = Field(
        default=None, description="Write a page with plots here, as HTML."
    )
    figures: Annotated[str | None, Shown("DIRECTORY")] = Field(
        default=None, description="Write counts by topic, group and hour here, as Parquet."
    )
    faults: Annotated[str | None, Shown("DIRECTORY")] = Field(
        default=None, description="Write every fault here, as Parquet."
    )


def run(options: Options, run: Run) -> Outcome:
    """Say what became of messages: lost, early, delivered twice, late, and how late.

    Reads the history of topics that keep one. The exit status is 1 if there is a fault, or a gap
    in the history.
    """
    if not options.topics and options.history is None:
        raise BadRequest("--topics", "the names of topics, or --history", None)
    until_ms = run.clock.now_ms() if options.to_ms is None else options.to_ms
    spark = run.spark
    live = None
    if options.history is None and options.to_ms is None:
        with run.step("asking the broker what it has"):
            live = _live(options, spark).persist()
            live.count()  # before the history is read
    # Each is a table of its own: the broker sends no more than it takes, and few files have gaps.
    lives = with_lives(_history(options, spark, HISTORY_COLUMNS), _gaps(options, spark)).persist()
    bounds = Bounds(options.late_ms, options.lost_ms, until_ms)
    faults = faults_of(lives, bounds, live).persist()
    gaps = _gaps(options, spark).persist()
    try:
        with run.step("reading the history"):
            counted = lives.count()
            gaps.count()  # again: one that came meanwhile is told
        figures = figures_of(lives, faults)
        findings = _collect(run, lives, faults, gaps, figures)
        if options.figures is not None:
            with run.step("writing figures"):
                figures.write.mode("overwrite").parquet(options.figures)
        if options.faults is not None:
            with run.step("writing faults"):
                faults.write.mode("overwrite").parquet(options.faults)
    finally:
        for table in (faults, lives, gaps, live):
            if table is not None:
                table.unpersist()
    shown = _shown(findings, counted)
    if options.report is not None:
        from dejaqueue.pipelines.auditing.page import write_report

        write_report(Path(options.report), findings, _summary(options, findings), shown)
        shown["report"] = options.report
    return Outcome(shown, is_good=findings.is_good)


def _history(options: Options, spark: SparkSession, columns: tuple[str, ...]) -> DataFrame:
    """The history that is asked for, these columns."""
    if options.history is None:
        named = options.source_options(view="history", columns=",".join(columns))
        tables = [
            spark.read.format("dejaq").options(**named).load(topic) for topic in options.topics
        ]
        history = tables[0]
        for table in tables[1:]:
            history = history.unionByName(table)
    else:
        history = spark.read.parquet(options.history).withColumn("topic", _text("topic"))
        history = history.select(*columns)
        if options.topics:
            history = history.where(history["topic"].isin(*options.topics))
    if options.from_ms is not None:
        history = history.where(history["at_ms"] >= options.from_ms)
    if options.to_ms is not None:
        history = history.where(history["at_ms"] < options.to_ms)
    return history


def _gaps(options: Options, spark: SparkSession) -> DataFrame:
    """Where it has gaps; read anew each time."""
    return gaps_of(_history(options, spark, GAP_COLUMNS).where("change = 'gap'"))


def _text(name: str) -> Any:
    """A column as text: Spark takes a topic called 7 for a number."""
    from pyspark.sql import functions as f

    return f.col(name).cast("string")


def _live(options: Options, spark: SparkSession) -> DataFrame:
    """What the broker has: topic, partition, id, end; rows without an id say `end` alone."""
    from pyspark.sql import functions as f

    from dejaqueue.spark.options import Options as SourceOptions

    ends: list[tuple[str, int, int]] = []
    for topic in options.topics:
        transport = SourceOptions.of(options.source_options(topic=topic)).transport()
        try:
            found = transport.action("scan_ranges", {"name": topic}).result()
        finally:
            transport.close()
        ends += [(topic, part["partition"], part["end"]) for part in found["partitions"]]
    places = spark.createDataFrame(ends, "topic string, partition int, end bigint")
    live = places.withColumn("id", f.lit(None).cast("bigint"))
    for topic in options.topics:
        reader = spark.read.format("dejaq").schema("topic string, partition int, id bigint")
        table = reader.options(**options.source_options()).load(topic)
        live = live.unionByName(table.withColumn("end", f.lit(None).cast("bigint")))
    return live


def _collect(
    run: Run, lives: DataFrame, faults: DataFrame, gaps: DataFrame, figures: DataFrame
) -> Findings:
    """Everything that fits into memory."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    with run.step("counting by topic, group and hour"):
        table = figures.persist()
        numbers = (*COUNTED, *FAULTS)
        sums = [f.sum(name).alias(name) for name in numbers]
        tops = [f.max(name).alias(name) for name in (*QUANTILES, "max_ms")]
        hours = table.groupBy("topic", "hour_ms").agg(*sums, *tops)
        hour_rows = hours.orderBy(f.desc("hour_ms")).limit(HOURS_SHOWN).collect()
        worst = f.desc(sum((f.col(name) for name in FAULTS), f.lit(0)))
        groups = table.groupBy("topic", "group").agg(*sums, *tops)
        group_rows = groups.orderBy(worst, f.desc("max_ms"), "topic", "group").limit(GROUPS_SHOWN)
        groups_found = [row.asDict() for row in group_rows.collect()]
        counts = table.agg(*[f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in FAULTS])
        by_fault = counts.first()
        table.unpersist()
    with run.step("looking at faults and lateness"):
        total = totals_of(lives).first()
        place = Window.partitionBy("fault").orderBy("at_ms", "topic", "id")
        few = faults.withColumn("_place", f.row_number().over(place))
        examples = few.where(f.col("_place") <= EXAMPLES_MAX // len(FAULTS)).drop("_place")
        gap_rows = [row.asDict() for row in gaps.orderBy("at_ms").limit(EXAMPLES_MAX).collect()]
        gap_total = gaps.agg(f.count("*").alias("gaps"), f.sum("missed").alias("missed")).first()
        spread = [(row["bucket"], row["count"]) for row in spread_of(lives).collect()]
        examples_found = [row.asDict() for row in examples.orderBy("fault", "at_ms").collect()]
    assert total is not None
    assert by_fault is not None
    assert gap_total is not None
    quantiles = total["quantiles"] or []
    return Findings(
        messages=total["messages"],
        deliveries=total["deliveries"],
        unknown_begin=total["unknown_begin"] or 0,
        faults={name: by_fault[name] for name in FAULTS},
        gaps=gap_total["gaps"],
        missed=gap_total["missed"] or 0,
        from_ms=total["from_ms"] or 0,
        to_ms=total["to_ms"] or 0,
        quantiles=dict(zip(QUANTILES, quantiles, strict=False)),
        max_ms=total["max_ms"] or 0,
        figures=[row.asDict() for row in hour_rows],
        groups=groups_found,
        spread=spread,
        examples=examples_found,
        gap_rows=gap_rows,
    )


def _shown(found: Findings, changes: int) -> dict[str, Any]:
    """The figures, by name."""
    shown: dict[str, Any] = {
        "from": show_instant(found.from_ms),
        "to": show_instant(min(found.to_ms, limits.INSTANT_MS_MAX)),
        "changes": changes,
        "messages": found.messages,
        "deliveries": found.deliveries,
        **found.faults,
        "gaps": found.gaps,
        "missed": found.missed,
        "unknown_begin": found.unknown_begin,
    }
    shown |= {f"lateness_{name}": found.quantiles.get(name) for name in QUANTILES}
    shown["lateness_max_ms"] = found.max_ms
    return shown


def _summary(options: Options, found: Findings) -> str:
    whose = ", ".join(options.topics) or options.history or ""
    text = f"History of {whose}, {show_instant(found.from_ms)} to {show_instant(found.to_ms)}."
    if found.unknown_begin:
        text += f" Of {found.unknown_begin:,} messages it does not have the begin."
    return text


PIPELINE = Pipeline(
    "audit",
    Options,
    run,
    epilog="Examples: `dejaq pipeline audit --topics mail,sms --report audit.html` · "
    "`dejaq pipeline audit --history /archive --from 2033-05-01T00:00:00Z --late 5s --json`",
)

if __name__ == "__main__":
    main(PIPELINE)
