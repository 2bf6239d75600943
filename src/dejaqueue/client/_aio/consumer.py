"""Consumers of the asynchronous client: one message at a time, or batches.

Room: client. The source of _sync/consumer.py (scripts/generate_sync_client.py): change this one.
Holds: one coroutine at a time takes; others wait for their turn.
See: consuming/consume_core.py for everything that does not wait.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Literal, overload

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client import tracing
from dejaqueue.client._aio import waiting
from dejaqueue.client._aio.payload import AsyncPayload
from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.consuming.lateness import LatenessHistogram
from dejaqueue.client.consuming.messages import (
    BatchFields,
    Handed,
    MessageColumns,
    MessageFields,
    rows_from,
)
from dejaqueue.client.consuming.settle_batches import ACKED, Fate, nack_fate
from dejaqueue.client.consuming.work import check_concurrency, story_of, summary_of
from dejaqueue.client.results import Settled
from dejaqueue.client.sending.inputs import delay_ms_of, int64s_of
from dejaqueue.client.shards.consuming import TopicCore
from dejaqueue.client.streamed import Download
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.model import RowStatus
from dejaqueue.wire.descriptors import check_lease
from dejaqueue.wire.frames import SettleOp

log = logging.getLogger("dejaqueue.client")


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


def _lease_ms(seconds: timedelta | float) -> int:
    lease_ms: int = check_lease(delay_ms_of(seconds, "extend"))
    return lease_ms


class AsyncMessage(MessageFields):
    """One received message. It is this consumer's until its lease ends, and leases are extended
    while the consumer is open (unless `auto_extend=False`)."""

    __slots__ = ()

    async def open(self) -> AsyncPayload:
        """Its payload, to be read bit by bit: what was streamed is never in memory as a whole.

        It is there until the message is acked, and for a minute more.
        """
        if not self.is_streamed:
            return AsyncPayload(None, self.payload)
        return AsyncPayload(Download(self._columns.core.part_calls, self.payload))

    @overload
    async def ack(self, *, wait: Literal[False] | None = None) -> None: ...

    @overload
    async def ack(self, *, wait: Literal[True]) -> RowStatus: ...

    @overload
    async def ack(self, *, wait: bool | None) -> RowStatus | None: ...

    async def ack(self, *, wait: bool | None = None) -> RowStatus | None:
        """It is done: never deliver it again (rule 6).

        Acks are sent together within a millisecond, and do not wait for each other. They are
        durable when the consumer has been closed, or its iteration has ended, without an error: an
        ack that fails (no broker in time, a key that ended) is raised by the next call, or by
        closing. Of one whose lease had ended (rule 4) nobody is told, unless `wait` is True.

        Args:
            wait: True = return when it is durable, with its status: OK, or LEASE_LOST when the
                lease had ended. An ack whose connection broke is sent again: then LEASE_LOST may
                also mean that the first one was carried out. False = never wait, but while very
                much is on its way. None = wait where nothing would tell of an error (the iteration
                has ended), and where the broker is in this process.
        """
        columns = self._columns
        self._handled()
        if wait is None and columns.core.waits:
            await _settle(columns.core, SettleOp.ACK, self._row(), wait=True)
            return None
        if not wait:
            await self._settle_soon(ACKED)
            return None
        return _only(await _settle(columns.core, SettleOp.ACK, self._row(), wait=True))

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
            wait: True = return when that is durable, with its status; False = as for `ack`.
        """
        columns, fate = self._columns, nack_fate(delay, reason, dead)
        self._handled()
        if not wait:
            await self._settle_soon(fate)
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

    async def _settle_soon(self, fate: Fate) -> None:
        """Settle it, and wait for no answer but where too many are missing."""
        columns = self._columns
        columns.core.raise_error()
        answer = columns.core.settle_together(fate, columns.rows.lease, self.id, self.attempt)
        if answer is not None:
            await waiting.run(answer.exception)  # it is noted, and raised by the next call


class AsyncMessageBatch(BatchFields):
    """Received messages in columns, acked together."""

    @overload
    async def ack(self, *, wait: Literal[True] = True) -> Settled: ...

    @overload
    async def ack(self, *, wait: Literal[False]) -> None: ...

    @overload
    async def ack(self, *, wait: bool) -> Settled | None: ...

    async def ack(self, *, wait: bool = True) -> Settled | None:
        """All of them are done. See `AsyncMessage.ack`; of a batch it waits unless told not to."""
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
        fate = nack_fate(delay, reason, dead)
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
        columns = MessageColumns(self._core, self._rows)
        lateness_us = self.lateness_us.tolist()
        return [
            AsyncMessage(columns, at, lateness_us[at], self._keeper) for at in range(len(columns))
        ]


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
        core.put_back_rest = weakref.WeakMethod(self._put_back_rest)

    def __repr__(self) -> str:
        core = self._core
        state = "closed" if core.is_over else "draining" if core.is_ending else "open"
        state = state if self._is_open or core.is_over else "not open yet"
        return f"<{type(self).__name__} of {core.stream.topic}, {state}>"

    def _put_back_rest(self) -> None:
        """Give back what was taken and is not handed over; on any thread."""

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
        if found is not None and self._core.is_ending:
            self._core.owner(found).put_back(found)
            found = None
        if found is None:
            await waiting.run(self._core.finish)
            self._core.raise_error()
            return None
        if self._left is not None:
            self._left -= len(found.ids)
        return found

    def drain(self) -> None:
        """Take nothing new: the iteration ends after the message or batch that is at work now.

        What was handed over can still be settled, and is its consumer's until then; what the
        client holds goes back to the broker at once (with `auto_ack` it is gone). Returns at once;
        from any thread, and from a signal's handler. Twice is fine.
        """
        self._core.drain()

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

    def __init__(
        self, core: TopicCore, rows_max: int, idle_ms: int | None, max_messages: int | None
    ) -> None:
        super().__init__(core, rows_max, idle_ms, max_messages)
        self._rest = threading.Lock()  # of the slice at hand: a drain may give it back

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
                if self._core.is_ending:
                    self._put_back_rest()
                message = self._at_hand()
                if message is not None:
                    if traced:
                        tracing.handed_over(self, self._core.stream.topic, message)
                    return message
                found = await self._next()
                if found is None:
                    raise StopAsyncIteration
                core = self._core.owner(found)
                with self._rest:
                    self._index, self._columns = 0, MessageColumns(core, found)

    async def run(
        self, work: Callable[[AsyncMessage], Awaitable[object]], *, concurrency: int = 1
    ) -> None:
        """Call `work` with each message at its time; ack when it returns, nack when it raises.

        Ends when the consumer does: after `drain`, `idle_ms` or `max_messages`; what is at work
        then is finished first, and the consumer is closed. `work` may settle its message
        itself; then nothing more is said of it. The reason of the nack is the error with its class,
        text and innermost calls, 1,024 bytes at most, which a dead letter keeps. Acks are sent
        together, and not waited for.

        Args:
            work: called `concurrency` times at the same time at most.
            concurrency: how many messages are at work at the same time.

        Raises:
            BadRequest: so many cannot work at the same time.
            Unavailable, TopicUnknown: no broker in time, as in an iteration.
        """
        pool = waiting.Pool(check_concurrency(concurrency))
        async with self:
            try:
                while True:
                    await pool.place()
                    try:
                        message = await self.__anext__()
                    except StopAsyncIteration:
                        break
                    pool.start(self._work_on, work, message)
            except BaseException:
                pool.cancel()
                raise
            finally:
                await pool.join()

    async def _work_on(
        self, work: Callable[[AsyncMessage], Awaitable[object]], message: AsyncMessage
    ) -> None:
        """Work on one message and say what became of it."""
        wrong: Exception | None = None
        try:
            await work(message)
        except Exception as error:
            wrong = error
            log.warning(
                "topic %s: message %d failed at attempt %d: %s",
                *(self._core.stream.topic, message.id, message.attempt, summary_of(error)),
                exc_info=error,
            )
        if message.is_settled or self._core.stream.auto_ack:
            return
        try:
            if wrong is None:
                await message.ack(wait=False)
            else:
                await message.nack(reason=story_of(wrong), wait=False)
        except DejaQError as error:
            # Of an ack before, or as the client was closed: such messages are delivered again.
            log.warning("topic %s: an ack failed: %s", self._core.stream.topic, error)

    def _put_back_rest(self) -> None:
        with self._rest:
            columns, index = self._columns, self._index
            self._columns = None
        if columns is not None and index < len(columns):
            columns.core.put_back(rows_from(columns.rows, index))

    def _at_hand(self) -> AsyncMessage | None:
        """The next message of the slice at hand, if there is one and its lease lasts."""
        with self._rest:
            columns, index = self._columns, self._index
            if columns is None or index >= len(columns):
                return None
            core = columns.core
            broker_us = core.offset.broker_us(core.clock.now_us())
            lasts = columns.rows.lease.end_ms * 1000 > broker_us
            self._index = index + 1
            if not lasts:
                self._columns = None
        if not lasts:
            core.skip(columns.rows.lease, len(columns) - index)
            return None
        late_us = max(broker_us - columns.dues_ms[index] * 1000, 0)
        core.lateness.add(late_us)
        self._last = columns.last = Handed(columns.rows, index)
        return AsyncMessage(columns, index, late_us, self)


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
