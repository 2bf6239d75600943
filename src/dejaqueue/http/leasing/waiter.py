"""A request that waits for messages, and the messages that it gets.

Room: http. Pure but for the future; on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pyarrow as pa

from dejaqueue.http.answers import Objects, messages


class Delivered:
    """Messages that came together; several requests may share them.

    Attributes:
        batch: their columns, schema DELIVERY.
        lease_end_ms: when the lease ends, UTC milliseconds.
    """

    def __init__(self, batch: pa.RecordBatch, lease_end_ms: int) -> None:
        self.batch = batch
        self.lease_end_ms = lease_end_ms
        self._objects: dict[object, Objects] = {}

    def objects(self, *, as_base64: bool) -> Objects:
        """The messages as JSON objects, made once for all requests that share them."""
        objects = self._objects.get(as_base64)
        if objects is None:
            objects = messages(self.batch, as_base64=as_base64, lease_end_ms=self.lease_end_ms)
            self._objects[as_base64] = objects
        return objects

    def values(self, make: Callable[[pa.RecordBatch], Objects]) -> Objects:
        """The messages as a function makes them of the batch, once for all requests that share
        them, who change nothing in them."""
        values = self._objects.get(make)
        if values is None:
            values = self._objects[make] = make(self.batch)
        return values


@dataclass(frozen=True, slots=True)
class Taken:
    """What one request gets of messages that came together: a stretch of them."""

    delivered: Delivered
    first: int
    rows: int

    @property
    def batch(self) -> pa.RecordBatch:
        """Their columns, schema DELIVERY."""
        return self.delivered.batch.slice(self.first, self.rows)

    @property
    def lease_end_ms(self) -> int:
        """When the lease ends, UTC milliseconds."""
        return self.delivered.lease_end_ms

    def objects(self, *, as_base64: bool = False) -> Objects:
        """The messages as JSON objects."""
        return self.delivered.objects(as_base64=as_base64)[self.first : self.first + self.rows]

    def values(self, make: Callable[[pa.RecordBatch], Objects]) -> Objects:
        """The messages as a function makes them of a batch; nobody may change them."""
        return self.delivered.values(make)[self.first : self.first + self.rows]


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits.

    Attributes:
        rows_max: rows that it takes at most.
        future: what it gets; empty when its time is over.
    """

    rows_max: int
    future: asyncio.Future[list[Taken]]
    ends_at: float
    parts: list[Taken] = field(default_factory=list)
    rows: int = 0
    is_late: bool = False
    timer: asyncio.TimerHandle | None = None
    watch: asyncio.Task[None] | None = None
    gone: Callable[[], Awaitable[None]] | None = None
