"""Fibers: what would be a thread of a broker, and may wait, while the world goes on.

A fiber runs until it waits or ends; then the world goes on, in one thread, in an order drawn from
the seed. What a broker of a cluster does is done in fibers, because there a lost answer has to be
waited for while others take over.

Holds: when a life ends, whoever waits in it is thrown `Gone` and does nothing any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from greenlet import getcurrent, greenlet

from dejaqueue.clock import Wake
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import Life, SimulatedClock, World


class _Resume:
    """Goes on with a fiber; itself it runs in none."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter

    def __call__(self) -> None:
        self._waiter.resume()


class Fibers:
    """The fibers of one life of a broker."""

    def __init__(self, world: World, life: Life) -> None:
        self.world, self.life = world, life
        self.hub = getcurrent()
        self.waiting: dict[Waiter, None] = {}
        life.on_end.append(lambda: world.after(0, self._end))

    def run(self, call: Callable[[], None]) -> None:
        """Run something in a fiber of its own, until it ends or waits."""
        if getcurrent() is not self.hub or isinstance(call, _Resume):
            call()
        else:
            fiber = greenlet(call, self.hub)
            fiber.fibers = self
            fiber.switch()

    def pass_time(self, duration_us: int) -> None:
        """Let the world go on for so long."""
        Waiter(self).wait(self.world.now_us + duration_us)

    def pass_until(self, found: Callable[[], bool], step_us: int = 500) -> None:
        """Let the world go on until something is true."""
        while not found():
            self.pass_time(step_us)

    def _end(self) -> None:
        for waiter in list(self.waiting):
            waiter.end()


class Waiter:
    """Somebody who waits, once, until told or until an instant of the world."""

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self._fiber: greenlet | None = None
        self._told = False

    def tell(self) -> None:
        """End the wait, a moment later."""
        if not self._told:
            self._told = True
            if self._fiber is not None:
                self._fibers.world.after(0, _Resume(self), self._fibers.life)

    def wait(self, until_us: int | None = None) -> bool:
        """Return True when told, False when the instant has come. Raises Gone."""
        fibers = self._fibers
        if fibers.life.over:
            raise Gone
        if self._told:
            return True
        fiber = getcurrent()
        assert fiber is not fibers.hub, "somebody waits who must not"
        self._fiber = fiber
        if until_us is not None:
            fibers.world.after(until_us - fibers.world.now_us, _Resume(self), fibers.life)
        fibers.waiting[self] = None
        fibers.hub.switch()
        if fibers.life.over:
            raise Gone
        return self._told

    def resume(self) -> None:
        """Go on with whoever waits, if it has not gone on already."""
        fiber, self._fiber = self._fiber, None
        if fiber is not None:
            self._fibers.waiting.pop(self, None)
            fiber.switch()

    def end(self) -> None:
        """The life is over."""
        fiber, self._fiber = self._fiber, None
        self._fibers.waiting.pop(self, None)
        if fiber is not None:
            with contextlib.suppress(Gone):
                fiber.throw(Gone)


class _Bell(threading.Condition):
    """In place of a wake's own condition: tells the fiber that waits."""

    def __init__(self, waiter: Waiter) -> None:
        super().__init__()
        self._waiter = waiter

    def notify(self, n: int = 1) -> None:
        """Whoever waits goes on."""
        self._waiter.tell()


class FiberClock(SimulatedClock):
    """A clock on which fibers wait."""

    def __init__(self, fibers: Fibers) -> None:
        super().__init__(fibers.world)
        self._fibers = fibers

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        """Wait until the instant or until the bell rings, while the world goes on."""
        if not wake.rung:
            waiter = Waiter(self._fibers)
            wake.condition = _Bell(waiter)
            waiter.wait(instant_us)
        rang, wake.rung = wake.rung, False
        return rang


class FiberLock:
    """A lock whose holder may wait."""

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self._held = False
        self._waiters: deque[Waiter] = deque()

    def __enter__(self) -> FiberLock:
        while self._held:
            waiter = Waiter(self._fibers)
            self._waiters.append(waiter)
            waiter.wait()
        self._held = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held = False
        if self._waiters:
            self._waiters.popleft().tell()
