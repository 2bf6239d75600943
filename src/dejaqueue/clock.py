"""The clock: the only place where time comes from.

Room: vocabulary. The engine does not import it: there, time is an argument.
Holds: `now_us` of one clock object never goes back (rule 16); waits are cut short by their wake.
See: testing/virtual_clock.py for the clock of tests.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

STEP_SECONDS_MAX = 1.0
"""A wall clock that is stepped forward is noticed within this: what is due then is so much late."""


class Wake:
    """A bell that a waiting thread hears: `ring` ends its wait, now or the next one."""

    def __init__(self) -> None:
        self.condition = threading.Condition(threading.Lock())
        self.rung = False

    def ring(self) -> None:
        """End the wait of whoever waits on this, or the next wait if nobody does."""
        if self.rung:  # already rung: a racing waiter that clears it will look at its work anyway
            return
        with self.condition:
            self.rung = True
            self.condition.notify()

    def clear(self) -> None:
        """Forget past rings. Call before looking for work, so that no ring is missed."""
        self.rung = False


class Clock(Protocol):
    """What everything but the engine uses for time."""

    def now_us(self) -> int:
        """UTC microseconds since 1970; never goes back on one clock object."""
        ...

    def now_ms(self) -> int:
        """UTC milliseconds since 1970, rounded down; never goes back on one clock object."""
        ...

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        """Wait until the instant (None = for ever) or until `wake` rings.

        Returns:
            True if the bell rang, False if the instant came. Clears the bell.
        """
        ...


class SystemClock:
    """Wall time of this machine, which never goes back: max(last answer, wall clock) (rule 16)."""

    def __init__(self) -> None:
        self._last_us = 0

    def now_us(self) -> int:
        """UTC microseconds since 1970; never goes back."""
        now = time.time_ns() // 1000  # noqa: TID251 - the one reader of the wall clock
        if now < self._last_us:
            return self._last_us
        self._last_us = now
        return now

    def now_ms(self) -> int:
        """UTC milliseconds since 1970, rounded down."""
        return self.now_us() // 1000

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        """Wait until the instant or until `wake` rings; True if it rang."""
        with wake.condition:
            while not wake.rung:
                if instant_us is None:
                    wake.condition.wait()
                    continue
                left_us = instant_us - self.now_us()
                if left_us <= 0:
                    return False
                wake.condition.wait(min(left_us / 1e6, STEP_SECONDS_MAX))
            wake.rung = False
            return True


class SteadyClock(SystemClock):
    """Wall time when it was made, then elapsed time: steps of the wall clock do not show.

    The client measures the broker's clock against it: a step of the client's own wall clock
    would otherwise hand messages over early until the next measurement (rule 2).
    """

    def __init__(self) -> None:
        super().__init__()
        self._start_us = super().now_us() - time.monotonic_ns() // 1000

    def now_us(self) -> int:
        """UTC microseconds since 1970, as far as elapsed time tells; never goes back."""
        return self._start_us + time.monotonic_ns() // 1000
