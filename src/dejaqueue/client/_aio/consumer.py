"""Consumers of the asynchronous client: one message at a time, or batches.

Room: client. The source of _sync/consumer.py (scripts/generate_sync_client.py): change this one.
Holds: one coroutine at a time takes; others wait for their turn.
See: consuming/consume_core.py for everything that does not wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import Literal, overload

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client import tracing
from dejaqueue.client._aio import waiting
from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.consuming.lateness import LatenessHistogram
from dejaqueue.client.consuming.messages import BatchFields, Handed, MessageColumns, MessageFields
from dejaqueue.client.consuming.settle_batches import ACKED, Fate
from dejaqueue.client.results import Settled
from dejaqueue.client.sending.inputs import delay_ms_of, int64s_of, reason_of
from dejaqueue.client.shards.consuming import TopicCore
from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus
from dejaqueue.wire.descriptors import check_lease
from dejaqueue.wire.frames import SettleOp


async def _settle_as(core: ConsumeCore, fate: Fate, rows: Slice, wait: bool) -> Settled | None:
    op, argument_ms, reason, dead = fate
    core.raise_error()
    if not wait:
        core.settle_behind(op, rows, argument_ms, reason=reason, dead=dead)
        return None
    answer = core.settle(op, rows, argument_ms, reason=reason, dead=dead)
    return Settled((await waiting.result(answer)).all_statuses())


async def _settle(
    core: ConsumeCore, op: SettleOp, rows: Slice, wait: bool, argument_ms: int = 0
) -> Settled | None:
    return await _settle_as(core, (op, argument_ms, "", False), rows, wait)


def _only(answer: Settled | None) -> RowStatus | None:
    return None if answer is None else answer.only()


def _fate(delay: timedelta | float | None, reason: str, dead: bool) -> Fate:
    """What a nack says. Raises BadRequest."""
    if dead and delay is not None:
        raise BadRequest("delay", "none for a message that dies now", delay)
    delay_ms = -1 if delay is None else delay_ms_of(delay)
    return SettleOp.NACK, delay_ms, reason_of(reason), dead


def _lease_ms(seconds: timedelta | float) -> int:
    lease_ms: int = check_lease(delay_ms_of(seconds, "extend"))
    return lease_ms


class AsyncMessage(MessageFields):
    """One received message. It is this consumer's until its lease ends, and leases are extended
    while the consumer is open (unless `auto_extend=False`)."""

    __slots__ = ()

    @overload
    async def ack(self, *, wait: Literal[True] = True) -> RowStatus: ...

    @overload
    async def ack(self, *, wait: Literal[False]) -> None: ...

    @overload
    async def ack(self, *, wait: bool) -> RowStatus | None: ...

    async def ack(self, *, wait: bool = True) -> RowStatus | None:
        """It is done: never deliver it again (rule 6).

        Args:
            wait: True = return when that is durable, with its status: OK, or LEASE_LOST when the
                lease had ended (rule 4). An ack whose connection broke is sent again: then
                LEASE_LOST may also mean that the first one was carried out. False = return None
                at once; acks are sent together within a millisecond, and an error surfaces at a
                later call.
        """
        columns = self._columns
        self._handled()
        if not wait:
            columns.core.raise_error()
            columns.core.settle_together(ACKED, columns.rows.lease, self.id, self.attempt)
            return None
        return _only(await _settle(columns.core, SettleOp.ACK, self._row(), wait))

    @overload
    async def nack(
        self,
        *,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
        wait: Literal[True] = True,
    ) -> RowStatus: ...

    @overload
    async def nack(
        self,
        *,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
        wait: Literal[False],
    ) -> None: ...

    @overload
    async def nack(
        self,
        *,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
        wait: bool,
    ) -> RowStatus | None: ...

    async def nack(
        self,
        *,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
        wait: bool = True,
    ) -> RowStatus | None:
        """It could not be done: deliver it again, or no more (rule 18).

        It dies if it was delivered `max_attempts` times: it goes to the dead-letter topic.

        Args:
            delay: deliver it after this (seconds or a timedelta); None = as the topic's backoff
                says, which is at once unless the topic has one.
            reason: why, for the dead letter; cut after 1,024 bytes.
            dead: it dies now, however often it was delivered.
            wait: as for `ack`.
        """
        columns, fate = self._columns, _fate(delay, reason, dead)
        self._handled()
        if not wait:
            columns.core.raise_error()
            columns.core.settle_together(fate, columns.rows.lease, self.id, self.attempt)
            return None
        return _only(await _settle_as(columns.core, fate, self._row(), wait))

    @overload
    async def extend(
        self, seconds: timedelta | float, *, wait: Literal[True] = True
    ) -> RowStatus: ...

    @overload
    async def extend(self, seconds: timedelta | float, *, wait: Literal[False]) -> None: ...

    @overload
    async def extend(self, seconds: timedelta | float, *, wait: bool) -> RowStatus | None: ...

    async def extend(self, seconds: timedelta | float, *, wait: bool = True) -> RowStatus | None:
        """Have its lease end this long from now."""
        core, lease_ms = self._columns.core, _lease_ms(seconds)
        return _only(await _settle(core, SettleOp.EXTEND, self._row(), wait, lease_ms))


class AsyncMessageBatch(BatchFields):
    """Received messages in columns, acked together."""

    @overload
    async def ack(self, *, wait: Literal[True] = True) -> Settled: ...

    @overload
    async def ack(self, *, wait: Literal[False]) -> None: ...

    @overload
    async def ack(self, *, wait: bool) -> Settled | None: ...

    async def ack(self, *, wait: bool = True) -> Settled | None:
        """All of them are done. See `AsyncMessage.ack`."""
        self._handled()
        return await _settle(self._core, SettleOp.ACK, self._rows, wait)

    @overload
    async def nack(
        self,
        *,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
        wait: Literal[True] = True,
    ) -> Settled: ...

    @overload
    async def nack(
        self,
        *,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
        wait: Literal[False],
    ) -> None: ...

    @overload
    async def nack(
        self,
        *,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
        wait: bool,
    ) -> Settled | None: ...

    async def nack(
        self,
        *,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
        wait: bool = True,
    ) -> Settled | None:
        """None of them could be done: deliver them again, or no more. See `AsyncMessage.nack`."""
        fate = _fate(delay, reason, dead)
        self._handled()
        return await _settle_as(self._core, fate, self._rows, wait)

    @overload
    async def extend(
        self, seconds: timedelta | float, *, wait: Literal[True] = True
    ) -> Settled: ...

    @overload
    async def extend(self, seconds: timedelta | float, *, wait: Literal[False]) -> None: ...

    @overload
    async def extend(self, seconds: timedelta | float, *, wait: bool) -> Settled | None: ...

    async def extend(self, seconds: timedelta | float, *, wait: bool = True) -> Settled | None:
        """Have their lease end this long from now."""
        return await _settle(self._core, SettleOp.EXTEND, self._rows, wait, _lease_ms(seconds))

    def take(self, indices: object) -> AsyncMessageBatch:
        """Some of them as a batch of their own, to be settled apart; by their places in this."""
        self._handled()
        places = int64s_of(indices, "indices")
        rows = self._rows
        part = Slice(
            rows.lease,
            rows.batch.take(pa.array(places)),
            rows.ids[places],
            rows.dues_ms[places],
            rows.attempts[places],
        )
        return AsyncMessageBatch(self._core, self._keeper, part, self.lateness_us[places])

    def messages(self) -> list[AsyncMessage]:
        """Each of them, to be settled one by one."""
        self._handled()
        columns = MessageColumns(self._core, self._keeper, self._rows)
        lateness_us = self.lateness_us.tolist()
        return [AsyncMessage(columns, at, lateness_us[at]) for at in range(len(columns))]


class _AsyncReceiver:
    """What both consumers share: opening, taking the next slice, closing."""

    def __init__(
        self, core: TopicCore, rows_max: int, idle_ms: int | None, max_messages: int | None
    ) -> None:
        self._core = core
        self._rows_max = rows_max
        self._idle_us = None if idle_ms is None else idle_ms * 1000
        self._left = max_messages
        self._turn = waiting.Mutex()
        self._is_open = False
        self._last: Handed | None = None

    async def open(self) -> None:
        """Open the stream now and not at the first message. Raises TopicUnknown, Unavailable."""
        if not self._is_open:
            await waiting.run(self._core.open)
            self._is_open = True

    async def _next(self) -> Slice | None:
        """The next slice; None = no more, and the consumer is closed."""
        if not self._is_open:
            await self.open()
        rows_max = self._rows_max if self._left is None else min(self._rows_max, self._left)
        found = None
        if rows_max > 0:
            found = await waiting.next_slice(self._core, rows_max, self._idle_us)
        if found is None:
            await waiting.run(self._core.finish)
            self._core.raise_error()
            return None
        if self._left is not None:
            self._left -= len(found.ids)
        return found

    def lateness(self) -> LatenessHistogram:
        """How late messages were handed over, from due time on; never early."""
        return self._core.lateness

    async def close(self) -> None:
        """End: messages not handed over go back to the broker at once, acks that wait are sent.

        Raises:
            Unavailable: an ack that was not waited for failed.
        """
        if tracing.is_on():
            tracing.dealt_with(self)
        await waiting.run(self._core.close)
        self._core.raise_error()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None:
            core.abandon()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if tracing.is_on():
            tracing.dealt_with(self, error)
        if kind is not None and issubclass(kind, Exception) and not self._core.is_over:
            self._refuse_last(kind.__name__)
        await self.close()

    def _refuse_last(self, reason: str) -> None:
        """Give back what was handed over last, if nobody settled it: its work raised."""
        last = self._last
        if last is not None and not last.is_handled and not self._core.stream.auto_ack:
            self._core.refuse_last(last.rows(), reason)


class AsyncConsumer(_AsyncReceiver, AsyncIterator[AsyncMessage]):
    """Messages one at a time, each at its time. Close it, or use it as a context manager."""

    _columns: MessageColumns | None = None
    _index = 0

    async def __aenter__(self) -> AsyncConsumer:
        await self.open()
        return self

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> AsyncMessage:
        traced = tracing.is_on()
        if traced:
            tracing.dealt_with(self)
        async with self._turn:
            while True:
                message = self._at_hand()
                if message is not None:
                    if traced:
                        tracing.handed_over(self, self._core.stream.topic, message)
                    return message
                found = await self._next()
                if found is None:
                    raise StopAsyncIteration
                core = self._core.owner(found)
                self._index, self._columns = 0, MessageColumns(core, self, found)

    def _at_hand(self) -> AsyncMessage | None:
        """The next message of the slice at hand, if there is one and its lease lasts."""
        columns, index = self._columns, self._index
        if columns is None or index >= len(columns):
            return None
        self._index = index + 1
        core = columns.core
        broker_us = core.offset.broker_us(core.clock.now_us())
        if columns.rows.lease.end_ms * 1000 <= broker_us:
            core.skip(columns.rows.lease, len(columns) - index)
            self._columns = None
            return None
        late_us = max(broker_us - columns.dues_ms[index] * 1000, 0)
        core.lateness.add(late_us)
        self._last = columns.last = Handed(columns.rows, index)
        return AsyncMessage(columns, index, late_us)


class AsyncBatchConsumer(_AsyncReceiver, AsyncIterator[AsyncMessageBatch]):
    """Messages in batches, each when all of it is due. Close it, or use it as a context manager."""

    async def __aenter__(self) -> AsyncBatchConsumer:
        await self.open()
        return self

    def __aiter__(self) -> AsyncBatchConsumer:
        return self

    async def __anext__(self) -> AsyncMessageBatch:
        traced = tracing.is_on()
        if traced:
            tracing.dealt_with(self)
        async with self._turn:
            found = await self._next()
        if found is None:
            raise StopAsyncIteration
        core = self._core.owner(found)
        late_us = core.late_us(found.dues_ms)
        core.lateness.add_many(late_us)
        batch = AsyncMessageBatch(core, self, found, late_us)
        self._last = batch.handed
        if traced:
            tracing.batch_handed_over(self, self._core.stream.topic, batch)
        return batch


def check_consumer(prefetch: int, rows_max: int, idle_ms: object, max_messages: object) -> None:
    """Raise BadRequest if a consumer cannot be so."""
    bounds = {
        "prefetch": (prefetch, 1, limits.CREDIT_MAX),
        "batch_rows": (rows_max, 1, limits.DISPATCH_ROWS_MAX),
        "idle_ms": (0 if idle_ms is None else idle_ms, 0, limits.INSTANT_MS_MAX),
        "max_messages": (0 if max_messages is None else max_messages, 0, limits.SEQUENCE_MAX),
    }
    for field, (value, low, high) in bounds.items():
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadRequest(field, f"a whole number from {low} to {high}", value)
