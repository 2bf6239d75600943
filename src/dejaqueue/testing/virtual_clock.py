"""A clock that stands still until a test moves it.

Room: testing. Give it to a Broker in place of the machine's clock; hours pass in no time.
Holds: the time changes only by `advance` and `jump`; a waiter whose instant has come is woken.
See: clock.py for the contract. The idea is that of trio's MockClock and of looptime.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from dejaqueue.clock import GRACE_US, JUMP_US, Discipline, Wake
from dejaqueue.testing.disciplined import DisciplinedClock

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class VirtualClock(DisciplinedClock):
    """A clock moved by hand, which trusts its wall clock as the machine's does.

    Args:
        start_ms: the time at first.
        jump_ms: the wall clock is followed up to this difference from elapsed time.
        grace_ms: a greater difference is believed once it has lasted for so long.

    >>> clock = VirtualClock(start_ms=1_000)
    >>> clock.advance(ms=500)
    >>> clock.now_ms()
    1500
    """

    def __init__(
        self,
        start_ms: int = 1_700_000_000_000,
        jump_ms: int = JUMP_US // 1_000,
        grace_ms: int = GRACE_US // 1_000,
    ) -> None:
        self._elapsed_us = 0
        self._wall_us = start_ms * 1_000
        self._discipline = Discipline(jump_ms * 1_000, grace_ms * 1_000)
        self._lock = threading.Lock()
        self._waiters: dict[int, tuple[int | None, Wake]] = {}

    def now_us(self) -> int:
        """The virtual time in microseconds; never goes back."""
        with self._lock:
            wall_us, elapsed_us = self._wall_us, self._elapsed_us
        return self._discipline.at(wall_us, elapsed_us)

    def now(self) -> datetime:
        """The virtual time in UTC."""
        return _EPOCH + timedelta(microseconds=self.utc_us())

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        """Wait until a test moves the time there, or until `wake` rings; True if it rang."""
        me = threading.get_ident()
        with wake.condition:
            while True:
                if wake.rung:
                    wake.rung = False
                    return True
                # Known first, then a look at the time: else it may be moved between the two.
                with self._lock:
                    self._waiters[me] = (instant_us, wake)
                if instant_us is not None and self.now_us() >= instant_us:
                    with self._lock:
                        self._waiters.pop(me, None)
                    return False
                wake.condition.wait()
                with self._lock:
                    self._waiters.pop(me, None)

    def next_instant_us(self) -> int | None:
        """The first instant that somebody waits for; None if nobody waits for one."""
        with self._lock:
            instants = [instant for instant, _ in self._waiters.values() if instant is not None]
        return min(instants, default=None)

    def advance(self, by: timedelta | None = None, *, ms: int = 0, us: int = 0) -> None:
        """Move the time on and wake everybody whose instant has come.

        Args:
            by: how far; `ms` and `us` are added to it.
        """
        step_us = ms * 1_000 + us + (0 if by is None else by // timedelta(microseconds=1))
        with self._lock:
            self._elapsed_us += step_us
            self._wall_us += step_us
        self._wake_all()

    def jump(self, *, ms: int) -> None:
        """The wall clock is somewhere else, and no time has passed."""
        with self._lock:
            self._wall_us += ms * 1_000
        self._wake_all()

    def _wake_all(self) -> None:
        self.now_us()
        with self._lock:
            waiters = list(self._waiters.values())
        for _, wake in waiters:
            with wake.condition:
                wake.condition.notify_all()
