"""Threads that make the calls of one connection; a call that was left takes no place from others.

A call to a broker that hangs cannot be broken off, only left: its thread ends with its deadline.

Room: client. Knows no Flight: who calls gives a function that waits.
Holds: a fixed number of calls at most are under way, others wait in their order; each future ends
once; no thread keeps a program alive.
See: flight_transport.py, whose calls these are; silence_watch.py, which has them left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from dejaqueue.client.replies import CLOCK
from dejaqueue.errors import DejaQError, Unavailable

Answer = TypeVar("Answer")

AT_ONCE_MAX = 4
IDLE_SECONDS = 10.0
"""A thread that had nothing to do for so long ends."""


class PendingCall:
    """A call that waits for its turn, or for its answer.

    Attributes:
        answer: ends with what the call returns or raises, or with why it was left.
    """

    def __init__(self, threads: CallThreads, make: Callable[[], Any], *, may_be_left: bool) -> None:
        self.answer: Future[Any] = Future()
        self.answer.set_running_or_notify_cancel()  # who gives up does not undo the call
        self.make = make
        self.may_be_left = may_be_left
        self.is_begun = False
        self._threads = threads
        self._since_us = CLOCK.now_us()

    def waits_since_us(self) -> int | None:
        """Since when its answer is waited for; see silence_watch.py."""
        return None if self.answer.done() else self._since_us

    def ended(self, error: DejaQError | None) -> None:
        """Its answer is not waited for any more."""
        self._threads.leave(self, error or Unavailable("the call was given up"))


class CallThreads:
    """Makes calls, each on a thread that may wait for it.

    Args:
        at_once_max: calls that are under way at most.
    """

    def __init__(self, at_once_max: int = AT_ONCE_MAX) -> None:
        self._at_once_max = at_once_max
        self._changed = threading.Condition()
        self._queue: deque[PendingCall] = deque()
        self._under_way: dict[PendingCall, None] = {}
        """Those whose answer is waited for, also in the queue; in their order."""
        self._thread_count = 0
        """Threads that take calls: not those of calls that were left."""
        self._idle_count = 0
        self._closed = False

    def submit(self, make: Callable[[], Answer], *, may_be_left: bool = False) -> Future[Answer]:
        """Have a call made.

        Args:
            make: makes it, and waits for its answer.
            may_be_left: who watches may end it before it has answered.

        Raises:
            Unavailable: closed, or there can be no thread for it.
        """
        call = PendingCall(self, make, may_be_left=may_be_left)
        with self._changed:
            if self._closed:
                raise Unavailable("the client is closed")
            self._under_way[call] = None
            self._queue.append(call)
            if not self._see_to_threads():
                self._queue.remove(call)
                del self._under_way[call]
                raise Unavailable("there can be no thread for the call")
        return call.answer

    def _see_to_threads(self) -> bool:
        """Under the mutex: what waits is taken by somebody; False = there can be no thread."""
        if self._idle_count:
            self._changed.notify_all()
        waiting_count = len(self._queue) - self._idle_count
        while waiting_count > 0 and self._thread_count < self._at_once_max:
            self._thread_count += 1
            waiting_count -= 1
            try:
                threading.Thread(target=self._work, name="dejaq-call", daemon=True).start()
            except RuntimeError:  # the interpreter ends, or there are too many
                self._thread_count -= 1
                break
        return bool(self._thread_count)

    def _work(self) -> None:
        while True:
            call = self._next()
            if call is None:
                return
            answered, failed = None, None
            try:
                answered = call.make()
            except BaseException as wrong:  # noqa: BLE001 - the caller gets it
                failed = wrong
            with self._changed:
                was_left = call not in self._under_way
                self._under_way.pop(call, None)
                self._changed.notify_all()
            if was_left:
                return  # its place was given to another thread
            if failed is not None:
                call.answer.set_exception(failed)
            else:
                call.answer.set_result(answered)
            del call, answered, failed  # what an idle thread holds is held for long

    def _next(self) -> PendingCall | None:
        """The next call, when there is one; None = this thread is to end."""
        with self._changed:
            self._idle_count += 1
            self._changed.wait_for(lambda: self._queue or self._closed, IDLE_SECONDS)
            self._idle_count -= 1
            if not self._queue:
                self._thread_count -= 1
                return None
            call = self._queue.popleft()
            call.is_begun = True
            return call

    def may_be_left(self) -> list[PendingCall]:
        """Calls under way that who watches may end."""
        with self._changed:
            return [call for call in self._under_way if call.may_be_left]

    def leave(self, call: PendingCall, error: DejaQError) -> None:
        """Wait for this call no longer; one that has ended stays as it is."""
        with self._changed:
            if call not in self._under_way:
                return
            del self._under_way[call]
            if call.is_begun:
                self._thread_count -= 1
            else:
                self._queue.remove(call)
            self._see_to_threads()
            self._changed.notify_all()
        call.answer.set_exception(error)

    def close(self) -> None:
        """Make no more calls; returns when those that were begun have ended, or were left. Twice
        is fine."""
        with self._changed:
            self._closed = True
            queued = list(self._queue)
            self._queue.clear()
            for call in queued:
                del self._under_way[call]
            self._changed.notify_all()
        for call in queued:
            call.answer.set_exception(Unavailable("the client is closed"))
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)
