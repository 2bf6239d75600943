"""Threads that send: a stream has one only while something is on its way to its client.

Room: flight. What a frame or a reply is, the stream knows (produce.py, consume.py).
Holds: what is put on one lane is sent in that order, by one thread at a time; `put` does not wait,
and starts no thread; a client that does not take its answers holds up its own lane alone.
See: ARCHITECTURE.md, "Threads".

One thread more than are sending waits for work; whoever takes work while no other waits has another
one started first. So a lane never waits for clients that are slow, and whoever puts, often a
partition's worker, only rings.
"""

from __future__ import annotations

import _thread
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Queued = TypeVar("Queued")

log = logging.getLogger("dejaqueue.flight")

WAITING_MAX = 16
"""Threads that wait for work at most; others end when they have none."""


class Senders:
    """Threads that wait for something to be sent; they end with the process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting = 0
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def run(self, call: Callable[[], None]) -> None:
        """Have a thread call it. Does not wait but for the start of the first thread."""
        if not self._waiting:
            self._start_one()
        self._work.put(call)

    def _start_one(self) -> None:
        """See to it that somebody waits for work."""
        with self._mutex:
            if self._waiting:
                return
            self._waiting += 1
        # Not threading.Thread, whose start waits until the thread runs.
        _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        while True:
            call = self._work.get()
            with self._mutex:
                self._waiting -= 1
                alone = not self._waiting
            if alone:
                self._start_one()
            try:
                call()
            except Exception:  # our bug: it ends that lane, and no other
                log.exception("sending failed")
            del call  # it keeps what it sent
            with self._mutex:
                if self._waiting >= WAITING_MAX:
                    return
                self._waiting += 1


SENDERS = Senders()
"""Those of this process: every server's."""


class Lane(Generic[Queued]):
    """What waits to be sent on one stream.

    Args:
        send: takes (`take`) and sends the first of what waits, and maybe more of it; False = the
            client is gone.
        is_open: False = nothing is sent before `open`.
        senders: whose threads send.
    """

    def __init__(
        self, send: Callable[[], bool], *, is_open: bool = True, senders: Senders = SENDERS
    ) -> None:
        self._senders = senders
        self._send = send
        self._mutex = threading.Lock()
        self._queue: deque[Queued] = deque()
        self._is_open = is_open
        self._is_sending = False
        self._is_dead = False
        self._quiet: threading.Event | None = None

    def put(self, queued: Queued) -> None:
        """Send this after what was put before. Does not wait."""
        with self._mutex:
            if self._is_dead:
                return
            self._queue.append(queued)
            if self._is_sending or not self._is_open:
                return
            self._is_sending = True
        self._senders.run(self._drain)

    def open(self) -> None:
        """Send what waits, and what comes."""
        with self._mutex:
            self._is_open = True
            if self._is_sending or not self._queue:
                return
            self._is_sending = True
        self._senders.run(self._drain)

    def take(self) -> Queued | None:
        """The next to be sent; None = nothing waits."""
        with self._mutex:
            return self._queue.popleft() if self._queue else None

    def put_back(self, queued: Queued) -> None:
        """What was taken is the next to be sent after all."""
        with self._mutex:
            self._queue.appendleft(queued)

    @property
    def is_quiet(self) -> bool:
        """True while nothing is on its way to the client."""
        with self._mutex:
            return not self._is_sending and not self._queue

    def finish(self) -> None:
        """Return when all was sent, or cannot be. What is put from then on is not sent: gRPC has
        given the stream's memory to others."""
        while True:
            with self._mutex:
                if not self._is_sending:
                    self._is_dead = True
                    self._queue.clear()
                    return
                quiet = self._quiet = threading.Event()
            quiet.wait()

    def _drain(self) -> None:
        try:
            while True:
                with self._mutex:
                    if not self._queue:
                        self._end_turn()
                        return
                if not self._send():
                    break
        except BaseException:
            self._die()
            raise
        self._die()

    def _die(self) -> None:
        """Nothing more is sent."""
        with self._mutex:
            self._is_dead = True
            self._queue.clear()
            self._end_turn()

    def _end_turn(self) -> None:
        """Under the mutex."""
        self._is_sending = False
        if self._quiet is not None:
            self._quiet.set()
