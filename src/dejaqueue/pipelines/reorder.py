"""From a Kafka topic, in the order in which records came, to another one, in that of a column.

Room: pipelines. Two streaming queries: Kafka to DejaQ, DejaQ to Kafka.
Holds: into DejaQ each record goes exactly once. Into Kafka it goes at least once, as Spark's sink
for Kafka knows no transactions: a batch that is done again leaves out what Kafka has of it, and
each record says in a header where it came from, for what a repeated task wrote twice.
See: reordering/ for the columns; docs/guides/pipelines.md; docs/guides/reorder.md.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from dejaqueue import limits
from dejaqueue.errors import BadRequest, TopicExists
from dejaqueue.model import TopicKind
from dejaqueue.pipelines.frame import (
    Outcome,
    Pipeline,
    PipelineOptions,
    Run,
    Shown,
    Span,
    Topic,
    main,
)
from dejaqueue.pipelines.reordering.kafka import KafkaSide, parse_options
from dejaqueue.pipelines.reordering.records import READ_SCHEMA, SCOPE, messages_of
from dejaqueue.pipelines.reordering.target import Target
from dejaqueue.pipelines.reordering.watch import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 2
SAY_EVERY_MS = 10_000
KINDS = {"due": TopicKind.TIMELINE, "priority": TopicKind.PRIORITY}
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"


class Options(PipelineOptions):
    """Options of `reorder`."""

    kafka: Annotated[str, Shown("HOST:PORT,…")] = Field(
        min_length=1, description="Kafka's brokers, to begin with."
    )
    from_topic: Annotated[str, Shown("KAFKA-TOPIC")] = Field(
        min_length=1, description="Whose records are read."
    )
    to_topic: Annotated[str, Shown("KAFKA-TOPIC")] = Field(
        min_length=1, description="Where they are written, in their new order."
    )
    topic: Topic = Field(
        description="DejaQ's topic in which they wait; made, with one partition, if there is none."
    )
    by: Literal["due", "priority"] = Field(
        "due", description="Released at a time, or the most urgent first."
    )
    column: Annotated[str, Shown("SQL")] = Field(
        min_length=1,
        description="The time or the priority of a record, an expression over "
        f"{', '.join(SCOPE)}. Null = at once, of usual priority.",
    )
    state: Annotated[str, Shown("FOLDER")] = Field(
        min_length=1, description="Where it is noted what is done; the same for each start."
    )
    once: bool = Field(
        False, description="Read what is there now, write what is due then, and end."
    )
    every_ms: Span = Field(
        0, ge=0, le=3_600_000, description="A batch so often; 0 = when the one before is done."
    )
    max_rows: int = Field(
        100_000, ge=1, le=limits.CLAIM_ROWS_MAX, description="Of a batch, on either side."
    )
    claim_timeout_ms: Span = Field(
        60_000,
        ge=1_000,
        le=limits.LEASE_MS_MAX,
        description="How long a program that died keeps what it was about to write.",
    )
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="Where the source is read from at the very first start."
    )
    kafka_option: Annotated[tuple[str, ...], Shown("NAME=VALUE")] = Field(
        (),
        description="An option of Spark's for Kafka, as kafka.security.protocol=SSL; repeat it.",
    )

    def side(self) -> KafkaSide:
        """How Kafka is reached. Raises BadRequest."""
        return KafkaSide(self.kafka, parse_options(self.kafka_option))


def run(options: Options, run: Run) -> Outcome:
    """Bring the records of a Kafka topic in the order of a column, into another Kafka topic."""
    side = options.side()
    if options.from_topic == options.to_topic:
        raise BadRequest("--to-topic", "another topic than --from-topic", options.to_topic)
    _make_topic(options)
    tally = Tally()
    target = Target(side, options.to_topic, options.state, run.clock)
    try:
        if options.once:
            with run.step(f"reading {options.from_topic}"):
                tally.finish("records_in", _inbound(options, run, side))
            with run.step(f"writing {options.to_topic}"):
                tally.finish("records_out", _outbound(options, run, target))
        else:
            tally.add("records_in", _inbound(options, run, side))
            tally.add("records_out", _outbound(options, run, target))
            _watch(run, tally)
    finally:
        tally.stop()
    return Outcome(tally.figures | {"records_left_out": target.left_out})


def _make_topic(options: Options) -> None:
    """Make the topic in DejaQ, or see that it is of the right kind."""
    kind = KINDS[options.by]
    with options.client() as client:
        try:
            client.create_topic(options.topic, kind=kind.value, partitions=1)
        except TopicExists:
            found = client.topic(options.topic).kind
            if found is not kind:
                raise BadRequest(
                    "--topic", f"of kind {kind.value}, for --by {options.by}", found.value
                ) from None


def _inbound(options: Options, run: Run, side: KafkaSide) -> StreamingQuery:
    """The query from Kafka to DejaQ."""
    records = side.stream(run.spark, options.from_topic, options.max_rows, options.start)
    messages = messages_of(records, options.by, options.column)
    writer: Any = messages.writeStream.format("dejaq")
    writer = writer.options(**options.source_options(topic=options.topic))
    return _start(options, writer, "in")


def _outbound(options: Options, run: Run, target: Target) -> StreamingQuery:
    """The query from DejaQ to Kafka."""
    reader: Any = run.spark.readStream.format("dejaq").schema(READ_SCHEMA)
    given = options.source_options(
        topic=options.topic,
        max_rows=options.max_rows,
        claim_timeout=options.claim_timeout_ms // 1_000,
        lost_claims="skip",
    )
    messages: DataFrame = reader.options(**given).load()
    return _start(options, messages.writeStream.foreachBatch(target.write), "out")


def _start(options: Options, writer: Any, name: str) -> StreamingQuery:
    place = f"{options.state.rstrip('/')}/{name}"
    writer = writer.option("checkpointLocation", place).queryName(f"reorder-{name}")
    if options.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{options.every_ms} milliseconds")
    started: StreamingQuery = writer.start()
    return started


def _watch(run: Run, tally: Tally) -> None:
    """Until a query fails, or somebody interrupts: say now and then how far they are."""
    said_ms = run.clock.now_ms()
    run.say("running; Ctrl-C ends it, and the next start goes on")
    try:
        while True:
            tally.poll(POLL_SECONDS)
            if run.clock.now_ms() >= said_ms + SAY_EVERY_MS:
                said_ms = run.clock.now_ms()
                run.say(tally.text())
    except KeyboardInterrupt:
        run.say("ending")


def needs(_: Options) -> dict[str, str]:
    """Spark's own part for Kafka, of its version, from Maven; and tasks that are not run twice."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        return {}  # which is said when the session is made
    return {"spark.jars.packages": f"{PACKAGE}:{installed}", "spark.speculation": "false"}


PIPELINE = Pipeline(
    "reorder",
    Options,
    run,
    epilog="dejaq pipeline reorder --kafka localhost:9092 --from-topic orders "
    "--to-topic orders.due "
    "--topic waiting --column \"get_json_object(value, '$.deliver_at')\" --state /var/lib/reorder. "
    "Spark's part for Kafka comes from Maven Central; where that cannot be reached: "
    "--conf spark.jars.packages= --conf spark.jars=FILE,…",
    needs=needs,
)

if __name__ == "__main__":
    main(PIPELINE)
