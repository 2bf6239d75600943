"""`dejaq pipeline archive`: the history of finished messages, kept longer and elsewhere.

Room: pipelines.
Holds: a run that is done again, or broke off, doubles nothing and loses nothing: it writes whole
hours, each of them anew, and notes how far it came when they are there.
See: archiving/, docs/guides/audit.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.archiving.finished import FOLDERS, finished_in
from dejaqueue.pipelines.archiving.folder import Folder
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
    from pyspark.sql import DataFrame

HOUR_MS = 3_600_000
SETTLE_MS = 60_000
"""An hour is archived when it has been over for so long: clocks may differ."""


class Options(PipelineOptions):
    """Options of an archive."""

    topics: Names = Field(description="Whose messages.")
    out: Annotated[str, Shown("DIRECTORY")] = Field(
        description="The archive: a directory that Spark and this program reach, or a URI."
    )
    to_ms: Instant | None = Field(
        default=None, description="Up to this hour.  [default: the last one that is over]"
    )
    keep_ms: Span = Field(
        default="0s",
        validate_default=True,
        description="Delete days of the archive that ended so long ago; 0 = none.",
    )


def run(options: Options, run: Run) -> Outcome:
    """Copy the history of messages that are finished to Parquet, hour by hour.

    Each message is in the hour of its end, with all that history has of it. A run goes on where
    the last one ended; `audit --history` reads what it writes.
    """
    if not options.topics:
        raise BadRequest("--topics", "the names of topics", None)
    folder, now_ms = Folder(options.out), run.clock.now_ms()
    end_ms = now_ms - SETTLE_MS if options.to_ms is None else options.to_ms
    until_ms = end_ms // HOUR_MS * HOUR_MS
    figures: dict[str, Any] = {"to": show_instant(until_ms), "changes": 0, "messages": 0}
    for topic in options.topics:
        from_ms = folder.archived_ms(topic)
        if from_ms >= until_ms:
            run.say(f"{topic} is archived until then")
            continue
        with run.step(f"archiving {topic} from {show_instant(from_ms)}"):
            found = finished_in(_history(options, run, topic), from_ms, until_ms).persist()
            try:
                _write(found, options.out)
                figures["changes"] += found.count()
                figures["messages"] += (
                    found.where("change <> 'gap'").select("id").distinct().count()
                )
            finally:
                found.unpersist()
            folder.archived(topic, until_ms)
    figures["days_deleted"] = 0
    if options.keep_ms:
        figures["days_deleted"] = folder.prune(now_ms - options.keep_ms)
    return Outcome(figures)


def _history(options: Options, run: Run, topic: str) -> DataFrame:
    reader = run.spark.read.format("dejaq").options(**options.source_options(view="history"))
    return reader.load(topic)


def _write(found: DataFrame, out: str) -> None:
    """Write whole hours; those that are there already are replaced."""
    (
        found.repartition(*FOLDERS)
        .sortWithinPartitions(*FOLDERS, "id", "position")
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*FOLDERS)
        .parquet(out)
    )


PIPELINE = Pipeline(
    "archive",
    Options,
    run,
    epilog="Example: `dejaq pipeline archive --topics mail,sms --out /archive --keep 730d`, each "
    "hour or day; more often than `history.retention_ms`.",
)

if __name__ == "__main__":
    main(PIPELINE)
