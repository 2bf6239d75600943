"""Writing released records to Kafka, batch by batch.

Room: pipelines. Runs on the driver, in a streaming query.
Holds: of a batch that is done again, after a crash or failure, only what Kafka does not have of it
is written: before a batch's first row, its number and the time are noted beside the checkpoint.
See: kafka.py for what Kafka promises of each row; records.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyarrow import fs

from dejaqueue.clock import Clock
from dejaqueue.pipelines.reordering.kafka import KafkaSide
from dejaqueue.pipelines.reordering.records import FROM, records_of, sources_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTE = "writing.json"
CLOCKS_MS_MAX = 600_000
"""By how much the clocks of machines may differ."""


class Target:
    """A Kafka topic that batches of messages are written to.

    Args:
        state: the folder where it is noted what is done.

    Attributes:
        left_out: records that were there already when their batch was done again.
    """

    def __init__(self, side: KafkaSide, topic: str, state: str, clock: Clock) -> None:
        self._side = side
        self._topic = topic
        self._clock = clock
        self._system, folder = _open(state)
        self._system.create_dir(folder, recursive=True)
        self._path = f"{folder}/{NOTE}"
        self.left_out = 0

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch; what Kafka has of it already is left out."""
        began_ms = self._began_ms(number)
        if began_ms is None:
            self._note(number)
        else:
            since = self._side.since(batch.sparkSession, self._topic, began_ms - CLOCKS_MS_MAX)
            there = sources_of(since).distinct().cache()
            named = batch.withColumn("source", batch["headers"][FROM])
            self.left_out += named.join(there, "source", "left_semi").count()
            batch = named.join(there, "source", "left_anti")
        self._side.append(records_of(batch), self._topic)

    def _began_ms(self, number: int) -> int | None:
        """When this batch was begun before; None = it was not."""
        if self._system.get_file_info(self._path).type is not fs.FileType.File:
            return None
        with self._system.open_input_stream(self._path) as file:
            noted = json.loads(file.read())
        return int(noted["began_ms"]) if noted["batch"] == number else None

    def _note(self, number: int) -> None:
        # To another name first: half a note would be none.
        written = f"{self._path}.new"
        with self._system.open_output_stream(written) as file:
            file.write(json.dumps({"batch": number, "began_ms": self._clock.now_ms()}).encode())
        self._system.move(written, self._path)


def _open(path: str) -> tuple[fs.FileSystem, str]:
    if "://" in path or path.startswith("file:"):
        system, folder = fs.FileSystem.from_uri(path)
        return system, folder.rstrip("/")
    return fs.LocalFileSystem(), path.rstrip("/")
