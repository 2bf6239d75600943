"""Consumers of the asynchronous client: one message at a time, or batches.

Room: client. The source of _sync/consumer.py (scripts/generate_sync_client.py): change this one.
Holds: one coroutine at a time takes; others wait for their turn.
See: leases.py for what is asked of the broker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Literal, overload

from dejaqueue_client._aio import waiting
from dejaqueue_client._aio.leases import AsyncLeases
from dejaqueue_client.errors import DejaQError
from dejaqueue_client.held import ACKED, Fate, Leased
from dejaqueue_client.inputs import lease_ms_of, nack_values
from dejaqueue_client.model import RowStatus
from dejaqueue_client.received import BatchFields, MessageFields
from dejaqueue_client.results import Settled
from dejaqueue_client.work import check_concurrency, story_of, summary_of

log = logging.getLogger("dejaqueue_client")


def _nack_fate(delay: timedelta | float | None, reason: str, dead: bool) -> Fate:
    return Fate("nack", tuple(nack_values(delay, reason, dead).items()))


def _extension(seconds: timedelta | float) -> Fate:
    return Fate("extend", (("lease_ms", lease_ms_of(seconds)),))


class AsyncMessage(MessageFields):
    """One received message. It is this consumer's until its lease ends, and leases are extended
    while the consumer is open (unless `auto_extend=False`)."""

    __slots__ = ()

    @overload
    async def ack(self, *, wait: Literal[False] | None = None) -> None: ...

    @overload
    async def ack(self, *, wait: Literal[True]) -> RowStatus: ...

    @overload
    async def ack(self, *, wait: bool | None) -> RowStatus | None: ...

    async def ack(self, *, wait: bool | None = None) -> RowStatus | None:
        """It is done: never deliver it again (rule 6).

        Acks are sent together, and do not wait for each other. They are durable when the consumer
        has been closed, or its iteration has ended, without an error: an ack that fails (no broker
        in time, a key that ended) is raised by the next call, or by closing. Of one whose lease had
        ended (rule 4) nobody is told, unless `wait` is True.

        Args:
            wait: True = return when it is durable, with its status: OK, or LEASE_LOST when the
                lease had ended. An ack whose connection broke is sent again: then LEASE_LOST may
                also mean that the first one was carried out. False = never wait, but while very
                much is on its way. None = wait where nothing would tell of an error: the iteration
                has ended.
        """
        self.is_settled = True
        if wait or (wait is None and self._core.is_over):
            [status] = await self._core.settle(ACKED, [self._leased])
            return status if wait else None
        await self._core.settle_soon(ACKED, self._leased)
        return None

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
        fate = _nack_fate(delay, reason, dead)
        self.is_settled = True
        if not wait:
            await self._core.settle_soon(fate, self._leased)
            return None
        statuses: list[RowStatus] = await self._core.settle(fate, [self._leased])
        return statuses[0]

    async def extend(self, seconds: timedelta | float) -> RowStatus:
        """Have its lease end this long from now."""
        statuses: list[RowStatus] = await self._core.settle(_extension(seconds), [self._leased])
        return statuses[0]


class AsyncMessageBatch(BatchFields):
    """Received messages that are settled together."""

    async def ack(self) -> Settled:
        """All of them are done, durably."""
        self.is_settled = True
        return Settled(await self._core.settle(ACKED, self._rows))

    async def nack(
        self, *, delay: timedelta | float | None = None, reason: str = "", dead: bool = False
    ) -> Settled:
        """None of them could be done: deliver them again, or no more. See `AsyncMessage.nack`."""
        fate = _nack_fate(delay, reason, dead)
        self.is_settled = True
        return Settled(await self._core.settle(fate, self._rows))

    async def extend(self, seconds: timedelta | float) -> Settled:
        """Have their lease end this long from now."""
        return Settled(await self._core.settle(_extension(seconds), self._rows))

    def messages(self) -> list[AsyncMessage]:
        """Each of them, to be settled one by one."""
        self.is_settled = True
        return [AsyncMessage(self._core, self._keeper, one, self._now_s) for one in self._rows]


class _AsyncReceiver:
    """What both consumers share: opening, draining, closing."""

    _last: tuple[Leased, ...] = ()

    def __init__(self, core: AsyncLeases, rows_max: int) -> None:
        self._core = core
        self._rows_max = rows_max
        self._turn = waiting.Mutex()

    def __repr__(self) -> str:
        core = self._core
        state = "open" if core.is_open else "not open yet"
        state = "over" if core.is_over else "draining" if core.is_ending else state
        return f"<{type(self).__name__} of {core.options.source}, {state}>"

    async def open(self) -> None:
        """Begin now and not at the first message. Raises TopicUnknown, Unavailable."""
        await self._core.open()

    def drain(self) -> None:
        """Take nothing new: the iteration ends after the message or batch that is at work now.

        What was handed over can still be settled; what the client holds goes back to the broker at
        once (with `auto_ack` it is gone). Returns at once; from any thread, and from a signal's
        handler. Twice is fine.
        """
        self._core.drain()

    async def close(self) -> None:
        """End: messages that were not settled go back to the broker at once, acks that wait are
        sent.

        Raises:
            DejaQError: an ack that was not waited for failed.
        """
        await self._core.close()
        self._core.held.raise_error()

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
        try:
            if kind is not None and issubclass(kind, Exception):
                await self._refuse_last(kind.__name__)
        finally:
            await self.close()

    async def _refuse_last(self, reason: str) -> None:
        """Give back what was handed over last, if nobody settled it: its work raised."""
        if not self._core.options.auto_ack:
            for one in filter(self._core.held.has, self._last):
                await self._core.settle_soon(_nack_fate(None, reason, False), one)


class AsyncConsumer(_AsyncReceiver, AsyncIterator[AsyncMessage]):
    """Messages one at a time, each at its time. Close it, or use it as a context manager."""

    async def __aenter__(self) -> AsyncConsumer:
        await self.open()
        return self

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> AsyncMessage:
        async with self._turn:
            taken = await self._core.take(1)
        if not taken:
            raise StopAsyncIteration
        self._last = (taken[0],)
        return AsyncMessage(self._core, self, taken[0], time.monotonic())

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
                *(self._core.options.source, message.id, message.attempt, summary_of(error)),
                exc_info=error,
            )
        if message.is_settled or self._core.options.auto_ack:
            return
        try:
            if wrong is None:
                await message.ack(wait=False)
            else:
                await message.nack(reason=story_of(wrong), wait=False)
        except DejaQError as error:
            # Of an ack before, or as the client was closed: such messages are delivered again.
            log.warning("topic %s: an ack failed: %s", self._core.options.source, error)


class AsyncBatchConsumer(_AsyncReceiver, AsyncIterator[AsyncMessageBatch]):
    """Messages in batches. Close it, or use it as a context manager."""

    async def __aenter__(self) -> AsyncBatchConsumer:
        await self.open()
        return self

    def __aiter__(self) -> AsyncBatchConsumer:
        return self

    async def __anext__(self) -> AsyncMessageBatch:
        async with self._turn:
            taken = await self._core.take(self._rows_max)
        if not taken:
            raise StopAsyncIteration
        self._last = tuple(taken)
        return AsyncMessageBatch(self._core, self, taken, time.monotonic())
