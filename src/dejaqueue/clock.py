"""The clock: the only place where time comes from.

Room: vocabulary. The engine does not import it: there, time is an argument.
Holds: `now_us` of one clock object never goes back (rule 16); a wall clock that jumps against
elapsed time is not believed before it has stayed there for a grace time; waits are cut short by
their wake.
See: testing/virtual_clock.py for the clock of tests; ADR 0026.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from dejaqueue import operating_system

STEP_SECONDS_MAX = 1.0
"""A wall clock that is put right is noticed within this: what is due then is so much late."""
JUMP_US = 500_000
"""The wall clock is followed up to this difference from elapsed time; more is a jump."""
GRACE_US = 30_000_000
"""A jump that has lasted for so long is believed."""


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
    """What everything but the engine uses for time.

    `now_*` is for waits and lengths of time: it never goes back. `utc_*` is for instants that mean
    something elsewhere, as due times: it is the same until a clock that was ahead is put right;
    from then on it is behind `now_*` by `ahead_us`.
    """

    def now_us(self) -> int:
        """UTC microseconds since 1970, and `ahead_us`; never goes back on one clock object."""
        ...

    def now_ms(self) -> int:
        """The same in milliseconds, rounded down; never goes back on one clock object."""
        ...

    def utc_us(self) -> int:
        """UTC microseconds since 1970, as far as the wall clock is believed."""
        ...

    def utc_ms(self) -> int:
        """UTC milliseconds since 1970, as far as the wall clock is believed, rounded down."""
        ...

    @property
    def ahead_us(self) -> int:
        """How far `now_us` is ahead of UTC, microseconds."""
        ...

    @property
    def stepped_us(self) -> int:
        """By how much in all UTC was put right since this clock was made; ahead is positive."""
        ...

    @property
    def jump_us(self) -> int:
        """How far the wall clock is from what is believed, microseconds; 0 = it is believed."""
        ...

    @property
    def jump_count(self) -> int:
        """Jumps of the wall clock so far, believed or not."""
        ...

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        """Wait until the instant of `now_us` (None = for ever) or until `wake` rings.

        Returns:
            True if the bell rang, False if the instant came. Clears the bell.
        """
        ...


class Jump(NamedTuple):
    """What became of a jump of the wall clock.

    Attributes:
        by_us: how far the wall clock is from elapsed time; ahead is positive.
        state: `seen`: it is not believed yet; `over`: the wall clock is right again;
            `believed`: it has lasted, and the time is what the wall clock says.
    """

    by_us: int
    state: str


class Discipline:
    """Makes of a wall clock and of elapsed time one time that can be trusted.

    The time goes as elapsed time does, and follows the wall clock where the two differ by little.
    A greater difference is a jump: it is believed once it has stayed the same for a grace time.

    Args:
        jump_us: a greater difference is a jump.
        grace_us: how long a jump has to last.
        tell: called with each jump; on any thread, must not ask this clock.

    Attributes:
        ahead_us: how far the time is ahead of UTC, since it does not go back.
        jump_us: of the jump that is not believed yet, else 0.
        jump_count: how many were seen.
        stepped_us: by how much in all UTC was put right, ahead is positive.

    >>> told = []
    >>> time = Discipline(jump_us=500, grace_us=3_000, tell=told.append)
    >>> time.at(10_000, 0), time.at(10_150, 100)     # the wall clock goes a little faster
    (10000, 10150)
    >>> time.at(99_000, 200)                         # it jumps, and is not believed
    10250
    >>> time.at(102_000, 3_200), [jump.state for jump in told]
    (102000, ['seen', 'believed'])
    """

    def __init__(
        self,
        jump_us: int = JUMP_US,
        grace_us: int = GRACE_US,
        tell: Callable[[Jump], None] | None = None,
    ) -> None:
        self._jump_us_min, self._grace_us = jump_us, grace_us
        self._tell = tell
        self._offset_us: int | None = None
        self._since_us = 0
        self._first_us = 0
        self.ahead_us = 0
        self.jump_us = 0
        self.jump_count = 0
        self.stepped_us = 0
        self._last_us = 0
        self._lock = threading.Lock()

    def at(self, wall_us: int, elapsed_us: int) -> int:
        """The time; never before what it was. Any thread."""
        offset_us = self._offset_us
        by_us = 0 if offset_us is None else wall_us - elapsed_us - offset_us
        if -self._jump_us_min <= by_us <= self._jump_us_min:
            # Threads may pass each other here: each writes what was true a moment ago.
            self._offset_us = wall_us - elapsed_us
            if self.jump_us:
                self._is_over()
            now_us = wall_us + self.ahead_us
        else:
            now_us = self._jumped(wall_us, elapsed_us)
        if now_us < self._last_us:
            return self._last_us
        self._last_us = now_us
        return now_us

    def is_jump(self, wall_us: int, elapsed_us: int) -> bool:
        """True if these two are further apart than they were by more than is followed."""
        offset_us = self._offset_us
        return offset_us is not None and abs(wall_us - elapsed_us - offset_us) > self._jump_us_min

    def _is_over(self) -> None:
        with self._lock:
            by_us, self.jump_us = self.jump_us, 0
        if by_us and self._tell is not None:
            self._tell(Jump(by_us, "over"))

    def _jumped(self, wall_us: int, elapsed_us: int) -> int:
        told: Jump | None = None
        with self._lock:
            offset_us = self._offset_us
            assert offset_us is not None
            by_us = wall_us - elapsed_us - offset_us
            is_same = self.jump_us and abs(by_us - self._first_us) <= self._jump_us_min
            if abs(by_us) <= self._jump_us_min:
                pass  # another thread has believed it meanwhile
            elif not is_same:
                self._since_us, self._first_us = elapsed_us, by_us
                self.jump_us = by_us
                self.jump_count += 1
                told = Jump(by_us, "seen")
            elif elapsed_us - self._since_us < self._grace_us:
                self.jump_us = by_us
            else:
                self.jump_us = 0
                # Where UTC goes back, waits go on as they were; else they are over the sooner.
                self.ahead_us += max(0, -by_us)
                self.stepped_us += by_us
                self._offset_us = offset_us = wall_us - elapsed_us
                told = Jump(by_us, "believed")
            now_us = elapsed_us + offset_us + self.ahead_us
        if told is not None and self._tell is not None:
            self._tell(told)
        return now_us


_TIME_ERROR = 5
"""What Linux answers while nothing keeps its clock, or what keeps it is off (man adjtimex)."""


def is_kept() -> bool | None:
    """Whether time synchronisation keeps the clock of this machine, as its kernel says.

    Returns:
        None where the kernel does not say: another system than Linux, or a container that may not
        ask.
    """
    state = operating_system.clock_state()
    return None if state < 0 else state != _TIME_ERROR


_TRUSTED_US = 5_000
"""Between two comparisons with elapsed time at most, by the wall clock."""


def _read() -> tuple[int, int]:
    """Elapsed time and the wall clock, microseconds."""
    elapsed_us = operating_system.elapsed_ns() // 1_000
    return elapsed_us, time.time_ns() // 1_000  # noqa: TID251 - the one reader of the wall clock


class SystemClock(Discipline):
    """The time of this machine: its wall clock, as far as that is believed (rule 16).

    Args:
        jump_ms: the wall clock is followed up to this difference from elapsed time.
        grace_ms: a greater difference is believed once it has lasted for so long.
        tell: called with each jump; on any thread, must not ask this clock.
    """

    def __init__(
        self,
        jump_ms: int = JUMP_US // 1_000,
        grace_ms: int = GRACE_US // 1_000,
        tell: Callable[[Jump], None] | None = None,
    ) -> None:
        super().__init__(jump_ms * 1_000, grace_ms * 1_000, tell)
        self._compared_us = 0

    def now_us(self) -> int:
        """UTC microseconds since 1970, and `ahead_us`; never goes back."""
        wall_us = time.time_ns() // 1_000  # noqa: TID251 - the one reader of the wall clock
        if not (0 <= wall_us - self._compared_us < _TRUSTED_US) or self.jump_us:
            return self._compare()
        # A moment after it was found to be right no jump can hide: saves half of the time.
        now_us = wall_us + self.ahead_us
        if now_us < self._last_us:
            return self._last_us
        self._last_us = now_us
        return now_us

    def _compare(self) -> int:
        elapsed_us, wall_us = _read()
        if self.is_jump(wall_us, elapsed_us):
            elapsed_us, wall_us = _read()  # a process that was stopped between the two looks again
        now_us = self.at(wall_us, elapsed_us)
        self._compared_us = 0 if self.jump_us else wall_us
        return now_us

    def now_ms(self) -> int:
        """The same in milliseconds, rounded down."""
        return self.now_us() // 1_000

    def utc_us(self) -> int:
        """UTC microseconds since 1970, as far as the wall clock is believed."""
        return self.now_us() - self.ahead_us

    def utc_ms(self) -> int:
        """UTC milliseconds since 1970, as far as the wall clock is believed, rounded down."""
        return (self.now_us() - self.ahead_us) // 1_000

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
