"""Leasing over HTTP: requests that wait for messages share one consumer of the broker.

Room: http. Lives on the event loop but for `push` and `end`, which workers call, and one thread
that reads payloads.
Holds: the broker is given credit for what waiting requests want, and no more; rows that come for
nobody go back at once, and their deliveries wear nothing out; nobody holds a thread while waiting.
See: broker/dispatch.py for credit; docs/guides/http.md.

    given   rows the broker has credit for, or has on their way here
    wanted  rows that waiting requests want; given is made equal to it whenever it changes
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import pyarrow as pa

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.dispatch import Push
from dejaqueue.broker.reading import delivery_batches
from dejaqueue.broker.replies import no_reply
from dejaqueue.broker.served_topic import ServedTopic
from dejaqueue.broker.session import ConsumerSession
from dejaqueue.errors import DejaQError
from dejaqueue.http.answers import Objects, messages
from dejaqueue.http.gather import call_soon, stopping
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Settle, SettleOp

log = logging.getLogger("dejaqueue.http")

WATCH_SECONDS = 0.05
"""A request that waits longer is watched: its client may go away."""
GRACE_SECONDS = 1.0
"""Rows that were leased for a request whose time is over have this long to come."""
GRACE_STEP_SECONDS = 0.02
PUSHES_MAX = 256
"""Pushes read in one go."""


class Delivered:
    """Messages that came together; several requests may share them.

    Attributes:
        batch: their columns, schema DELIVERY.
        lease_end_ms: when the lease ends, UTC milliseconds.
    """

    def __init__(self, batch: pa.RecordBatch, lease_end_ms: int) -> None:
        self.batch = batch
        self.lease_end_ms = lease_end_ms
        self._objects: dict[bool, Objects] = {}

    def objects(self, *, as_base64: bool) -> Objects:
        """The messages as JSON objects, made once for all requests that share them."""
        found = self._objects.get(as_base64)
        if found is None:
            found = messages(self.batch, as_base64=as_base64, lease_end_ms=self.lease_end_ms)
            self._objects[as_base64] = found
        return found


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


@dataclass(frozen=True, slots=True)
class _Arrival:
    push: Push
    batch: pa.RecordBatch | None
    """None = it could not be read."""


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
        self.runtime: ServedTopic = broker.runtime(options.topic)
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
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._ask)
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
        left = len(self.runtime.partitions)

        def looked(future: Future[None]) -> None:
            call_soon(self._loop, count, future.exception())

        def count(error: BaseException | None) -> None:
            nonlocal left
            left -= 1
            for waiter in waiters if left == 0 or error is not None else ():
                if waiter.future.done():
                    continue
                if error is not None:
                    self._refuse(waiter, error)
                else:
                    self._expire(waiter)

        for number in self.runtime.partitions.numbers:
            self.runtime.change(number, lambda _place: None).add_done_callback(looked)

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
            dispatcher = self.runtime.dispatcher
            surplus = self._given - self._wanted
            self._given -= dispatcher.withdraw(self.session.consumer, surplus)

    # --- rows -----------------------------------------------------------------------------------

    def arrived(self, arrivals: list[_Arrival]) -> None:
        """Rows came: whoever waits longest gets them."""
        for arrival in arrivals:
            self._given -= len(arrival.push.leased.sequences)
            if arrival.batch is not None:
                self._hand_out(arrival.batch, arrival.push.leased.lease_end_ms)
        if self._waiters and self._waiters[0].parts:
            self._answer(self._waiters.popleft())
        self._trim()
        if self._given <= self._wanted:
            late = [waiter for waiter in self._waiters if waiter.is_late]
            for waiter in late:
                self._waiters.remove(waiter)
                self._answer(waiter)

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
        waiter.future.set_exception(error)
        self._trim()

    # --- life -----------------------------------------------------------------------------------

    def is_seen(self, now_us: int) -> None:
        """Requests are waiting: the broker hears of them."""
        self.runtime.dispatcher.seen(self.session.consumer, now_us)
        self.used_us = now_us

    def forget_ended(self, now_us: int) -> None:
        """Drop what is known of leases that have ended, and credit that came back."""
        self.runtime.dispatcher.forget_ended(now_us // 1_000)
        self._trim()

    def fail(self, error: DejaQError) -> None:
        """Tell everyone who waits that nothing comes, and end."""
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


class LeasePool:
    """The consumers that HTTP requests share, one for each topic and equal options."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[ConsumeStream, SharedSession] = {}
        self._queue: SimpleQueue[tuple[SharedSession, Push] | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._run, name="dejaq-http-payloads", daemon=True)
        self._reader.start()
        silence_ms = broker.settings.dispatch.consumer_silence_ms_max
        self._silence_us = silence_ms * 1_000
        self._round_seconds = min(5.0, silence_ms / 3_000)
        self._round: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def lease(
        self,
        options: ConsumeStream,
        rows_max: int,
        wait_ms: int,
        gone: Callable[[], Awaitable[None]] | None = None,
    ) -> list[Taken]:
        """Messages for one request, as soon as there are any; none when its time is over.

        Args:
            options: checked; `holds` and `auto_ack` must be False.
            rows_max: messages at most.
            wait_ms: 0 = do not wait for messages that are not there.
            gone: returns when the client has gone away.

        Raises:
            TopicUnknown: there is no such topic, or it was deleted. Unavailable: the broker stops.
        """
        session = self.session(options)
        waiter = session.enter(rows_max, wait_ms, gone)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            session.leave(waiter)
            raise

    def session(self, options: ConsumeStream) -> SharedSession:
        """The consumer for these options. Raises TopicUnknown, ResourceExhausted, Unavailable."""
        found = self._sessions.get(options)
        if found is not None:
            return found
        if self._is_closed:
            raise stopping()
        made = SharedSession(self._broker, options, self._read, self._forget)
        self._sessions[options] = made
        if self._round is None:
            self._round = self._loop.call_later(self._round_seconds, self._make_round)
        return made

    def close(self) -> None:
        """Tell everyone who waits that the broker stops. Twice is fine."""
        self._is_closed = True
        if self._round is not None:
            self._round.cancel()
        for session in list(self._sessions.values()):
            session.fail(stopping())
        self._queue.put(None)

    def _forget(self, session: SharedSession) -> None:
        if self._sessions.get(session.options) is session:
            del self._sessions[session.options]

    def _make_round(self) -> None:
        """Now and then: who waits is heard of, who has waited for nothing for long is closed."""
        now_us = self._broker.clock.now_us()
        for session in list(self._sessions.values()):
            if session.is_waited_on:
                session.is_seen(now_us)
            elif now_us - session.used_us > self._silence_us:
                self._forget(session)
                session.close()
            session.forget_ended(now_us)
        self._round = self._loop.call_later(self._round_seconds, self._make_round)

    # --- the reader's thread --------------------------------------------------------------------

    def _read(self, session: SharedSession, push: Push) -> None:
        self._queue.put((session, push))

    def _run(self) -> None:
        while True:
            queued = self._queue.get()
            by_session: dict[SharedSession, list[Push]] = {}
            for _ in range(PUSHES_MAX):
                if queued is None:
                    return
                by_session.setdefault(queued[0], []).append(queued[1])
                try:
                    queued = self._queue.get_nowait()
                except Empty:
                    break
            else:
                if queued is not None:
                    by_session.setdefault(queued[0], []).append(queued[1])
            call_soon(self._loop, _arrive, [(s, _read_all(p)) for s, p in by_session.items()])


def _arrive(found: list[tuple[SharedSession, list[_Arrival]]]) -> None:
    for session, arrivals in found:
        session.arrived(arrivals)


def _read_all(pushes: list[Push]) -> list[_Arrival]:
    """The batches of all pushes, those of one partition in one go."""
    runs: list[list[Push]] = []
    for push in pushes:
        if runs and runs[-1][0].journal is push.journal:
            runs[-1].append(push)
        else:
            runs.append([push])
    return [arrival for run in runs for arrival in _read_run(run)]


def _read_run(pushes: list[Push]) -> list[_Arrival]:
    try:
        batches = delivery_batches(pushes)
    except DejaQError as error:
        log.error("a delivery could not be read: %s", error)
        return [_Arrival(push, None) for push in pushes]
    return list(map(_Arrival, pushes, batches))
