"""Batch read: what is scheduled, as a table. Nothing is leased.

Room: spark. Planned on the driver, read on the executors, straight from the broker.
Holds: a message that is not changed meanwhile comes once; Arrow all the way.
See: broker/calls/scan.py for the other end; docs/guides/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from dejaqueue import limits
from dejaqueue.spark.columns import Shaper
from dejaqueue.spark.filters import Pushed
from dejaqueue.spark.options import Options


@dataclass
class Stretch(InputPartition):
    """A stretch of a partition, as a scan's ticket.

    Attributes:
        url: of the broker that has it; "" = the one that serves the topic.
    """

    ticket: dict[str, Any]
    url: str = ""


class Reader(DataSourceReader):
    """Reads a topic."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = Pushed(options.state)

    def partitions(self) -> list[InputPartition]:
        """One stretch for each partition, and as many sequences as the option says."""
        core = self._options.client("spark-read")
        try:
            ranges = core.call("scan_ranges", {"name": self._options.served})["partitions"]
        finally:
            core.close()
        pushed = self._pushed
        stretches: list[InputPartition] = []
        for part in ranges:
            number, first, end = part["partition"], part["first"], part["end"]
            if pushed.partitions is not None and number not in pushed.partitions:
                continue
            ticket = {"topic": self._options.served, "partition": number, **pushed.fields}
            if pushed.keys is not None:
                ticket["keys"] = sorted(pushed.keys)
            if pushed.ids is not None:
                mine = [one for one in sorted(pushed.ids) if one >> limits.SEQUENCE_BITS == number]
                if mine:
                    stretches.append(Stretch(ticket | {"ids": mine}))
                continue
            if pushed.keys is not None:
                stretches.append(Stretch(ticket))
                continue
            step = -(
                -(end - first) // max(1, -(-(end - first) // self._options.rows_per_partition))
            )
            # Whole slabs of the broker's table, which it looks at one by one.
            step = max(-(-step // limits.SLAB_ROWS) * limits.SLAB_ROWS, limits.SLAB_ROWS)
            edges = [first, *range((first // step + 1) * step, end, step), end]
            for low, high in pairwise(edges):
                if low < high:
                    stretches.append(Stretch(ticket | {"first": low, "end": high}))
        return stretches

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a stretch."""
        if not isinstance(partition, Stretch):
            return  # there is none
        shaper = Shaper(self._schema, self._options.topic)
        for batch in self._options.scan(partition.ticket | {"columns": shaper.wanted}):
            yield shaper.shape(batch)


class FilteringReader(Reader):
    """Reads a topic, and leaves filters to the broker."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what the broker can apply."""
        return self._pushed.push(filters)
