"""The view `history`: what happened to the messages of a topic, as a table.

Room: spark. Planned on the driver, read on the executors, through the broker: nobody needs its
disk.
Holds: all that was durable when the query was planned is in it; one file of the broker is one
input partition.
See: broker/history/reading.py for the other end; docs/guides/history.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from dejaqueue import limits
from dejaqueue.spark.columns import Shaper
from dejaqueue.spark.filters import first_ms
from dejaqueue.spark.options import Options
from dejaqueue.spark.reader import Stretch

_ALWAYS = {"topic", "partition", "change", "at_ms", "id", "sequence", "position"}
_END_MS = limits.INSTANT_MS_MAX + 1


class HistoryReader(DataSourceReader):
    """Reads the history of a topic."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._from_ms, self._to_ms = 0, _END_MS
        self._numbers: set[int] | None = None

    def partitions(self) -> list[InputPartition]:
        """The broker's files."""
        times = {"at_from": self._from_ms, "at_to": self._to_ms}
        if self._from_ms >= self._to_ms:
            return []
        transport = self._options.transport()
        try:
            body = {"name": self._options.topic, **times}
            files = transport.action("history_files", body).result()["files"]
        finally:
            transport.close()
        return [
            Stretch(self._ticket(file) | times)
            for file in files
            if self._numbers is None or file["partition"] in self._numbers
        ]

    def _ticket(self, file: dict[str, Any]) -> dict[str, Any]:
        topic, number = self._options.topic, file["partition"]
        return {"op": "history", "topic": topic, "partition": number, "file": file["name"]}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes in a file."""
        if not isinstance(partition, Stretch):
            return  # there is none
        shaper = Shaper(self._schema, self._options.topic)
        transport = self._options.transport()
        try:
            for batch in transport.scan(partition.ticket | {"columns": shaper.wanted}):
                yield shaper.shape(batch)
        finally:
            transport.close()


class FilteringHistoryReader(HistoryReader):
    """Reads history, and leaves filters by time and partition to the broker."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what the broker can apply."""
        return [one for one in filters if not self._take(one)]

    def _take(self, one: Filter) -> bool:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1:
            return False
        name = path[0]
        match one:
            case IsNotNull():
                return name in _ALWAYS
            case EqualTo() | EqualNullSafe() | In():
                return self._equal(name, list(one.value) if isinstance(one, In) else [one.value])
            case GreaterThanOrEqual() | GreaterThan():
                low = first_ms(one.value, int(isinstance(one, GreaterThan)))
                if name != "at_ms" or low is None or low >= _END_MS:
                    return False
                self._from_ms = max(self._from_ms, low)
                return True
            case LessThan() | LessThanOrEqual():
                end = first_ms(one.value, int(isinstance(one, LessThanOrEqual)))
                if name != "at_ms" or end is None or end < 0:
                    return False
                self._to_ms = min(self._to_ms, end)
                return True
        return False

    def _equal(self, name: str, values: list[Any]) -> bool:
        if name == "topic":
            return values == [self._options.topic]
        if name != "partition" or not all(type(value) is int for value in values):
            return False
        chosen = set(values)
        self._numbers = chosen if self._numbers is None else self._numbers & chosen
        return True
