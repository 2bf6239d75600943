"""Which messages were finished in a stretch of time, with all that happened to them.

Room: pipelines. Tables of Spark in and out.
Holds: a message is in the hour of its end, once, with everything that history has of it; a gap is
in the hour in which it was noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dejaqueue.pipelines.auditing.faults import ENDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDERS = ("topic", "date", "hour")
"""Columns that become folders: the topic, and the UTC day and hour of the message's end."""
SAME = ("topic", "partition", "position", "id", "change", "at_ms")
"""Rows that are equal in these are one."""


def finished_in(history: DataFrame, from_ms: int, to_ms: int) -> DataFrame:
    """The changes of all messages whose end was from `from_ms` on, before `to_ms`; with `ended_ms`,
    `date` and `hour`."""
    from pyspark.sql import functions as f

    changes = history.dropDuplicates(list(SAME))
    ends = (
        changes.where(f.col("change").isin(*ENDS))
        .groupBy("topic", "id")
        .agg(f.max("at_ms").alias("ended_ms"))
        .where(f.col("ended_ms") >= from_ms)
        .where(f.col("ended_ms") < to_ms)
    )
    lives = changes.where("change <> 'gap'").join(ends, ["topic", "id"])
    gaps = (
        changes.where("change = 'gap'")
        .where(f.col("at_ms") >= from_ms)
        .where(f.col("at_ms") < to_ms)
        .withColumn("ended_ms", f.col("at_ms"))
    )
    ended = f.timestamp_millis(f.col("ended_ms"))
    return (
        lives.unionByName(gaps)
        .withColumn("date", f.date_format(ended, "yyyy-MM-dd"))
        .withColumn("hour", f.hour(ended))
    )
