"""Gathering: requests that come while an earlier batch becomes durable go into the next one.

Room: http. Lives on the event loop; replies come from a worker's thread with one call for each
batch.
Holds: each request gets the answer to its own rows, once; what is wrong with one request does not
refuse another's.
See: docs/guides/http.md. 64 clients that send one message each share syncs, wakes and commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from dejaqueue.access.quotas import Account
from dejaqueue.access.senders import Sender
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import ServedView, Writer
from dejaqueue.errors import BadRequest, DejaQError, InternalError, Unavailable
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

ToBatch: TypeAlias = Callable[[Sequence[Any]], pa.RecordBatch]
"""Makes a batch of what requests bring. Raises BadRequest."""
Key = TypeVar("Key", bound=Hashable)
IN_FLIGHT_MAX = 2
"""Batches of one kind that are being made durable: one with the disk, one with the worker."""
ROWS_MAX = 8_192
"""Rows of one gathered batch, about."""
GATHERS_MAX = 1_024
"""Gatherers that are kept; when there are more, those with nothing to do go."""
LOOK_AT = 16
"""With so many it is first looked which of them are of topics that are gone."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a request's rows.

    Attributes:
        ids: id of each row, -1 where there is none.
        statuses: RowStatus of each row.
    """

    ids: list[int]
    statuses: list[int]


@dataclass(slots=True, eq=False)
class _Request:
    rows: Sequence[Any]
    future: asyncio.Future[Answered]


class Gather:
    """Batches of one kind for one topic.

    Args:
        stream: the topic, and what the batches are.
        sender: whose they are, all of them.
        to_batch: makes a batch of the rows of several requests.
    """

    def __init__(
        self, broker: Broker, stream: WriteStream, sender: Sender, to_batch: ToBatch
    ) -> None:
        self._broker = broker
        self._stream = stream
        self._sender = sender
        self._to_batch = to_batch
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Request] = []
        self._in_flight = 0
        self._is_planned = False
        self._number = 0
        self._writer: Writer | None = None
        self._runtime: ServedView | None = None

    @property
    def is_idle(self) -> bool:
        """True if nothing waits here, and nothing is on its way."""
        return not self._waiting and not self._in_flight

    @property
    def is_gone(self) -> bool:
        """True if the topic that it wrote to is not served here any more, and nobody waits."""
        if not self.is_idle or self._runtime is None:
            return False
        try:
            return self._broker.view(self._stream.topic) is not self._runtime
        except DejaQError:
            return True

    def put(self, rows: Sequence[Any]) -> asyncio.Future[Answered]:
        """Have these rows written with whatever else comes now; done when they are durable."""
        request = _Request(rows, self._loop.create_future())
        self._waiting.append(request)
        if not self._is_planned and self._in_flight < IN_FLIGHT_MAX:
            self._is_planned = True
            self._loop.call_soon(self._flush)
        return request.future

    def _flush(self) -> None:
        """Write what waits: all that came in this turn of the loop, and before."""
        self._is_planned = False
        waiting, self._waiting = self._waiting, []
        requests: list[_Request] = []
        count = 0
        for request in waiting:
            requests.append(request)
            count += len(request.rows)
            if count >= ROWS_MAX:
                self._write(requests)
                requests, count = [], 0
        if requests:
            self._write(requests)

    def _write(self, requests: list[_Request]) -> None:
        self._in_flight += 1
        self._number = self._number % 0xFFFF_FFFF + 1
        if len(requests) == 1:
            rows = requests[0].rows
        else:
            rows = [row for request in requests for row in request.rows]
        try:
            batch = self._to_batch(rows)
            if self._broker.payloads.takes(batch):
                self._write_apart(requests, batch)
                return
            writer = self._writer_now()
        except DejaQError as error:
            self._answer(requests, Reply(self._number, len(rows), error=error))
            return
        except Exception as wrong:  # noqa: BLE001 - our bug, and somebody waits
            if len(requests) > 1:
                self._in_flight -= 1
                for request in requests:  # one of them provokes it: the others are sent
                    self._write([request])
                return
            bug = InternalError(f"{type(wrong).__name__}: {wrong}")
            bug.__cause__ = wrong  # for the log
            self._answer(requests, Reply(self._number, len(rows), error=bug))
            return
        writer.submit(self._number, batch, partial(self._reply, requests))

    def _write_apart(self, requests: list[_Request], batch: pa.RecordBatch) -> None:
        """What waits for the payload store: each request by itself, and nobody behind it."""
        if len(requests) > 1:
            self._in_flight -= 1
            for request in requests:
                self._write([request])
            return
        writer = self._broker.open_write(self._stream, self._sender)
        self._in_flight -= 1
        writer.submit(self._number, batch, partial(self._reply_apart, requests))

    def _reply_apart(self, requests: list[_Request], reply: Reply) -> None:
        """On any thread."""

        def answer() -> None:
            self._in_flight += 1
            self._answer(requests, reply)

        call_soon(self._loop, answer)

    def _writer_now(self) -> Writer:
        """A writer of the topic as it is now: one of that name may have been deleted and made."""
        runtime = self._broker.view(self._stream.topic)
        if self._writer is None or runtime is not self._runtime:
            self._writer = self._broker.open_write(self._stream, self._sender)
            self._runtime = runtime
        return self._writer

    def _reply(self, requests: list[_Request], reply: Reply) -> None:
        """On any thread."""
        call_soon(self._loop, self._answer, requests, reply)

    def _answer(self, requests: list[_Request], reply: Reply) -> None:
        self._in_flight -= 1
        if isinstance(reply.error, BadRequest) and len(requests) > 1:
            for request in requests:  # one of them is wrong: find out which
                self._write([request])
            return
        if reply.error is not None:
            for request in requests:
                if not request.future.done():
                    request.future.set_exception(reply.error)
        else:
            ids, statuses = reply.all_ids().tolist(), reply.all_statuses().tolist()
            first = 0
            for request in requests:
                end = first + len(request.rows)
                if not request.future.done():
                    request.future.set_result(Answered(ids[first:end], statuses[first:end]))
                first = end
        if self._waiting and not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._flush)


class Gathers(Generic[Key]):
    """The gatherers of an application, by what they gather, until their topics are gone."""

    def __init__(self) -> None:
        self._kept: dict[Key, Gather] = {}
        self._look_at = LOOK_AT

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Gather | None:
        """The one of this key."""
        return self._kept.get(key)

    def keep(self, key: Key, made: Gather) -> Gather:
        """Keep one that was just made."""
        if len(self._kept) >= min(self._look_at, GATHERS_MAX):
            # Each holds all that was served of its topic.
            kept = {key: one for key, one in self._kept.items() if not one.is_gone}
            if len(kept) >= GATHERS_MAX:
                kept = {key: one for key, one in kept.items() if not one.is_idle}
            self._kept = kept
            self._look_at = max(LOOK_AT, 2 * len(kept))
        self._kept[key] = made
        return made


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: Any) -> None:
    """Run a call on the loop, from any thread; when the loop has ended nobody waits for it."""
    try:
        loop.call_soon_threadsafe(call, *values)
    except RuntimeError:
        if not loop.is_closed():
            raise


async def write(
    broker: Broker,
    stream: WriteStream,
    sender: Sender,
    batch: pa.RecordBatch,
    number: int = 0,
    account: Account | None = None,
) -> Answered:
    """Write one batch by itself; returns when it is durable. Raises what the reply says.

    Args:
        account: for whose quotas a transaction counts.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Reply] = loop.create_future()

    def answered(reply: Reply) -> None:
        call_soon(loop, _set_reply, future, reply)

    writer = broker.open_write(stream, sender, account)
    writer.check_schema(batch.schema)
    writer.submit(number, batch, answered)
    reply = await future
    if reply.error is not None:
        raise reply.error
    return Answered(reply.all_ids().tolist(), reply.all_statuses().tolist())


def _set_reply(future: asyncio.Future[Reply], reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)


def stopping() -> Unavailable:
    """What requests are told that wait when the server stops."""
    return Unavailable("the broker is stopping", 1_000)
