"""`dejaq pipeline forecast`: what is due when, and what that asks of consumers and partitions.

Room: pipelines.
Holds: nothing is leased and nothing changes; counts are exact for what is there when it is read.
See: load/ (counts by second, what is needed, charts), docs/guides/pipelines.md.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.frame import (
    Instant,
    Outcome,
    Pipeline,
    PipelineOptions,
    Run,
    Shown,
    Span,
    Topic,
    main,
)
from dejaqueue.pipelines.load.capacity import Advice, advise, worst_seconds
from dejaqueue.pipelines.load.series import HOUR_MS, MINUTE_MS, SECOND_MS, Load
from dejaqueue.times import show_instant, show_span

if TYPE_CHECKING:
    from dejaqueue.client import Client
    from dejaqueue.model import Topic as TopicSettings

AHEAD_MS_MAX = 366 * 24 * HOUR_MS
HISTOGRAM_SECONDS = 10_000
"""Stretches that a broker counts in one call."""
HOT_MAX = 100


class Options(PipelineOptions):
    """Options of a forecast."""

    topic: Topic = Field(description="Whose messages.")
    from_ms: Instant | None = Field(default=None, description="Where to begin.  [default: now]")
    ahead_ms: Span = Field(default="24h", validate_default=True, description="How far to look.")
    source: Literal["scan", "broker"] = Field(
        default="scan",
        description="Who counts: Spark, by reading the column `due` of all messages; or "
        "the broker, from its index, without Spark. Both are exact.",
    )
    lateness_ms: Span = Field(
        default="1s", validate_default=True, description="How late a message may be done at most."
    )
    consumer_rate: Annotated[float, Shown("NUMBER")] = Field(
        default=1_000, gt=0, description="Messages a second that one consumer of yours works off."
    )
    partition_rate: Annotated[float, Shown("NUMBER")] = Field(
        default=100_000,
        gt=0,
        description="Messages a second that one partition carries; less than a "
        "tenth of what `make bench` measures.",
    )
    measure: bool = Field(
        default=False,
        description="Measure --partition-rate: 100,000 messages through this broker, in a "
        "topic of its own.",
    )
    hot: int = Field(
        default=10, ge=0, le=HOT_MAX, description="So many of the fullest seconds are named."
    )
    report: Annotated[str | None, Shown("FILE")] = Field(
        default=None, description="Write a page with plots here, as HTML."
    )


def run(options: Options, run: Run) -> Outcome:
    """Say how many messages are due in each second, minute and hour to come.

    And which are the hottest instants, and how many consumers and partitions are needed so that
    no message is done later than --lateness after its time. Firings of cron topics that are still
    to be planned are not in it.
    """
    if not SECOND_MS <= options.ahead_ms <= AHEAD_MS_MAX:
        raise BadRequest("--ahead", "from 1s to 366d", show_span(options.ahead_ms))
    if options.lateness_ms < 1:
        raise BadRequest("--lateness", "at least 1ms", show_span(options.lateness_ms))
    start_ms = run.clock.now_ms() if options.from_ms is None else options.from_ms
    first_ms = start_ms // SECOND_MS * SECOND_MS
    last_ms = -(-(start_ms + options.ahead_ms) // SECOND_MS) * SECOND_MS
    with options.client() as client:
        topic = client.topic(options.topic)
        if options.source == "scan":
            load, overdue = _scan(options, run, first_ms, last_ms)
        else:
            with run.step(f"asking the broker for {(last_ms - first_ms) // SECOND_MS:,} seconds"):
                load, overdue = _histogram(client, options.topic, first_ms, last_ms)
        hot = _hottest(client, options.topic, load, options.hot)
        partition_rate = options.partition_rate
        if options.measure:
            from dejaqueue.pipelines.load.measure import measure_partition

            with run.step("measuring what a partition carries"):
                partition_rate = measure_partition(client)
    advice = advise(load, options.lateness_ms, options.consumer_rate, partition_rate)
    figures = _figures(options, topic, load, overdue, hot, advice)
    figures["from"], figures["to"] = show_instant(first_ms), show_instant(last_ms)
    if options.report is not None:
        from dejaqueue.pipelines.load.page import Forecast, write_report

        shown = Forecast(options.topic, topic.partitions, load, hot, advice, options.lateness_ms)
        write_report(Path(options.report), shown, first_ms, last_ms, figures)
        figures["report"] = options.report
    return Outcome(figures)


def _scan(options: Options, run: Run, first_ms: int, last_ms: int) -> tuple[Load, int]:
    """The load, and how many are due before it; by a read of one column."""
    from pyspark.sql import functions as sql

    reader = run.spark.read.format("dejaq").schema("due bigint")
    table = reader.options(**options.source_options()).load(options.topic)
    second = sql.floor(sql.col("due") / SECOND_MS).cast("bigint")
    seconds = sql.when(sql.col("due") < first_ms, sql.lit(-1)).otherwise(second)
    with run.step("counting what is due"):
        found = (
            table.where(sql.col("due") < last_ms)
            .groupBy(seconds.cast("bigint").alias("second"))
            .count()
            .toArrow()
        )
    numbers = found["second"].to_numpy().astype(np.int64)
    counts = found["count"].to_numpy().astype(np.int64)
    later = numbers >= 0
    return Load.of(numbers[later], counts[later]), int(counts[~later].sum())


def _histogram(client: Client, topic: str, first_ms: int, last_ms: int) -> tuple[Load, int]:
    """The same, by asking the broker."""
    seconds, counts = [], []
    step_ms = HISTOGRAM_SECONDS * SECOND_MS
    for begin_ms in range(first_ms, last_ms, step_ms):
        end_ms = min(begin_ms + step_ms, last_ms)
        found = client.histogram(topic, bucket=1, due_from=begin_ms, due_to=end_ms)
        there = np.flatnonzero(found.counts)
        seconds.append(begin_ms // SECOND_MS + there)
        counts.append(found.counts[there])
    overdue = 0
    if first_ms > 0:
        overdue = int(
            client.histogram(
                topic, bucket=first_ms / SECOND_MS, due_from=0, due_to=first_ms
            ).counts.sum()
        )
    return Load.of(np.concatenate(seconds), np.concatenate(counts)), overdue


def _hottest(client: Client, topic: str, load: Load, most: int) -> list[tuple[int, int, int]]:
    """(beginning of the second, its messages, most of them in one millisecond), fullest first."""
    hottest = []
    for begin_ms, count in load.hottest(most):
        inside = client.histogram(
            topic, bucket=0.001, due_from=begin_ms, due_to=begin_ms + SECOND_MS
        )
        hottest.append((begin_ms, count, int(inside.counts.max())))
    return hottest


def _figures(
    options: Options,
    topic: TopicSettings,
    load: Load,
    overdue: int,
    hot: list[tuple[int, int, int]],
    advice: Advice,
) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "topic": options.topic,
        "from": "",
        "to": "",
        "due": load.total,
        "due_before": overdue,
    }
    for name, unit_ms in (("second", SECOND_MS), ("minute", MINUTE_MS), ("hour", HOUR_MS)):
        peak_ms, peak = load.peak(unit_ms)
        figures[f"peak_per_{name}"] = peak
        figures[f"peak_{name}"] = show_instant(peak_ms) if peak else None
    figures["hot"] = [
        {"second": show_instant(begin_ms), "due": count, "due_in_one_ms": in_one_ms}
        for begin_ms, count, in_one_ms in hot
    ]
    figures["needed_per_second"] = round(advice.rate, 3)
    figures["consumers"] = advice.consumers
    figures["partitions"] = advice.partitions
    figures["partitions_now"] = topic.partitions
    figures["partition_rate"] = round(advice.partition_rate)
    ahead_s = worst_seconds(load, advice.partition_rate * topic.partitions)
    figures["spike_ahead_ms"] = 0 if ahead_s <= 1 else math.ceil(ahead_s * SECOND_MS)
    return figures


PIPELINE = Pipeline(
    "forecast",
    Options,
    run,
    epilog="Examples: `dejaq pipeline forecast --topic mail --ahead 7d --consumer-rate 200 "
    "--report load.html` · `dejaq pipeline forecast --topic mail --source broker --json`",
)

if __name__ == "__main__":
    main(PIPELINE)
