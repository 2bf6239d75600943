"""A consumer that requests share: credit for what they want, rows to whoever waits longest.

Room: http. On the event loop but for `push` and `end`, which workers call.
Holds: the broker is given credit for what waiting requests want, and no more; rows that come for
nobody go back at once, and their deliveries wear nothing out; nobody holds a thread while waiting.
See: pool.py; broker/topic/session.py for credit.

    given   rows the broker has credit for, or has on their way here
    wanted  rows that waiting requests want; given is made equal to it whenever it changes
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import ConsumerSession, Push, no_reply
from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.http.gather import call_soon
from dejaqueue.http.leasing.waiter import Delivered, Taken, Waiter
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Settle, SettleOp

WATCH_SECONDS = 0.05
"""A request that waits longer is watched: its client may go away."""
GRACE_SECONDS = 1.0
"""Rows that were leased for a request whose time is over have this long to come."""
GRACE_STEP_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Arrival:
    """A push that was read.

    Attributes:
        batch: its columns; None = it could not be read.
        error: why.
    """

    push: Push
    batch: pa.RecordBatch | None
    error: Exception | None = None


class SharedSession:
    """A consumer of a topic, and the requests that it takes messages for.

    Args:
        options: what all of them asked for.
        read: has a push read by the pool's thread.
        ended: called when nothing more comes.
    """

    def __init__(
        self,
        broker: Broker,
        options: ConsumeStream,
        read: Callable[[SharedSession, Push], None],
        ended: Callable[[SharedSession], None],
    ) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._read = read
        self._ended = ended
        self._waiters: deque[Waiter] = deque()
        self._given = 0
        self._wanted = 0
        self._impatient: list[Waiter] = []
        self._is_planned = False
        self.options = options
        self.session: ConsumerSession = broker.open_consume(options, self)
        self.used_us = broker.clock.now_us()

    # --- the broker's side, any thread ----------------------------------------------------------

    def push(self, push: Push) -> None:
        """Leased rows are on their way."""
        self._read(self, push)

    def end(self, error: DejaQError) -> None:
        """Nothing more comes: the topic was deleted."""
        call_soon(self._loop, self.fail, error)

    # --- requests -------------------------------------------------------------------------------

    @property
    def is_waited_on(self) -> bool:
        """True while a request waits."""
        return bool(self._waiters)

    def enter(
        self, rows_max: int, wait_ms: int, gone: Callable[[], Awaitable[None]] | None = None
    ) -> Waiter:
        """A request begins to wait.

        Args:
            wait_ms: 0 = until the broker has looked once.
            gone: returns when the client has gone away.
        """
        now = self._loop.time()
        waiter = Waiter(rows_max, self._loop.create_future(), now + wait_ms / 1_000, gone=gone)
        self._waiters.append(waiter)
        self._wanted += rows_max
        if wait_ms == 0:
            self._impatient.append(waiter)
        else:
            self._wait_on(waiter, min(wait_ms / 1_000, WATCH_SECONDS))
        self._plan()
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """The client has gone: it gets nothing any more, and what it has goes back."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            self._finish(waiter)
            self.give_back(waiter.parts)
            if not waiter.future.done():
                waiter.future.set_result([])
            self._trim()
        elif not waiter.future.cancelled() and waiter.future.exception() is None:
            self.give_back(waiter.future.result())

    def give_back(self, parts: list[Taken]) -> None:
        """Rows that nobody looked at go to somebody else, at once."""
        for part in parts:
            settle = Settle(
                SettleOp.NACK,
                0,
                ids=part.batch.column("id").to_numpy(),
                attempts=part.batch.column("attempts").to_numpy(),
                release=True,
            )
            self.session.settle(settle, no_reply)

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        """Give the broker credit for what is wanted now."""
        self._is_planned = False
        self.used_us = self._broker.clock.now_us()
        if self._wanted > self._given:
            more, self._given = self._wanted - self._given, self._wanted
            self.session.credit(more)
        if self._impatient:
            waiters, self._impatient = self._impatient, []
            self._look(waiters)

    def _look(self, waiters: list[Waiter]) -> None:
        """When every partition has looked for messages once, these waiters wait no longer."""

        def looked(future: Future[None]) -> None:
            call_soon(self._loop, end, future.exception())

        def end(error: BaseException | None) -> None:
            for waiter in waiters:
                if waiter.future.done():
                    continue
                if error is not None:
                    self._refuse(waiter, error)
                else:
                    self._expire(waiter)

        self.session.looked().add_done_callback(looked)

    # --- time -----------------------------------------------------------------------------------

    def _wait_on(self, waiter: Waiter, seconds: float) -> None:
        waiter.timer = self._loop.call_later(seconds, self._wake, waiter)

    def _wake(self, waiter: Waiter) -> None:
        left = waiter.ends_at - self._loop.time()
        if left <= 0.0005:
            self._expire(waiter)
            return
        if waiter.gone is not None and waiter.watch is None:
            waiter.watch = self._loop.create_task(self._watch(waiter, waiter.gone))
        self._wait_on(waiter, left)

    async def _watch(self, waiter: Waiter, gone: Callable[[], Awaitable[None]]) -> None:
        await gone()
        waiter.watch = None
        self.leave(waiter)

    def _expire(self, waiter: Waiter) -> None:
        """A request's time is over: it goes away empty, unless rows are on their way."""
        if waiter.future.done():
            return
        if not waiter.is_late:
            waiter.is_late = True
            waiter.ends_at = self._loop.time()
            self._wanted -= waiter.rows_max
        self._trim()
        if self._given > self._wanted and self._loop.time() < waiter.ends_at + GRACE_SECONDS:
            waiter.timer = self._loop.call_later(GRACE_STEP_SECONDS, self._expire, waiter)
            return
        self._waiters.remove(waiter)
        self._answer(waiter)

    def _trim(self) -> None:
        """Take credit back that nobody wants any more."""
        if self._given > self._wanted:
            self._given -= self.session.withdraw(self._given - self._wanted)

    # --- rows -----------------------------------------------------------------------------------

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Rows came: whoever waits longest gets them."""
        for arrival in arrivals:
            if arrival.batch is None:
                self._given -= len(arrival.push.leased.sequences)
                self._tell(arrival.error)
                continue
            self._given -= arrival.batch.num_rows  # what is missing gave its credit back
            self._hand_out(arrival.batch, arrival.push.leased.lease_end_ms)
        if self._waiters and self._waiters[0].parts:
            self._answer(self._waiters.popleft())
        self._trim()
        if self._given <= self._wanted:
            late = [waiter for waiter in self._waiters if waiter.is_late]
            for waiter in late:
                self._waiters.remove(waiter)
                self._answer(waiter)
        if self._given < self._wanted:  # what could not be read took credit with it
            self._plan()

    def _tell(self, error: Exception | None) -> None:
        """Who waits longest is told why it gets nothing, unless it has something already."""
        if not self._waiters or self._waiters[0].parts:
            return
        if not isinstance(error, DejaQError):
            error = InternalError(f"a delivery could not be read: {type(error).__name__}: {error}")
        self._refuse(self._waiters[0], error)

    def _hand_out(self, batch: pa.RecordBatch, lease_end_ms: int) -> None:
        first, rows = 0, batch.num_rows
        delivered = Delivered(batch, lease_end_ms)
        while first < rows and self._waiters:
            waiter = self._waiters[0]
            count = min(waiter.rows_max - waiter.rows, rows - first)
            waiter.parts.append(Taken(delivered, first, count))
            waiter.rows += count
            first += count
            if waiter.rows == waiter.rows_max:
                self._answer(self._waiters.popleft())
        if first < rows:
            self.give_back([Taken(delivered, first, rows - first)])

    def _finish(self, waiter: Waiter) -> None:
        """The waiter waits no longer."""
        if not waiter.is_late:
            self._wanted -= waiter.rows_max
        if waiter.timer is not None:
            waiter.timer.cancel()
        if waiter.watch is not None:
            waiter.watch.cancel()
            waiter.watch = None

    def _answer(self, waiter: Waiter) -> None:
        self._finish(waiter)
        if waiter.future.done():  # the request was cancelled
            self.give_back(waiter.parts)
        else:
            waiter.future.set_result(waiter.parts)

    def _refuse(self, waiter: Waiter, error: BaseException) -> None:
        self._waiters.remove(waiter)
        self._finish(waiter)
        if not waiter.future.done():  # else the request was cancelled
            waiter.future.set_exception(error)
        self._trim()

    # --- life -----------------------------------------------------------------------------------

    def is_seen(self, now_us: int) -> None:
        """Requests are waiting: the broker hears of them."""
        self.session.seen()
        self.used_us = now_us

    def forget_ended(self) -> None:
        """Drop what is known of leases that have ended, and credit that came back."""
        self.session.forget_ended()
        self._trim()

    def fail(self, error: DejaQError) -> None:
        """Answer every waiting request with nothing, and end."""
        self._ended(self)
        while self._waiters:
            waiter = self._waiters.popleft()
            self._finish(waiter)
            if not waiter.future.done():
                waiter.future.set_exception(error)
        self.close()

    def close(self) -> None:
        """Leave the topic; leases go on, they belong to the clients."""
        self.session.close(release=False)
