"""Kafka as Spark reads and writes it.

Room: pipelines. Spark's data source `kafka`, which is a package of its own.
Holds: options for Kafka travel as they are given; a password in them is in no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dejaqueue.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS = ("kafka.bootstrap.servers", "subscribe", "topic", "startingoffsets", "includeheaders")


@dataclass(frozen=True, slots=True)
class KafkaSide:
    """How Kafka is reached.

    Attributes:
        servers: host:port, with commas between them.
        more: options of Spark's source and sink.
    """

    servers: str
    more: Mapping[str, str] = field(default_factory=dict, repr=False)

    def _options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **self.more}

    def stream(self, spark: SparkSession, topic: str, max_rows: int, start: str) -> DataFrame:
        """The records of a topic, as they come."""
        reader: Any = spark.readStream.format("kafka").options(**self._options())
        reader = reader.option("subscribe", topic).option("includeHeaders", "true")
        reader = reader.option("startingOffsets", start).option("maxOffsetsPerTrigger", max_rows)
        frame: DataFrame = reader.load()
        return frame

    def since(self, spark: SparkSession, topic: str, since_ms: int) -> DataFrame:
        """The records of a topic since a time, UTC milliseconds, up to now."""
        reader: Any = spark.read.format("kafka").options(**self._options())
        reader = reader.option("subscribe", topic).option("includeHeaders", "true")
        reader = reader.option("startingTimestamp", since_ms)
        frame: DataFrame = reader.option("startingOffsetsByTimestampStrategy", "latest").load()
        return frame

    def append(self, records: DataFrame, topic: str) -> None:
        """Write records: each at least once, in the order of each task's rows."""
        writer: Any = records.write.format("kafka").options(**self._options())
        # What a producer repeats by itself is not there twice, and keeps its order.
        writer = writer.option("kafka.enable.idempotence", "true").option("kafka.acks", "all")
        writer.option("topic", topic).option("includeHeaders", "true").save()


def parse_options(texts: tuple[str, ...]) -> dict[str, str]:
    """Options from `name=value` each.

    Raises:
        BadRequest: one has no `=`, or is one that the pipeline sets.
    """
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadRequest("--kafka-option", "NAME=VALUE", name)
        if name.strip().lower() in OURS:
            raise BadRequest("--kafka-option", "one that the pipeline does not set", name.strip())
        options[name.strip()] = value.strip()
    return options
