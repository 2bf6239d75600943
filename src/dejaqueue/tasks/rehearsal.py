"""A rehearsal: a year of schedules, delays and retries in a test, by a clock that is moved by hand.

Room: tasks. For tests of programs; the broker is a real one in this process.
Holds: time moves from one due time to the next, so that each call is made when it is due and in
their order; nothing is left at work when a method returns.
See: docs/guides/tasks.md, Testing.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from typing import Protocol

from dejaqueue.clock import SteadyClock
from dejaqueue.errors import InternalError
from dejaqueue.tasks.attempt import Attempt, Fate
from dejaqueue.tasks.execution import Execution
from dejaqueue.tasks.ports import Application

FIRING_SECONDS_MAX = 60.0
"""How long a broker in this process may take to fire what is due; it takes moments."""


class MovedClock(Protocol):
    """A clock that a test moves, as `dejaqueue.testing.VirtualClock`."""

    def now_ms(self) -> int:
        """The time, UTC milliseconds."""
        ...

    def advance(self, *, ms: int = 0) -> None:
        """Move it on."""
        ...


class Rehearsal:
    """A worker in a test.

    Args:
        app: made with `client=` a client of `dejaqueue.open("memory:", clock=clock)`.
        clock: that clock.

    Attributes:
        failures: what attempts have raised, in order.
    """

    def __init__(self, app: Application, clock: MovedClock) -> None:
        self._app, self._clock = app, clock
        self._execution = Execution(app, self)
        self._ended = 0
        self.failures: list[BaseException] = []
        app.create_all()

    def begin(self, attempt: Attempt) -> int:
        """Told by the execution."""
        return 0

    def end(self, place: int, fate: Fate) -> None:
        """Told by the execution."""
        self._ended += 1
        if fate.error is not None:
            self.failures.append(fate.error)

    def run_due(self) -> int:
        """Run all that is due now, and what that sends for now; return how many attempts."""
        before = self._ended
        while self._run_ready():
            pass
        return self._ended - before

    def advance(self, by: timedelta) -> int:
        """Move the time on, and run each call when it is due; return how many attempts."""
        before = self._ended
        end_ms = self._clock.now_ms() + by // timedelta(milliseconds=1)
        self.run_due()
        while (due_ms := self._next_due_ms()) is not None and due_ms <= end_ms:
            self._clock.advance(ms=max(due_ms - self._clock.now_ms(), 0))
            self.run_due()
        self._clock.advance(ms=max(end_ms - self._clock.now_ms(), 0))
        self.run_due()
        return self._ended - before

    def _run_ready(self) -> int:
        self._wait_for_firings()
        count = 0
        for topic in self._app.topics():
            ready = self._app.client.stats(topic).ready
            if ready:
                work = partial(self._execution.run, topic)
                self._app.client.run(topic, work, max_messages=ready)
                count += ready
        return count

    def _cron_topics(self) -> list[str]:
        return [topic for topic, kind in self._app.topics().items() if kind == "cron"]

    def _wait_for_firings(self) -> None:
        """The broker fires on a thread of its own."""
        steady, pause = SteadyClock(), threading.Event()
        end_us = steady.now_us() + int(FIRING_SECONDS_MAX * 1e6)
        for topic in self._cron_topics():
            while any(
                not entry.paused and 0 <= entry.next_ms <= self._clock.now_ms()
                for entry in self._app.client.cron(topic).entries()
            ):
                if steady.now_us() > end_us:
                    raise InternalError(f"what is due in {topic} does not fire")
                pause.wait(0.001)

    def _next_due_ms(self) -> int | None:
        """When something is due next; None = never."""
        client = self._app.client
        dues = [client.stats(topic).next_due_ms for topic in self._app.topics()]
        for topic in self._cron_topics():
            dues += [entry.next_ms for entry in client.cron(topic).entries() if not entry.paused]
        return min((due for due in dues if due >= 0), default=None)
