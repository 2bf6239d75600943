"""The audience: a table that Spark can read, as rows that can be scheduled.

    user | zone | local_ms | payload | …

Room: pipelines. Spark expressions; pyspark in functions only.
Holds: what a column must be is refused with the column's name; nothing is done to a row in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.schedule.template import Template, column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SUFFIXES = {
    ".csv": "csv", ".csv.gz": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".json.gz": "json", ".orc": "orc", ".avro": "avro",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to make of a table.

    Attributes:
        user, zone: columns; `zone` may be missing in the table if there is `zone_instead`.
        zone_instead: of rows without one; "" = they are incomplete.
        send_at: column with a local date and time; "" = `local_ms` for all.
        local_ms: milliseconds since 1970-01-01T00:00 of everybody's own clock.
        template: of the payload; None = `json_columns`.
        json_columns: their values make up an object in JSON.
    """

    user: str
    zone: str
    zone_instead: str
    send_at: str
    local_ms: int
    template: Template | None
    json_columns: tuple[str, ...]

    def check(self, columns: Sequence[str]) -> None:
        """Raise BadRequest if a column is not there."""
        if self.template is not None:
            self.template.check(columns)
        asked = [("--user", self.user), ("--send-at", self.send_at)]
        asked += [("--zone", self.zone)] if not self.zone_instead else []
        asked += [("--payload-columns", name) for name in self.json_columns]
        for option, name in asked:
            if name and name not in columns:
                raise BadRequest(option, f"a column of the audience ({', '.join(columns)})", name)


def read_table(spark: SparkSession, path: str, form: str, options: Mapping[str, str]) -> DataFrame:
    """The table at a path, or of a name in Spark's catalog.

    Args:
        form: a format of Spark's, `table`, or "" = by the name of the file, otherwise Parquet.
        options: of the format.
    """
    if form == "table":
        return spark.table(path)
    guessed = next((kind for end, kind in _SUFFIXES.items() if path.lower().endswith(end)), "")
    form = form or guessed or "parquet"
    defaults = {"header": "true"} if form == "csv" else {}
    if path.lower().endswith(".tsv"):
        defaults["sep"] = "\t"
    return spark.read.format(form).options(**{**defaults, **options}).load(path)


def to_rows(table: DataFrame, wanted: Wanted) -> DataFrame:
    """The table as user, zone, local_ms, payload and is_complete."""
    from pyspark.sql import functions as sql

    wanted.check(table.columns)
    zone = column(wanted.zone).cast("string") if wanted.zone in table.columns else sql.lit(None)
    if wanted.zone_instead:
        zone = sql.coalesce(sql.nullif(zone, sql.lit("")), sql.lit(wanted.zone_instead))
    required = wanted.template.required if wanted.template else ()
    rows = table.select(
        column(wanted.user).cast("string").alias("user"),
        sql.nullif(zone, sql.lit("")).alias("zone"),
        _local_ms(wanted).alias("local_ms"),
        _payload(wanted).alias("payload"),
        sql.array(*[column(name).isNull() for name in required]).alias("nulls")
        if required
        else sql.lit(None).alias("nulls"),
    )
    is_complete = (
        (sql.length("user") > 0) & sql.col("zone").isNotNull() & sql.col("local_ms").isNotNull()
    )
    if required:
        is_complete &= ~sql.array_contains("nulls", True)
    return rows.select(
        "user", "zone", "local_ms", "payload", sql.coalesce(is_complete, sql.lit(False)).alias("ok")
    )


def _local_ms(wanted: Wanted) -> Column:
    """Local time of a row; a part of a millisecond is rounded up: never early."""
    from pyspark.sql import functions as sql

    if not wanted.send_at:
        return sql.lit(wanted.local_ms).cast("bigint")
    # The session's zone is UTC: a local time is kept as if it were one of UTC.
    local = column(wanted.send_at).try_cast("timestamp_ntz").cast("timestamp")
    return (sql.ceil(sql.unix_micros(local) / 1_000)).cast("bigint")


def _payload(wanted: Wanted) -> Column:
    from pyspark.sql import functions as sql

    if wanted.template is not None:
        return wanted.template.expression()
    return sql.to_json(sql.struct(*[column(name) for name in wanted.json_columns]))
