"""What is counted of a history: changes, faults and lateness by topic, group and hour.

Room: pipelines. Tables of Spark in and out.
Holds: a group is shown by its name, "" for none; an hour is UTC, and begins at its first
millisecond.
See: faults.py for the tables that come in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dejaqueue.pipelines.auditing.faults import DELIVERIES, FAULTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_MS = 3_600_000
COUNTED = (
    *("enqueued", "delivered", "redelivered", "acked", "nacked", "lapsed"),
    *("cancelled", "dead", "expired"),
)
"""Changes that have a column of their own."""
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
PLACE = ("topic", "group", "hour_ms")
_ACCURACY = 10_000
BUCKETS_PER_OCTAVE = 4


def figures_of(lives: DataFrame, faults: DataFrame) -> DataFrame:
    """A row for each topic, group and hour: PLACE, COUNTED, FAULTS, lateness of deliveries."""
    from pyspark.sql import functions as f

    is_one = {name: f.when(f.col("change") == name, 1).otherwise(0) for name in COUNTED}
    late = f.when(f.col("change").isin(*DELIVERIES), f.col("late_ms"))
    shares = f.array(*[f.lit(share) for share in QUANTILES.values()])
    counted = (
        _placed(lives)
        .groupBy(*PLACE)
        .agg(
            *[f.sum(value).alias(name) for name, value in is_one.items()],
            f.percentile_approx(late, shares, _ACCURACY).alias("_quantiles"),
            f.max(late).alias("max_ms"),
        )
    )
    for place, name in enumerate(QUANTILES):
        counted = counted.withColumn(name, f.col("_quantiles")[place])
    wrong = (
        _placed(faults)
        .groupBy(*PLACE)
        .agg(
            *[f.sum(f.when(f.col("fault") == name, 1).otherwise(0)).alias(name) for name in FAULTS]
        )
    )
    joined = counted.drop("_quantiles").join(wrong, list(PLACE), "full_outer")
    return joined.fillna(0, [*COUNTED, *FAULTS]).select(
        *PLACE, *COUNTED, *FAULTS, *QUANTILES, "max_ms"
    )


def _placed(table: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return table.withColumn("group", f.coalesce("group", f.lit(""))).withColumn(
        "hour_ms", f.col("at_ms") - f.col("at_ms") % HOUR_MS
    )


def totals_of(lives: DataFrame) -> DataFrame:
    """One row: messages, deliveries, and lateness over all of them."""
    from pyspark.sql import functions as f

    late = f.when(f.col("change").isin(*DELIVERIES), f.col("late_ms"))
    shares = f.array(*[f.lit(share) for share in QUANTILES.values()])
    begun = f.when(f.col("change") == "enqueued", f.col("id"))
    return lives.agg(
        f.count(begun).alias("messages"),
        f.count(late).alias("deliveries"),
        f.sum(f.when(~f.col("has_begin") & f.col("is_last"), 1).otherwise(0)).alias(
            "unknown_begin"
        ),
        f.percentile_approx(late, shares, _ACCURACY).alias("quantiles"),
        f.max(late).alias("max_ms"),
        f.min("at_ms").alias("from_ms"),
        f.max("at_ms").alias("to_ms"),
    )


def spread_of(lives: DataFrame) -> DataFrame:
    """How many deliveries were how late: `bucket` and `count`; a bucket is 2**(1/4) times wider
    than the one before, bucket 0 ends at 0 ms."""
    from pyspark.sql import functions as f

    bucket = f.when(f.col("late_ms") <= 0, 0).otherwise(
        1 + f.floor(f.log2(f.col("late_ms").cast("double")) * BUCKETS_PER_OCTAVE)
    )
    return (
        lives.where(_is_delivery())
        .groupBy(bucket.cast("int").alias("bucket"))
        .agg(f.count("*").alias("count"))
    )


def _is_delivery() -> Column:
    from pyspark.sql import functions as f

    return f.col("change").isin(*DELIVERIES)
