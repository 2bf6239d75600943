"""A transport moved by hand: tests answer batches, deliver rows and break channels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue.client.transport import Delivery
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.schema import messages
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import DeliveryHead, Ping, Pong, Reply, Settle

SECONDS_MAX = 10.0
"""No test waits longer for another thread."""


class FakeWrite:
    """A write channel: batches wait here until the test answers, or are answered at once."""

    def __init__(self, stream: WriteStream, answer: Callable[[int, Any], Reply] | None) -> None:
        self.stream = stream
        self.sent: list[tuple[int, pa.RecordBatch, Future[Reply]]] = []
        self.arrived = threading.Condition()
        self.is_broken = False
        self.is_closed = False
        self._answer = answer

    def send(self, number: int, batch: pa.RecordBatch) -> Future[Reply]:
        future: Future[Reply] = Future()
        if self.is_broken:
            future.set_exception(Unavailable("broken"))
            return future
        with self.arrived:
            self.sent.append((number, batch, future))
            self.arrived.notify_all()
        if self._answer is not None:
            future.set_result(self._answer(number, batch))
        return future

    def wait_for(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.sent) >= count, SECONDS_MAX)

    def answer(self, index: int, **values: Any) -> None:
        number, batch, future = self.sent[index]
        future.set_result(Reply(number, batch.num_rows, **{"first_id": 100 * number, **values}))

    def break_off(self, error: DejaQError | None = None) -> None:
        self.is_broken = True
        for _, _, future in list(self.sent):
            if not future.done():
                future.set_exception(error or Unavailable("broken"))

    def close(self) -> None:
        self.is_closed = True
        self.break_off()


class FakeConsume:
    """A consume channel: what the client said is kept, what it hears comes from the test."""

    def __init__(self, stream: ConsumeStream, on_delivery: Any, on_pong: Any, on_end: Any) -> None:
        self.stream = stream
        self.on_delivery, self.on_pong, self.on_end = on_delivery, on_pong, on_end
        self.credits: list[int] = []
        self.settles: list[Settle] = []
        self.futures: list[Future[Reply]] = []
        self.pings: list[Ping] = []
        self.answers_settles = True
        self.is_broken = False
        self.is_closed = False
        self.is_whole = True
        self.settled = threading.Condition()

    def credit(self, rows: int) -> None:
        self.credits.append(rows)

    def settle(self, settle: Settle) -> Future[Reply]:
        future: Future[Reply] = Future()
        with self.settled:
            self.settles.append(settle)
            self.futures.append(future)
            self.settled.notify_all()
        if self.is_broken:
            future.set_exception(Unavailable("broken"))
        elif self.answers_settles or settle.number == 0:
            rows = 0 if settle.ids is None else len(settle.ids)
            future.set_result(Reply(settle.number, rows))
        return future

    def wait_settles(self, count: int) -> None:
        with self.settled:
            assert self.settled.wait_for(lambda: len(self.settles) >= count, SECONDS_MAX)

    def ping(self, ping: Ping) -> None:
        self.pings.append(ping)

    def pong(self, broker_us: int, index: int = -1) -> None:
        ping = self.pings[index]
        self.on_pong(Pong(ping.number, ping.client_us, broker_us))

    def deliver(
        self,
        dues_ms: list[int],
        *,
        broker_us: int,
        lease_id: int = 1,
        lease_ms: int = 30_000,
        first_id: int = 0,
        attempt: int = 1,
    ) -> None:
        end_ms = broker_us // 1000 + lease_ms
        head = DeliveryHead(0, len(dues_ms), lease_id, end_ms, broker_us)
        self.on_delivery(Delivery(head, delivery_batch(dues_ms, first_id, attempt)))

    def break_off(self, error: DejaQError | None = None) -> None:
        self.is_broken = True
        self.on_end(error or Unavailable("broken"))

    def close(self) -> bool:
        self.is_closed = True
        return self.is_whole


def delivery_batch(dues_ms: list[int], first_id: int = 0, attempt: int = 1) -> pa.RecordBatch:
    """Rows as the broker sends them."""
    rows = len(dues_ms)
    columns = {
        "id": pa.array(range(first_id, first_id + rows), pa.int64()),
        "due": pa.array(dues_ms, pa.int64()),
        "attempts": pa.array(np.full(rows, attempt, dtype=np.uint16)),
        "key": pa.array([f"key-{at}" for at in range(rows)], pa.utf8()),
        "group": pa.nulls(rows, pa.utf8()),
        "priority": pa.array(np.full(rows, 7, dtype=np.uint16)),
        "tags": pa.array([["blue"]] * rows, messages.TAGS),
        "headers": pa.array([[("trace", "1")]] * rows, messages.HEADERS),
        "payload": pa.array([b"payload-%d" % at for at in range(rows)], pa.binary()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=messages.DELIVERY)


class FakeTransport:
    """Opens fake channels.

    Args:
        answer: answers each batch at once; None = the test answers.
    """

    def __init__(
        self,
        answer: Callable[[int, Any], Reply] | None = None,
        *,
        shares_clock: bool = False,
        actions: dict[str, Any] | None = None,
    ) -> None:
        self.shares_clock = shares_clock
        self.writes: list[FakeWrite] = []
        self.consumes: list[FakeConsume] = []
        self.refuses: DejaQError | None = None
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.repeats: list[bool] = []
        self.tickets: list[dict[str, Any]] = []
        self.pages: list[pa.Table] = []
        self.is_closed = False
        self._answer = answer
        self._actions = actions or {}
        self._opened = threading.Condition()

    def open_lane(self, stream: WriteStream, *, has_fields: bool = False) -> None:
        """There is none."""

    def open_write(self, stream: WriteStream, *, shared: bool = False) -> FakeWrite:
        if self.refuses is not None:
            raise self.refuses
        with self._opened:
            self.writes.append(FakeWrite(stream, self._answer))
            self._opened.notify_all()
        return self.writes[-1]

    def wait_writes(self, count: int) -> FakeWrite:
        with self._opened:
            assert self._opened.wait_for(lambda: len(self.writes) >= count, SECONDS_MAX)
        return self.writes[count - 1]

    def open_consume(
        self, stream: ConsumeStream, on_delivery: Any, on_pong: Any, on_end: Any
    ) -> FakeConsume:
        if self.refuses is not None:
            raise self.refuses
        with self._opened:
            self.consumes.append(FakeConsume(stream, on_delivery, on_pong, on_end))
            self._opened.notify_all()
        return self.consumes[-1]

    def wait_consumes(self, count: int) -> FakeConsume:
        with self._opened:
            assert self._opened.wait_for(lambda: len(self.consumes) >= count, SECONDS_MAX)
        return self.consumes[count - 1]

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        self.calls.append((name, body))
        self.repeats.append(repeats)
        future: Future[dict[str, Any]] = Future()
        answer = self._actions.get(name, {})
        future.set_result(answer(body) if callable(answer) else answer)
        return future

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        self.tickets.append(ticket)
        future: Future[pa.Table] = Future()
        future.set_result(self.pages.pop(0))
        return future

    def close(self) -> None:
        self.is_closed = True


def ok(number: int, batch: pa.RecordBatch) -> Reply:
    """Every row is taken; ids follow each other."""
    return Reply(number, batch.num_rows, first_id=1_000 * number)
