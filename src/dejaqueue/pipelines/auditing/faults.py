"""What is wrong in a history: messages lost, early, twice, late, and where nothing is known.

Room: pipelines. Tables of Spark in and out; nothing is read or written here, nothing is collected.
Holds: a row that is in a history twice counts once; where history has a gap nothing is concluded
across it; what could not be judged is counted as such.
See: docs/guides/history.md for what each column says; docs/guides/audit.md for what each fault is.

    early       leased longer before its due time than its topic allows
    late        leased later than asked after it was due, or had come back
    duplicate   leased while another lease was running, or after it was done
    lost        nothing more happened to it, though it was due; or the broker does not have it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAULTS = ("lost", "early", "duplicate", "late")
DELIVERIES = ("delivered", "redelivered")
ENDS = ("acked", "cancelled", "dead", "expired", "departed", "aborted")
"""Changes after which nothing may happen to a message."""
WAITS = ("enqueued", "moved", "nacked", "lapsed")
"""Changes after which a message waits for its time."""
FAULT_COLUMNS = (
    *("fault", "topic", "partition", "id", "key", "group", "at_ms"),
    *("due", "late_ms", "position", "detail"),
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """From when on something is a fault.

    Attributes:
        late_ms: a message leased so much later than it was ready is late.
        lost_ms: a message to which nothing happened for so long after its due time is lost.
        until_ms: as of when; what was due since is not judged.
    """

    late_ms: int
    lost_ms: int
    until_ms: int


def gaps_of(history: DataFrame) -> DataFrame:
    """Where history says that it has a gap: topic, partition, at_ms, position, missed, reason."""
    return (
        history.where("change = 'gap'")
        .select("topic", "partition", "at_ms", "position", "missed", "reason")
        .dropDuplicates(["topic", "partition", "position"])
    )


HISTORY_COLUMNS = (
    *("topic", "partition", "change", "at_ms", "id", "sequence", "position", "due", "key"),
    *("group", "lateness_ms", "ahead_ms"),
)
"""The columns of history that `with_lives` needs."""
GAP_COLUMNS = ("topic", "partition", "change", "at_ms", "position", "missed", "reason")
"""And those that `gaps_of` needs."""


def with_lives(history: DataFrame, gaps: DataFrame | None = None) -> DataFrame:
    """Each change once, with what happened to its message before it.

    Args:
        history: has HISTORY_COLUMNS.
        gaps: of `gaps_of`; None = history has GAP_COLUMNS, too.

    Columns: those of history, and `era` (gaps of its partition before it), `before` (the change
    before), `before_ms`, `before_era`, `was_held` (a lease was running), `was_done`, `late_ms`
    (of a delivery: how long after it was ready), `is_last`, `has_begin` (its begin is known).
    """
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    # Whatever follows looks at one message at a time: rows are moved once.
    by_message = history.where("change <> 'gap'").repartition("topic", "id")
    once = by_message.dropDuplicates(["topic", "partition", "position", "id", "change", "at_ms"])
    gaps = gaps_of(history) if gaps is None else gaps
    places = gaps.groupBy("topic", "partition").agg(f.collect_list("position").alias("_gaps"))
    joined = once.join(f.broadcast(places), ["topic", "partition"], "left")
    era = f.expr("coalesce(size(filter(_gaps, place -> place < position)), 0)")
    # Without a gap the list is null, and Spark 4 says null for its size as well.
    changes = joined.withColumn("era", era).drop("_gaps")
    # A command first ends leases whose time is over, then does what it is for.
    first = f.when(f.col("change") == "lapsed", 0).otherwise(1)
    life = Window.partitionBy("topic", "id").orderBy(f.col("position"), first)
    earlier = life.rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy("topic", "id")
    found = (
        changes.withColumn("before", f.lag("change").over(life))
        .withColumn("before_ms", f.lag("at_ms").over(life))
        .withColumn("before_era", f.lag("era").over(life))
        .withColumn("was_held", _is_in("before", DELIVERIES))
        .withColumn("_ended", f.max(f.when(_is_in("change", ENDS), True)).over(earlier))
        .withColumn("was_done", f.coalesce("_ended", f.lit(False)))
        .withColumn("is_last", f.lead("change").over(life).isNull())
        .withColumn(
            "_begun", f.max(f.when(_is_in("change", ("enqueued", "staged")), True)).over(whole)
        )
        .withColumn("has_begin", f.coalesce("_begun", f.lit(False)))
        .withColumn("key", f.max("key").over(whole))
    )
    return found.withColumn("late_ms", _late_ms()).drop("_ended", "_begun")


def _is_in(name: str, words: tuple[str, ...]) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.col(name).isin(*words), f.lit(False))


def _late_ms() -> Column:
    """How long after it was due, and could be leased, a message went to its consumer."""
    from pyspark.sql import functions as f

    ready = f.greatest(f.col("due"), f.coalesce(f.col("before_ms"), f.col("due")))
    late = f.greatest(f.col("due") + f.col("lateness_ms") - ready, f.lit(0))
    return f.when(_is_in("change", DELIVERIES), late)


def faults_of(lives: DataFrame, bounds: Bounds, live: DataFrame | None = None) -> DataFrame:
    """Every fault as a row of FAULT_COLUMNS.

    Args:
        lives: of `with_lives`.
        live: `topic`, `partition`, `id` of what the broker had just before the history was read,
            and `end`: sequences from there on came later. None = it was not asked.
    """
    from pyspark.sql import functions as f

    lost = _lost(lives, bounds) if live is None else _missing(lives, live)
    deliveries = lives.where(_is_in("change", DELIVERIES))
    early = deliveries.where("lateness_ms < -ahead_ms").withColumn(
        "detail", f.expr("concat(-lateness_ms, ' ms before it was due, allowed: ', ahead_ms)")
    )
    late = deliveries.where(f.col("late_ms") > bounds.late_ms).withColumn(
        "detail", f.concat(f.col("late_ms"), f.lit(" ms after it was ready"))
    )
    named = {"lost": lost, "early": early, "duplicate": _duplicates(lives), "late": late}
    tables = [
        table.withColumn("fault", f.lit(name)).select(*FAULT_COLUMNS)
        for name, table in named.items()
    ]
    first, *others = tables
    for table in others:
        first = first.unionByName(table)
    return first


def _duplicates(lives: DataFrame) -> DataFrame:
    """Deliveries of what was held or done, and second ends; not across a gap."""
    from pyspark.sql import functions as f

    known = lives.where("before_era = era")
    again = known.where(_is_in("change", DELIVERIES) & (f.col("was_held") | f.col("was_done")))
    ended = known.where(_is_in("change", ENDS) & f.col("was_done"))
    held = again.withColumn(
        "detail",
        f.when(f.col("was_done"), f.lit("delivered after it was done")).otherwise(
            f.lit("delivered while another lease was running")
        ),
    )
    return held.unionByName(
        ended.withColumn("detail", f.concat(f.col("change"), f.lit(" after it was done")))
    )


def _unfinished(lives: DataFrame) -> DataFrame:
    """The last change of each message that came in, and is not done as far as history knows."""
    return lives.where("is_last and has_begin").where(~_is_in("change", (*ENDS, "staged")))


def _lost(lives: DataFrame, bounds: Bounds) -> DataFrame:
    """What should have been delivered, by history alone; not where a gap came later."""
    from pyspark.sql import functions as f

    ends = lives.groupBy("topic", "partition").agg(f.max("era").alias("last_era"))
    waiting = _unfinished(lives).where(_is_in("change", WAITS))
    overdue = waiting.where(f.col("due") + bounds.lost_ms < bounds.until_ms)
    return (
        overdue.join(f.broadcast(ends), ["topic", "partition"])
        .where("era = last_era")
        .withColumn("late_ms", f.lit(bounds.until_ms) - f.col("due"))
        .withColumn("at_ms", f.col("due"))
        .withColumn("detail", f.concat(f.lit("nothing happened after "), f.col("change")))
    )


def _missing(lives: DataFrame, live: DataFrame) -> DataFrame:
    """What is not done and the broker does not have; not where a gap came later."""
    from pyspark.sql import functions as f

    ends = lives.groupBy("topic", "partition").agg(f.max("era").alias("last_era"))
    places = live.groupBy("topic", "partition").agg(f.max("end").alias("end"))
    there = live.where("id is not null").select("topic", "id")
    return (
        _unfinished(lives)
        .join(f.broadcast(ends), ["topic", "partition"])
        .where("era = last_era")
        .join(f.broadcast(places), ["topic", "partition"])
        .where("sequence < end")
        .join(there, ["topic", "id"], "left_anti")
        .withColumn("late_ms", f.lit(None).cast("bigint"))
        .withColumn(
            "detail", f.concat(f.lit("the broker does not have it; last: "), f.col("change"))
        )
    )
