"""A thread that calls back at exact times: pings, lease extensions, retries, asyncio wake-ups.

Room: client. One thread per client, started when first needed.
Holds: nothing is called before its time; a callback must not block; it sleeps until the next one,
and polls never.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

from dejaqueue.clock import Clock, Wake

_log = logging.getLogger("dejaqueue.client")


class Appointment:
    """A callback at a time; `cancel` it if it is not wanted any more."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It will not be called, unless it is being called right now."""
        self.call = None


class Alarm:
    """Calls back at times of a clock."""

    def __init__(self, clock: Clock, name: str = "dejaq-alarm") -> None:
        self._clock = clock
        self._name = name
        self._wake = Wake()
        self._mutex = threading.Lock()
        self._heap: list[tuple[int, int, Appointment]] = []
        self._entries = 0
        self._thread: threading.Thread | None = None
        self._stopped = False

    def at(self, instant_us: int, call: Callable[[], None]) -> Appointment:
        """Call back at this time of the clock, on the alarm's thread."""
        appointment = Appointment(call)
        with self._mutex:
            if self._stopped:
                return appointment
            self._entries += 1
            heapq.heappush(self._heap, (instant_us, self._entries, appointment))
            first = self._heap[0][2] is appointment
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        if first:
            self._wake.ring()
        return appointment

    def after(self, delay_ms: float, call: Callable[[], None]) -> Appointment:
        """Call back after this many milliseconds."""
        return self.at(self._clock.now_us() + int(delay_ms * 1000), call)

    def run_due(self) -> int | None:
        """Call what is due; the time of the next one, None if there is none."""
        while True:
            with self._mutex:
                if not self._heap:
                    return None
                if self._heap[0][0] > self._clock.now_us():
                    return self._heap[0][0]
                call = heapq.heappop(self._heap)[2].call
            if call is not None:
                try:
                    call()
                except Exception:  # noqa: BLE001 - the alarm serves the others
                    _log.exception("a callback of the client's alarm failed")

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            next_us = self.run_due()
            if not self._stopped:
                self._clock.wait_until(next_us, self._wake)

    def stop(self) -> None:
        """Call nothing any more. Twice is fine."""
        with self._mutex:
            self._stopped = True
            self._heap.clear()
            thread = self._thread
        self._wake.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
