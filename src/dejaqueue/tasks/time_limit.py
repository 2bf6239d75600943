"""Time limits of plain functions: an error is raised in the thread that works for too long.

Room: tasks. One thread for all limits of a process, which sleeps until the next one.
Holds: no error is raised in a thread after `within` has ended. A function that is in a call of C
(a query, a sleep) hears of it when that returns; what must end then has a `timeout_hard`.
See: execution.py; worker/supervisor.py for hard limits.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dejaqueue.clock import SteadyClock, Wake
from dejaqueue.tasks.attempt import TimeLimitExceeded

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class _Limit:
    """One call with a limit."""

    __slots__ = ("is_over", "is_raised", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.is_over = self.is_raised = False


class TimeLimits:
    """The limits of the calls that are at work."""

    def __init__(self) -> None:
        self._clock = SteadyClock()
        self._wake = Wake()
        self._mutex = threading.Lock()
        self._numbers = itertools.count()
        self._limits: list[tuple[int, int, _Limit]] = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, name: str) -> Iterator[None]:
        """Raise TimeLimitExceeded in this block, on this thread, after so many seconds."""
        limit = _Limit(threading.get_ident())
        end_us = self._clock.now_us() + int(seconds * 1e6)
        with self._mutex:
            heapq.heappush(self._limits, (end_us, next(self._numbers), limit))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="dejaq-time-limits", daemon=True
                )
                self._thread.start()
        self._wake.ring()
        try:
            try:
                yield
            finally:
                with self._mutex:
                    limit.is_over = True
                    if limit.is_raised:  # and perhaps not yet felt
                        _raise_in(ctypes.c_ulong(limit.thread), None)
        except TimeLimitExceeded as error:
            told = TimeLimitExceeded(f"{name}: at most {seconds:g} s")
            raise told.with_traceback(error.__traceback__) from None

    def _run(self) -> None:
        while True:
            with self._mutex:
                while self._limits and self._limits[0][2].is_over:
                    heapq.heappop(self._limits)
                now_us = self._clock.now_us()
                next_us = self._limits[0][0] if self._limits else None
                if next_us is not None and next_us <= now_us:
                    _, _, limit = heapq.heappop(self._limits)
                    limit.is_raised = True
                    error = ctypes.py_object(TimeLimitExceeded)
                    _raise_in(ctypes.c_ulong(limit.thread), error)
                    continue
            self._wake.clear()
            self._clock.wait_until(next_us, self._wake)
