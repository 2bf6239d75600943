"""The world of a simulation: one random generator, one time, one list of what happens next.

Room: testing. Knows nothing of brokers.
Holds: what is planned for the same microsecond happens in an order drawn from the seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from dejaqueue.clock import GRACE_US, JUMP_US, Discipline, Wake
from dejaqueue.testing.disciplined import DisciplinedClock

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


class SimulatedClock(DisciplinedClock):
    """The time of the world, as a process on one machine sees it: as clock.SystemClock would.

    Args:
        skew_us: how far the wall clock is ahead of the world's time; may change while it runs, in
            steps that are followed.
        drift_ppm: how much too fast it runs.
        jump_us: the wall clock is followed up to this difference from elapsed time.
        grace_us: a greater difference is believed once it has lasted for so long.

    Attributes:
        jumped_us: how much further off the wall clock is, for a while.
    """

    def __init__(
        self,
        world: World,
        skew_us: int = 0,
        drift_ppm: int = 0,
        jump_us: int = JUMP_US,
        grace_us: int = GRACE_US,
    ) -> None:
        self._world = world
        self._since_us = world.now_us
        self._drift_ppm = drift_ppm
        self._limits_us = jump_us, grace_us
        self._discipline = Discipline(jump_us, grace_us)
        self.skew_us = skew_us
        self.jumped_us = 0
        self._frozen_us = 0
        self._due_us = 0
        self._read = (0, 0)
        """What the wall clock and elapsed time were when it was read last, and what it said."""
        self._said_us = 0

    def jump(self, by_us: int) -> None:
        """The wall clock is so much further off from now on, 0 = no more."""
        self.now_us()
        self._frozen_us = self.due_us() - self._world.now_us
        self.jumped_us = by_us

    def drift(self, ppm: int) -> None:
        """Run too fast by this from now on."""
        self.skew_us += self._drifted_us()
        self._since_us = self._world.now_us
        self._drift_ppm = ppm

    def renewed(self) -> SimulatedClock:
        """The same clock, as a new process sees it: it knows nothing of how late it was before."""
        skew_us = self.skew_us + self._drifted_us()
        clock = SimulatedClock(self._world, skew_us, self._drift_ppm, *self._limits_us)
        clock.jumped_us = self.jumped_us
        return clock

    def due_us(self) -> int:
        """The most that it may say: the wall clock, but for the jump, and never back."""
        wall_us = self._wall_us()
        if self.jumped_us:  # while that lasts it goes as elapsed time does
            wall_us = max(wall_us, self._world.now_us + self._frozen_us)
        self._due_us = max(self._due_us, wall_us)
        return self._due_us

    def _wall_us(self) -> int:
        return self._world.now_us + self.skew_us + self._drifted_us()

    def _drifted_us(self) -> int:
        return (self._world.now_us - self._since_us) * self._drift_ppm // 1_000_000

    def now_us(self) -> int:
        """UTC microseconds, and `ahead_us`; never goes back."""
        read = wall_us, elapsed_us = self._wall_us() + self.jumped_us, self._world.now_us
        if read != self._read:  # it is read several times at most instants
            self._read = read
            self.due_us()
            self._said_us = self._discipline.at(wall_us, elapsed_us)
        return self._said_us

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
