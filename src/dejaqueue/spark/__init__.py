"""Spark's data source `dejaq`: what is scheduled as a table, and tables as schedules.

    spark.read.format("dejaq").option("topic", "reminders").load()
    table.write.format("dejaq").option("topic", "reminders").mode("append").save()
    counts = save(table, topic="reminders")

Room: spark. Loads the client, never the broker: executors need DejaQ and pyarrow, nothing more.
Holds: pyspark is imported where it is used; the error of its absence names the extra.
See: docs/guides/spark.md; src/pyspark_dejaq, where Spark finds the format by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dejaqueue.errors import BadRequest
from dejaqueue.spark.written import Written, save, writes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Written", "register", "save", "writes"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, push_filters: bool | None = None) -> None:
    """Make the format `dejaq` known to a session, of a local Spark, a cluster, or Spark Connect.

    Args:
        push_filters: whether the broker applies filters. True and False set the session's
            `spark.sql.python.filterPushdown.enabled`; None takes it as it is (Spark's default is
            false).

    Raises:
        BadRequest: pyspark is not installed.
    """
    try:
        from dejaqueue.spark.source import DejaqSource, DejaqSourceWithFilters
    except ModuleNotFoundError as missing:
        raise BadRequest(
            "pyspark", "installed: pip install 'dejaqueue[spark]'", str(missing)
        ) from None
    if push_filters is not None:
        spark.conf.set(_PUSHDOWN, str(push_filters).lower())
    pushes = str(spark.conf.get(_PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(DejaqSourceWithFilters if pushes else DejaqSource)
