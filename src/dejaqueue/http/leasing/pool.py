"""The consumers that HTTP requests share, and the thread that reads what comes for them.

Room: http. On the event loop; payloads are read on one thread of its own, and fetched from the
payload store, where they are there, on some others.
Holds: requests with equal options have one consumer or, where groups give runs, each has one of
its own while it waits, as a run must not be divided; one that nobody waits on ends after a while;
what came for a request whose client has gone meanwhile goes back at once; what comes for one
consumer stays in its order, and waits for nobody else's payloads; what cannot be read is told to
whoever waits for it, and everything else goes on.
See: session.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import (
    Push,
    salvaged,
    stored_batches,
    waits_for_store,
    whole_batch,
)
from dejaqueue.errors import DejaQError
from dejaqueue.http.gather import call_soon, stopping
from dejaqueue.http.leasing.session import Arrival, SharedSession
from dejaqueue.http.leasing.waiter import Taken
from dejaqueue.wire.descriptors import ConsumeStream

log = logging.getLogger("dejaqueue.http")

PUSHES_MAX = 256
"""Pushes read in one go."""
FETCHERS = 8
"""Consumers that wait for the payload store at once."""


class LeasePool:
    """The consumers that HTTP requests share, one for each topic and equal options."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[ConsumeStream, SharedSession] = {}
        self._seats: dict[ConsumeStream, list[SharedSession]] = {}
        self._queue: SimpleQueue[tuple[SharedSession, Push] | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._run, name="dejaq-http-payloads", daemon=True)
        self._reader.start()
        self._fetchers = ThreadPoolExecutor(FETCHERS, "dejaq-http-fetch")
        self._fetching = threading.Lock()
        self._behind: dict[SharedSession, deque[list[Push]]] = {}
        """What came for those whose payloads are being fetched."""
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
        has_gone: Callable[[], bool] = lambda: False,
    ) -> list[Taken]:
        """Messages for one request, as soon as there are any; none when its time is over.

        Args:
            options: checked; `holds` and `auto_ack` must be False.
            rows_max: messages at most.
            wait_ms: 0 = do not wait for messages that are not there.
            gone: returns when the client has gone away.
            has_gone: True once it has; asked last of all, as nobody else watches a short request.

        Raises:
            TopicUnknown: there is no such topic, or it was deleted. Unavailable: the broker stops.
        """
        session = self._free_session(options)
        waiter = session.enter(rows_max, wait_ms, gone)
        try:
            taken = await waiter.future
        except asyncio.CancelledError:
            session.leave(waiter)
            raise
        if taken and has_gone():
            session.give_back(taken)
            return []
        return taken

    def _free_session(self, options: ConsumeStream) -> SharedSession:
        """The consumer for a request: one that it shares, or, of runs, one that nobody waits on.
        Raises as `session`."""
        session = self.session(options)
        if not session.session.gives_runs or not session.is_waited_on:
            return session
        seats = self._seats.setdefault(options, [])
        for seat in seats:
            if not seat.is_waited_on:
                return seat
        seat = SharedSession(self._broker, options, self._read, self._forget)
        seats.append(seat)
        return seat

    def session(self, options: ConsumeStream) -> SharedSession:
        """The consumer for these options. Raises TopicUnknown, ResourceExhausted, Unavailable."""
        session = self._sessions.get(options)
        if session is not None:
            return session
        if self._is_closed:
            raise stopping()
        made = SharedSession(self._broker, options, self._read, self._forget)
        self._sessions[options] = made
        if self._round is None:
            self._round = self._loop.call_later(self._round_seconds, self._make_round)
        return made

    def close(self) -> None:
        """Tell every waiting request that the broker stops. Twice is fine."""
        self._is_closed = True
        if self._round is not None:
            self._round.cancel()
        for session in self._all():
            session.fail(stopping())
        self._queue.put(None)
        self._fetchers.shutdown(wait=False, cancel_futures=True)

    def _forget(self, session: SharedSession) -> None:
        options = session.options
        if self._sessions.get(options) is session:
            del self._sessions[options]
        left = [seat for seat in self._seats.pop(options, ()) if seat is not session]
        if left:
            self._seats[options] = left

    def _all(self) -> list[SharedSession]:
        return [*self._sessions.values(), *(one for many in self._seats.values() for one in many)]

    def _make_round(self) -> None:
        """Now and then: tell the broker which sessions are in use, and close the others."""
        now_us = self._broker.clock.now_us()
        for session in self._all():
            if session.is_waited_on:
                session.is_seen(now_us)
            elif now_us - session.used_us > self._silence_us:
                self._forget(session)
                session.close()
            session.forget_ended()
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
            found: list[tuple[SharedSession, list[Arrival]]] = []
            for session, pushes in by_session.items():
                arrivals = self._arrivals(session, pushes)
                if arrivals:
                    found.append((session, arrivals))
            call_soon(self._loop, _arrive, found)

    def _arrivals(self, session: SharedSession, pushes: list[Push]) -> list[Arrival]:
        """What came, as it is delivered; none if it has to be waited for: then it comes later."""
        with self._fetching:
            if session in self._behind:
                self._behind[session].append(pushes)
                return []
        arrivals = _read_all(pushes, self._broker.clock.utc_ms())
        if not any(one.batch is not None and waits_for_store(one.batch) for one in arrivals):
            return list(map(_whole, arrivals))
        with self._fetching:
            self._behind[session] = deque()
        with suppress(RuntimeError):  # the pool is closed: their leases end
            self._fetchers.submit(self._fetch, session, arrivals)
        return []

    def _fetch(self, session: SharedSession, arrivals: list[Arrival]) -> None:
        """On a thread that may wait: deliver these, and what came behind them meanwhile."""
        while True:
            call_soon(self._loop, _arrive, [(session, list(map(_whole, arrivals)))])
            with self._fetching:
                if not self._behind[session]:
                    del self._behind[session]
                    return
                pushes = self._behind[session].popleft()
            arrivals = _read_all(pushes, self._broker.clock.utc_ms())


def _whole(arrival: Arrival) -> Arrival:
    """With the payloads themselves; waits for the payload store."""
    if arrival.batch is None:
        return arrival
    try:
        return replace(arrival, batch=whole_batch(arrival.push, arrival.batch))
    except Exception as bug:  # others' payloads go on
        log.exception("a delivery could not be read")
        return replace(arrival, batch=None, error=bug)


def _arrive(found: list[tuple[SharedSession, list[Arrival]]]) -> None:
    for session, arrivals in found:
        session.arrived(arrivals)


def _read_all(pushes: list[Push], now_ms: int) -> list[Arrival]:
    """The batches of all pushes, those of one partition in one go."""
    runs: list[list[Push]] = []
    for push in pushes:
        if runs and runs[-1][0].journal is push.journal:
            runs[-1].append(push)
        else:
            runs.append([push])
    return [arrival for run in runs for arrival in _read_run(run, now_ms)]


def _read_run(pushes: list[Push], now_ms: int) -> list[Arrival]:
    try:
        batches = stored_batches(pushes)
    except Exception as error:  # of ours or not: others' requests go on
        if len(pushes) > 1:  # perhaps but one of them
            return [arrival for push in pushes for arrival in _read_run([push], now_ms)]
        rest = None if _is_bug(error) else salvaged(pushes[0], now_ms)
        if rest is not None:
            return [Arrival(*rest)]
        log.error("a delivery could not be read: %s", error, exc_info=_is_bug(error))
        return [Arrival(pushes[0], None, error)]
    return list(map(Arrival, pushes, batches))


def _is_bug(error: Exception) -> bool:
    return not isinstance(error, DejaQError)
