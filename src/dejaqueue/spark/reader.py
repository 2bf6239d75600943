"""Batch read: what is scheduled, as a table. Nothing is leased.

Room: spark. Planned on the driver, read on the executors, straight from the broker.
Holds: a message that is not changed meanwhile comes once; Arrow all the way; no message is left out
silently.
See: broker/calls/scan.py for the other end; docs/guides/spark.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from dejaqueue import limits
from dejaqueue.schema.messages import UNREAD
from dejaqueue.spark.columns import Shaper
from dejaqueue.spark.filters import Pushed
from dejaqueue.spark.options import Options

log = logging.getLogger("dejaqueue.spark")


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
        if not self._options.drops_damaged:
            for batch in self._options.scan(partition.ticket | {"columns": shaper.wanted}):
                yield shaper.shape(batch)
            return
        columns = [*shaper.wanted, "id", UNREAD.name]
        damage = DamageCount(
            f"topic {self._options.served}, partition {partition.ticket['partition']}"
        )
        try:
            for batch in self._options.scan(partition.ticket | {"columns": columns}):
                yield shaper.shape(damage.rest_of(batch))
        finally:
            damage.tell()


class DamageCount:
    """Counts the damaged messages of a stretch. Who asked cannot be told otherwise than by the log:
    Spark gives a reader no way to answer, and nothing of its own calls it when a query is done."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.count = 0
        self._first = ""

    def rest_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of a scan with UNREAD without the rows that cannot be read."""
        reasons = batch.column(UNREAD.name)
        lost = len(reasons) - reasons.null_count
        if not lost:
            return batch
        if not self.count:
            row = int(np.flatnonzero(np.asarray(reasons.is_valid()))[0])
            self._first = f"{batch.column('id')[row].as_py()}, {reasons[row].as_py()}"
        self.count += lost
        return batch.filter(reasons.is_null())

    def tell(self) -> None:
        """Log how many it were, if there were any."""
        if self.count:
            text = "%s: %d damaged messages are left out, the first of them %s"
            log.warning(text, self._place, self.count, self._first)


class FilteringReader(Reader):
    """Reads a topic, and leaves filters to the broker."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what the broker can apply."""
        return self._pushed.push(filters)
