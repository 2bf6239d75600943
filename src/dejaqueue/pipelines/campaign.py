"""`dejaq pipeline campaign`: an audience becomes messages, each at its own local time.

Room: pipelines.
Holds: the campaign is there as a whole or not at all; made again, it sends nobody anything twice;
the rate is kept to the message. Rows are moved by Spark alone: Python sees counts of them.
See: schedule/ (templates, zones, quiet hours, stagger, the plan), docs/guides/pipelines.md.
"""

from __future__ import annotations

from collections import Counter
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field

from dejaqueue.errors import BadRequest
from dejaqueue.limits import GROUP_BYTES_MAX, KEY_BYTES_MAX
from dejaqueue.pipelines.frame import (
    Names,
    Outcome,
    Pipeline,
    PipelineOptions,
    Run,
    Shown,
    Span,
    Topic,
    main,
)
from dejaqueue.pipelines.frame.session import parse_settings
from dejaqueue.pipelines.load.series import MINUTE_MS, SECOND_MS, Load
from dejaqueue.pipelines.schedule.quiet_hours import QuietHours, parse_clock_ms
from dejaqueue.pipelines.schedule.stagger import Rate
from dejaqueue.pipelines.schedule.template import parse_template
from dejaqueue.pipelines.schedule.zones import DAY_MS
from dejaqueue.times import show_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    # tidy: allow type-import, because help works without pyarrow and time zones
    from dejaqueue.pipelines.schedule.audience import Wanted

    # tidy: allow type-import, because help works without pyarrow and time zones
    from dejaqueue.pipelines.schedule.plan import Plan

BUCKETS = 64
"""Parts in which the rows of a wave are put in order, so that no part of Spark's has all of it."""
CELLS_MAX = 5_000_000
"""Different (zone, second, bucket): what a driver can plan."""
BROADCAST_CELLS_MAX = 500_000
EPOCH = date(1970, 1, 1)


def _day(value: object) -> date:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"a date is like 2026-12-24, got: {value!r}") from None


def _group(value: str) -> str:
    if len(value.encode()) > GROUP_BYTES_MAX // 2:
        raise ValueError(f"at most {GROUP_BYTES_MAX // 2} bytes, as keys begin with it")
    return value


def _parsed(kind: type, parse: Any, value: object) -> Any:
    return value if isinstance(value, kind) or value is None else parse(str(value))


class Options(PipelineOptions):
    """Options of a campaign."""

    campaign: Annotated[str, AfterValidator(_group), Shown("NAME")] = Field(
        min_length=1,
        description="Its name: the group of its messages, and the first part of their keys.",
    )
    topic: Topic = Field(description="Timeline topic that takes the messages; it must exist.")
    stop: bool = Field(
        default=False, description="Cancel what still waits of the campaign, and do nothing else."
    )
    audience: Annotated[str | None, Shown("PATH")] = Field(
        default=None, description="The table: Parquet, CSV, Delta or whatever this Spark reads."
    )
    format: Annotated[str, Shown("FORMAT")] = Field(
        default="",
        description="Its format; `table` = a name in the catalog.  "
        "[default: by the name of the file, otherwise parquet]",
    )
    read_option: tuple[Annotated[str, Shown("NAME=VALUE")], ...] = Field(
        default=(), description="An option of the format, as `sep=;`; repeat it."
    )
    user: Annotated[str, Shown("COLUMN")] = Field(
        default="user", description="Column that says who it is; the second part of the key."
    )
    template: Annotated[str | None, Shown("TEXT")] = Field(
        default=None,
        description="The payload, with columns in braces: 'Dear {name|reader}'. A row that "
        "has no value for one without a | is incomplete. {{ and }} are braces.",
    )
    template_file: Annotated[str | None, Shown("FILE")] = Field(
        default=None, description="A file with the template instead."
    )
    payload_columns: Names = Field(
        default=(), description="Or columns whose values become the payload, as one JSON object."
    )
    on: Annotated[date | None, BeforeValidator(_day), Shown("YYYY-MM-DD")] = Field(
        default=None, description="Local date at which everybody gets the message …"
    )
    at: Annotated[str, Shown("HH:MM")] = Field(
        default="09:00", description="… and the local time of day."
    )
    send_at: Annotated[str | None, Shown("COLUMN")] = Field(
        default=None,
        description="Instead of --on and --at: column with each one's local date and time.",
    )
    zone: Annotated[str, Shown("COLUMN")] = Field(
        default="zone", description="Column with each one's IANA time zone, as Europe/Berlin."
    )
    zone_default: Annotated[str | None, Shown("ZONE")] = Field(
        default=None, description="The time zone of who has none."
    )
    quiet: Annotated[
        QuietHours | None,
        BeforeValidator(partial(_parsed, QuietHours, QuietHours.parse)),
        Shown("HH:MM-HH:MM"),
    ] = Field(default=None, description="Local hours in which nobody gets anything: 21:00-08:00.")
    rate: Annotated[
        Rate | None, BeforeValidator(partial(_parsed, Rate, Rate.parse)), Shown("NUMBER[/s|/m|/h]")
    ] = Field(default=None, description="At most so many messages a second, spread evenly.")
    late: Literal["skip", "send"] = Field(
        default="skip",
        description="What becomes of those whose local time has passed: left out, or sent now. "
        "Made again with `skip`, a campaign sends nobody anything twice.",
    )
    missing: Literal["fail", "skip"] = Field(
        default="fail",
        description="What becomes of rows without a user, a time zone that exists, a time or a "
        "value for the template: they stop the campaign, or are left out.",
    )
    priority: int | None = Field(default=None, ge=0, le=65_535, description="Of the messages.")
    expires_after_ms: Span | None = Field(
        default=None,
        description="Who could not be reached for so long after the time is left alone.",
    )
    dry_run: bool = Field(default=False, description="Write nothing; say what would be sent when.")
    report: Annotated[str | None, Shown("FILE")] = Field(
        default=None, description="Write a page with the load and the time zones here, as HTML."
    )
    refusals: Annotated[str | None, Shown("PATH")] = Field(
        default=None,
        description="Folder for rows that the broker refused: who has the message already.",
    )

    def wanted(self) -> Wanted:
        """What to make of the audience.

        Raises:
            BadRequest: the payload, or the time, is not said, or is said twice.
        """
        from dejaqueue.pipelines.schedule.audience import Wanted

        _one_of(self, "template", "template_file", "payload_columns")
        _one_of(self, "on", "send_at")
        template = self.template
        if self.template_file is not None:
            try:
                template = Path(self.template_file).read_text(encoding="utf-8")
            except (OSError, ValueError) as wrong:
                raise BadRequest("--template-file", f"UTF-8 text ({wrong})", self.template_file)
        local_ms = 0
        if self.on is not None:
            try:
                clock_ms = parse_clock_ms(self.at)
            except ValueError:
                raise BadRequest("--at", "a time of day like 09:00", self.at) from None
            local_ms = (self.on - EPOCH).days * DAY_MS + clock_ms
        return Wanted(
            user=self.user,
            zone=self.zone,
            zone_instead=self.zone_default or "",
            send_at=self.send_at or "",
            local_ms=local_ms,
            template=None if template is None else parse_template(template),
            json_columns=self.payload_columns,
        )


def _one_of(options: Options, *names: str) -> None:
    """Raise BadRequest unless just one of these options is given."""
    given = [name for name in names if getattr(options, name)]
    if len(given) != 1:
        shown = ["--" + name.strip("_").replace("_", "-") for name in names]
        said = " and ".join(shown[names.index(name)] for name in given) or "none of them"
        raise BadRequest("options", f"one of {', '.join(shown)}", said)


def run(options: Options, run: Run) -> Outcome:
    """Schedule a message for everybody in a table, at the same time by each one's own clock.

    A message has the key CAMPAIGN:USER and the group CAMPAIGN. A local time that does not exist,
    as clocks are set forward, is as long after the gap's beginning (02:30 is 03:30); one that
    exists twice is the first of the two. The time zone database is that of Python.
    """
    if options.stop:
        return _stop(options)
    wanted = options.wanted()
    if options.audience is None:
        raise BadRequest("--audience", "a table", None)
    with options.client() as client:
        topic = client.topic(options.topic)
        if topic.kind.value != "timeline":
            raise BadRequest("--topic", "a timeline topic", f"{topic.name} ({topic.kind.value})")
    from dejaqueue.pipelines.schedule.audience import read_table, to_rows

    spark = run.spark
    read_options = parse_settings(options.read_option)
    table = read_table(spark, options.audience, options.format, read_options)
    rows = _with_cells(to_rows(table, wanted), options)
    with run.step("counting the audience by time zone"):
        counted, total, incomplete = _count(rows, options)
    plan = _plan(counted, incomplete, options, run)
    figures: dict[str, Any] = {
        "campaign": options.campaign,
        "audience": total,
        "incomplete": incomplete + sum(count for _, count in plan.unknown),
        "late": plan.late_count,
        "late_are": "sent" if options.late == "send" else "skipped",
        "planned": plan.load.total,
        **_load_figures(plan.load),
    }
    if not options.dry_run and plan.load.total:
        with run.step(f"scheduling {plan.load.total:,} messages"):
            statuses = _write(_to_messages(rows, plan, options), options)
        figures["waiting"] = _waiting(options)
        figures |= {f"rows_{name}": count for name, count in sorted(statuses.items())}
    if options.report is not None:
        from dejaqueue.pipelines.schedule.page import write_report

        write_report(Path(options.report), options.campaign, plan, figures)
        figures["report"] = options.report
    return Outcome(figures)


def _stop(options: Options) -> Outcome:
    """Cancel by group."""
    with options.client() as client:
        client.topic(options.topic)
        if options.dry_run:
            waiting = client.cancel_where(options.topic, dry_run=True, group=options.campaign)
            return Outcome({"campaign": options.campaign, "waiting": waiting})
        cancelled = client.cancel_where(options.topic, group=options.campaign)
        return Outcome({"campaign": options.campaign, "cancelled": cancelled})


def _with_cells(rows: DataFrame, options: Options) -> DataFrame:
    """With the second of each row, and the bucket in which it is put in order."""
    from pyspark.sql import functions as sql

    # With a rate, what is in the middle of a second goes with the next one: never early.
    part = sql.ceil if options.rate is not None else sql.floor
    # Rows with times of their own are spread over many cells, and need no buckets.
    buckets = BUCKETS if options.rate is not None and options.send_at is None else 1
    return rows.select(
        "*",
        part(sql.col("local_ms") / SECOND_MS).cast("bigint").alias("cell"),
        sql.pmod(sql.xxhash64("user"), sql.lit(buckets)).cast("bigint").alias("bucket"),
    )


def _count(rows: DataFrame, options: Options) -> tuple[pa.Table, int, int]:
    """Complete rows by zone, cell and bucket; all rows; and those that are not complete."""
    from pyspark.sql import functions as sql

    from dejaqueue.pipelines.schedule.plan import check_cells

    key_bytes = sql.octet_length("user") + len(options.campaign.encode()) + 1
    grouped = rows.groupBy(
        "ok",
        *(
            sql.when(sql.col("ok"), sql.col(name)).alias(name)
            for name in ("zone", "cell", "bucket")
        ),
    ).agg(sql.count("*").alias("count"), sql.max(key_bytes).alias("key_bytes"))
    found = grouped.limit(CELLS_MAX + 1).toArrow()
    check_cells(found.num_rows, CELLS_MAX)
    ok = found["ok"]
    longest = max([size for size in found["key_bytes"].to_pylist() if size is not None], default=0)
    if longest > KEY_BYTES_MAX:
        wanted = f"at most {KEY_BYTES_MAX} bytes with the campaign's name and a colon"
        raise BadRequest(f"column {options.user}", wanted, longest)
    complete = found.filter(ok).select(["zone", "cell", "bucket", "count"])
    total = sum(found["count"].to_pylist())
    return complete, total, total - sum(complete["count"].to_pylist())


def _plan(counted: pa.Table, incomplete: int, options: Options, run: Run) -> Plan:
    """Who goes when.

    Raises:
        BadRequest: rows are incomplete, or have a zone that there is not, and may not.
    """
    from dejaqueue.pipelines.schedule.plan import Timing, make_plan

    if incomplete and options.missing == "fail":
        wanted = "a user, a zone, a time and values for the template everywhere, or --missing skip"
        raise BadRequest("--audience", wanted, f"{incomplete:,} rows without")
    timing = Timing(options.quiet, options.rate, run.clock.now_ms(), options.late == "send")
    with run.step("planning"):
        plan = make_plan(counted, timing)
    if plan.unknown and options.missing == "fail":
        name, count = plan.unknown[0]
        wanted = "IANA time zones as Europe/Berlin, or --missing skip"
        raise BadRequest(f"column {options.zone}, {count:,} rows", wanted, name)
    return plan


def _to_messages(rows: DataFrame, plan: Plan, options: Options) -> DataFrame:
    """The rows of the plan as messages."""
    from pyspark.sql import functions as sql

    spark = rows.sparkSession
    cells = spark.createDataFrame(plan.cells)
    if plan.cells.num_rows <= BROADCAST_CELLS_MAX:
        cells = sql.broadcast(cells)
    placed = rows.where("ok").join(cells, ["zone", "cell"])
    if options.rate is None:
        rest_ms = sql.col("local_ms") - sql.col("cell") * SECOND_MS
        due = sql.col("base_ms") + sql.col("keeps") * rest_ms
    else:
        placed, due = _with_slots(placed, plan, options.rate)
    columns = [
        sql.col("payload"),
        due.cast("bigint").alias("due"),
        sql.concat(sql.lit(f"{options.campaign}:"), sql.col("user")).alias("key"),
        sql.lit(options.campaign).alias("group"),
    ]
    if options.priority is not None:
        columns.append(sql.lit(options.priority).cast("int").alias("priority"))
    if options.expires_after_ms is not None:
        columns.append((due + options.expires_after_ms).cast("bigint").alias("expires"))
    return placed.select(*columns)


def _with_slots(placed: DataFrame, plan: Plan, rate: Rate) -> tuple[DataFrame, Any]:
    """The rows with the slot of each, and its time.

    The order within a bucket comes from the user alone: whoever is asked again says the same.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    order = Window.partitionBy("wave", "bucket").orderBy(sql.xxhash64("user"), "user")
    ranked = placed.withColumn("rank", sql.row_number().over(order) - 1)
    parts = placed.sparkSession.createDataFrame(plan.parts)
    if plan.parts.num_rows <= BROADCAST_CELLS_MAX:
        parts = sql.broadcast(parts)
    mine = ranked.alias("r").join(
        parts.alias("p"),
        (sql.col("r.wave") == sql.col("p.wave"))
        & (sql.col("r.bucket") == sql.col("p.bucket"))
        & (sql.col("r.rank") >= sql.col("p.first_rank"))
        & (sql.col("r.rank") < sql.col("p.last_rank")),
        # Who is in no part was not there when the audience was counted.
        "left",
    )
    slot = sql.col("p.first_slot") + sql.col("r.rank") - sql.col("p.first_rank")
    changed = sql.raise_error(sql.lit("the audience changed while it was read; nothing was sent"))
    slot = sql.when(slot.isNull(), changed.cast("bigint")).otherwise(slot)
    with_slot = mine.select("r.*", slot.alias("slot"))
    due = sql.expr(f"(slot * {rate.per_ms}L) div {rate.count}L")
    return with_slot, due


def _write(messages: DataFrame, options: Options) -> Counter[str]:
    """Schedule them, all or none; how many rows had which status."""
    from dejaqueue.spark import save

    more = {"refusals_path": options.refusals} if options.refusals else {}
    return save(messages, **options.source_options(topic=options.topic, **more))


def _waiting(options: Options) -> int:
    """Messages of the campaign that wait in the topic now."""
    with options.client() as client:
        return client.cancel_where(options.topic, dry_run=True, group=options.campaign)


def _load_figures(load: Load) -> dict[str, Any]:
    """What a load looks like, in figures."""
    if not load.total:
        return {}
    figures: dict[str, Any] = {
        "first": show_instant(load.first_ms),
        "last": show_instant(load.last_ms),
    }
    for name, unit_ms in (("second", SECOND_MS), ("minute", MINUTE_MS)):
        peak_ms, peak = load.peak(unit_ms)
        figures[f"peak_per_{name}"] = peak
        figures[f"peak_{name}"] = show_instant(peak_ms)
    return figures


PIPELINE = Pipeline(
    "campaign",
    Options,
    run,
    epilog="Examples: `dejaq pipeline campaign --campaign spring --topic mail --audience "
    "users.parquet --template 'Dear {name}' --on 2026-03-01 --at 09:00 --rate 500 --dry-run` · "
    "`dejaq pipeline campaign --campaign spring --topic mail --stop`",
)

if __name__ == "__main__":
    main(PIPELINE)
