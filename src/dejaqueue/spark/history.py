"""The view `history`: what happened to the messages of a topic, as a table.

Room: spark. Planned on the driver, read on the executors, through the broker: nobody needs its
disk.
Holds: all that was durable when the query was planned is in it; one file of a broker is one input
partition. In a cluster every broker is asked for what it recorded, and each change comes once.
See: history_plan.py; broker/calls/history.py for the other end; docs/guides/history.md.
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
from dejaqueue.client.routed_transport import RoutedTransport
from dejaqueue.model import ChangeKind
from dejaqueue.spark.columns import Shaper
from dejaqueue.spark.filters import first_ms
from dejaqueue.spark.history_plan import Recorded, plan
from dejaqueue.spark.options import Options
from dejaqueue.spark.reader import Stretch

_ALWAYS = {"topic", "partition", "change", "at_ms", "id", "sequence", "position"}
_END_MS = limits.INSTANT_MS_MAX + 1
HOUR_MS = 3_600_000
GAP = ChangeKind.GAP.name.lower()


class HistoryReader(DataSourceReader):
    """Reads the history of a topic."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._from_ms, self._to_ms = 0, _END_MS
        self._numbers: set[int] | None = None
        self._only_gaps = False

    def partitions(self) -> list[InputPartition]:
        """The files of the broker, or of all brokers of a cluster."""
        if self._from_ms >= self._to_ms:
            return []
        transport = self._options.transport()
        try:
            urls = self._cluster(transport)
            tickets = list(self._of_all(urls) if urls else self._of_one(transport))
        finally:
            transport.close()
        times = {"at_from": self._from_ms, "at_to": self._to_ms}
        numbers = self._numbers
        return [
            Stretch(ticket | times, url)
            for url, ticket in tickets
            if numbers is None or ticket["partition"] in numbers
        ]

    def _cluster(self, transport: RoutedTransport) -> list[str]:
        """Where the brokers of the cluster are; none: it is no cluster."""
        cluster = transport.action("cluster", {"topic": self._options.topic}).result()
        return [node["url"] for node in cluster["nodes"]]

    def _of_one(self, transport: RoutedTransport) -> Iterator[tuple[str, dict[str, Any]]]:
        times = {"at_from": self._from_ms, "at_to": self._to_ms}
        body = {"name": self._options.topic, **times}
        for file in transport.action("history_files", body).result()["files"]:
            if file["has_gaps"] or not self._only_gaps:
                yield "", self._ticket(file)

    def _of_all(self, urls: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        # Of all hours: what one broker recorded in an hour can be the gap of another in the next.
        body = {"name": self._options.topic, "here": True}
        brokers = []
        for url in urls:
            direct = self._options.transport_to(url)
            try:
                answer = direct.action("history_files", body).result()
            finally:
                direct.close()
            brokers.append(Recorded.of(url, answer))
        for share in plan(brokers):
            hour_ms = share.file["hour_ms"]
            if self._only_gaps and not share.gaps:
                continue
            if hour_ms < self._to_ms and hour_ms + HOUR_MS > self._from_ms:
                chosen = {"positions": share.positions, "gaps": share.gaps}
                yield share.url, self._ticket(share.file) | {"here": True, **chosen}

    def _ticket(self, file: dict[str, Any]) -> dict[str, Any]:
        topic, number = self._options.topic, file["partition"]
        return {"op": "history", "topic": topic, "partition": number, "file": file["name"]}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes in a file."""
        if not isinstance(partition, Stretch):
            return  # there is none
        shaper = Shaper(self._schema, self._options.topic)
        ticket = partition.ticket | {"columns": shaper.wanted}
        for batch in self._options.scan(ticket, partition.url):
            yield shaper.shape(batch)


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
        if name == "change":
            # Which files have gaps is known; the rest is left to Spark.
            self._only_gaps = self._only_gaps or values == [GAP]
            return False
        if name != "partition" or not all(type(value) is int for value in values):
            return False
        chosen = set(values)
        self._numbers = chosen if self._numbers is None else self._numbers & chosen
        return True
