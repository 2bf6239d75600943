"""The world of a simulation: one random generator, one time, one list of what happens next.

Room: testing. Knows nothing of brokers.
Holds: what is planned for the same microsecond happens in an order drawn from the seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from dejaqueue.clock import Wake

START_US = 1_700_000_000_000_000


def _call(call: Callable[[], None]) -> None:
    call()


class Life:
    """What ends at a crash: what was planned for it does not happen any more.

    Args:
        guard: called with whatever is to happen in this life; it may end it.

    Attributes:
        paused_until_us: nothing happens in it before; what was planned happens then.
    """

    def __init__(self, guard: Callable[[Callable[[], None]], None] = _call) -> None:
        self.over = False
        self.paused_until_us = 0
        self.guard = guard
        self.on_end: list[Callable[[], None]] = []

    def end(self) -> None:
        """It is over; who waits for that is told. Twice is fine."""
        told, self.on_end = self.on_end, []
        self.over = True
        for tell in told:
            tell()


class SimulatedClock:
    """The time of the world, as a process on one machine sees it.

    Args:
        skew_us: how far it is ahead of the world's time; may change while it runs. As the machine's
            clock, it never goes back, and stands still instead.
        drift_ppm: how much too fast it runs.
    """

    def __init__(self, world: World, skew_us: int = 0, drift_ppm: int = 0) -> None:
        self._world = world
        self._last_us = 0
        self._since_us = world.now_us
        self._drift_ppm = drift_ppm
        self.skew_us = skew_us

    def drift(self, ppm: int) -> None:
        """Run too fast by this from now on."""
        self.skew_us += self._drifted_us()
        self._since_us = self._world.now_us
        self._drift_ppm = ppm

    def renewed(self) -> SimulatedClock:
        """The same clock, as a new process sees it: it knows nothing of how late it was before."""
        return SimulatedClock(self._world, self.skew_us + self._drifted_us(), self._drift_ppm)

    def _drifted_us(self) -> int:
        return (self._world.now_us - self._since_us) * self._drift_ppm // 1_000_000

    def now_us(self) -> int:
        """UTC microseconds; never goes back."""
        wall_us = self._world.now_us + self.skew_us + self._drifted_us()
        self._last_us = max(self._last_us, wall_us)
        return self._last_us

    def now_ms(self) -> int:
        """UTC milliseconds, rounded down."""
        return self.now_us() // 1_000

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        """Nobody waits in a simulation: there is one thread."""
        raise AssertionError("somebody waits in a simulation")


class World:
    """Time, chance, and what happens next.

    Attributes:
        happened: how many things happened.
        waiters: how many who happened wait for something that is to happen (threads.py).

    Args:
        seed: all that happens follows from it.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_us = START_US
        self.happened = 0
        self.waiters = 0
        self._plan: list[tuple[int, float, int, Life | None, Callable[[], None]]] = []
        self._number = itertools.count()

    def after(self, delay_us: int, call: Callable[[], None], life: Life | None = None) -> None:
        """Have something happen, unless the life it belongs to is over by then."""
        when_us = self.now_us + max(0, delay_us)
        entry = (when_us, self.random.random(), next(self._number), life, call)
        heapq.heappush(self._plan, entry)

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self.random.randint(low, high)

    def chance(self, share: float) -> bool:
        """True in this share of cases."""
        return self.random.random() < share

    def step(self) -> bool:
        """Let the next thing happen; False if nothing is planned."""
        while self._plan:
            when_us, _, _, life, call = heapq.heappop(self._plan)
            if life is not None and life.over:
                continue
            if life is not None and life.paused_until_us > when_us:
                self.after(life.paused_until_us - self.now_us, call, life)
                continue
            self.now_us = max(self.now_us, when_us)
            self.happened += 1
            if life is None:
                call()
            else:
                life.guard(call)
            return True
        return False

    def run(self, until_us: int) -> None:
        """Let everything happen that is planned until then."""
        while self._plan and self._plan[0][0] <= until_us:
            self.step()
        self.now_us = max(self.now_us, until_us)
