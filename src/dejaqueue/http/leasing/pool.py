"""The consumers that HTTP requests share, and the thread that reads what comes for them.

Room: http. On the event loop; payloads are read on one thread of its own.
Holds: requests with equal options have one consumer; one that nobody waits on ends after a while.
See: session.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import Push, delivery_batches
from dejaqueue.errors import DejaQError
from dejaqueue.http.gather import call_soon, stopping
from dejaqueue.http.leasing.session import Arrival, SharedSession
from dejaqueue.http.leasing.waiter import Taken
from dejaqueue.wire.descriptors import ConsumeStream

log = logging.getLogger("dejaqueue.http")

PUSHES_MAX = 256
"""Pushes read in one go."""


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
        for session in list(self._sessions.values()):
            session.fail(stopping())
        self._queue.put(None)

    def _forget(self, session: SharedSession) -> None:
        if self._sessions.get(session.options) is session:
            del self._sessions[session.options]

    def _make_round(self) -> None:
        """Now and then: tell the broker which sessions are in use, and close the others."""
        now_us = self._broker.clock.now_us()
        for session in list(self._sessions.values()):
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
            call_soon(self._loop, _arrive, [(s, _read_all(p)) for s, p in by_session.items()])


def _arrive(found: list[tuple[SharedSession, list[Arrival]]]) -> None:
    for session, arrivals in found:
        session.arrived(arrivals)


def _read_all(pushes: list[Push]) -> list[Arrival]:
    """The batches of all pushes, those of one partition in one go."""
    runs: list[list[Push]] = []
    for push in pushes:
        if runs and runs[-1][0].journal is push.journal:
            runs[-1].append(push)
        else:
            runs.append([push])
    return [arrival for run in runs for arrival in _read_run(run)]


def _read_run(pushes: list[Push]) -> list[Arrival]:
    try:
        batches = delivery_batches(pushes)
    except DejaQError as error:
        log.error("a delivery could not be read: %s", error)
        return [Arrival(push, None) for push in pushes]
    return list(map(Arrival, pushes, batches))
