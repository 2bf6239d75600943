"""What a broker of a simulated cluster gets in place of threads: fibers.

Stands for broker/topic/threads.py, as testing/simulation/threads.py does for a broker that is
alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from dejaqueue.broker.partition.worker import PartitionWorker
from dejaqueue.broker.shard.committer import ApartCommitter
from dejaqueue.broker.topic.threads import APART, Running, Threads
from dejaqueue.clock import Clock
from dejaqueue.journal.appending import append_together
from dejaqueue.journal.records.concurrency import Concurrency
from dejaqueue.testing.simulation.threads import APPEND_US_MAX, SimulatedCommitter, SimulatedWorker
from tests.simulation.cluster.fibers import FiberClock, FiberLock, Fibers, Waiter

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class FiberCommitter(SimulatedCommitter):
    """Appends groups one after the other; each may have to wait for the server."""

    def __init__(self, name: str, fibers: Fibers) -> None:
        super().__init__(name, fibers.world, fibers.life)
        self._fibers = fibers
        self._appending = False

    def _append_some(self) -> None:
        if self._appending or not self._appends:
            return
        self._appending = True
        try:
            append_together([self._appends.popleft()])
        finally:
            self._appending = False
        if self._appends:
            self._world.after(self._world.between(50, APPEND_US_MAX), self._append_some, self._life)

    def wait(self, landed: threading.Condition, is_landed: Callable[[], bool]) -> None:
        """Who waits makes it happen, unless it happens already."""
        while not is_landed():
            self._append_some()
            if not is_landed():
                self._fibers.pass_time(200)

    def stop(self) -> None:
        """Finish what was submitted."""
        while self._appends or self._appending:
            self._append_some()
            self._fibers.pass_time(200)


class FiberApartCommitter(ApartCommitter):
    """Appends each group in a fiber of its own, so that one that hangs holds no other."""

    def __init__(self, fibers: Fibers) -> None:
        super().__init__(FiberExecutor(fibers, APART, APPEND_US_MAX))
        self._fibers = fibers

    def wait(self, landed: threading.Condition, is_landed: Callable[[], bool]) -> None:
        """Who waits lets the world go on."""
        self._fibers.pass_until(is_landed)


class FiberWorker(SimulatedWorker):
    """Takes one turn at a time, also if a turn has to wait."""

    def __init__(
        self, name: str, clock: Clock, fibers: Fibers, apart: ApartCommitter | None
    ) -> None:
        super().__init__(name, clock, fibers.world, fibers.life)
        self.committer = FiberCommitter(name, fibers)
        self.apart = apart
        self._fibers = fibers
        self._in_turn = False
        self._missed = False

    def call(self, function: Callable[[], None]) -> None:
        """In a turn of its own."""
        self._calls.append(function)
        self._plan_turn()

    def _take_turn(self) -> None:
        if self._in_turn:
            self._turn_is_planned = False
            self._missed = True
            return
        self._in_turn = True
        try:
            super()._take_turn()
        finally:
            self._in_turn = False
        if self._missed:
            self._missed = False
            self._plan_turn()

    def stop(self) -> None:
        """Finish what waits."""
        self._fibers.pass_until(lambda: not self._in_turn)
        self._in_turn = True
        while self.turn(busy=False):
            pass
        self.committer.stop()
        if self.apart is not None:
            self.apart.stop()


class FiberFuture(Future[Answer]):
    """A future that a fiber waits for."""

    def __init__(self, fibers: Fibers) -> None:
        super().__init__()
        self._fibers = fibers

    def result(self, timeout: float | None = None) -> Answer:
        """The result, when it is there. Raises TimeoutError."""
        if not self.done():
            world = self._fibers.world
            waiter = Waiter(self._fibers)
            self.add_done_callback(lambda _: waiter.tell())
            until_us = None if timeout is None else world.now_us + int(timeout * 1e6)
            if not waiter.wait(until_us):
                raise TimeoutError
        return super().result(0)


class FiberExecutor(Executor):
    """Does what it is given a little later, so much at a time, each in a fiber.

    Args:
        late_us_max: how much later at most, while there is a fiber for it.
    """

    def __init__(self, fibers: Fibers, count: int, late_us_max: int = 20_000) -> None:
        self._fibers, self._count, self._late_us_max = fibers, count, late_us_max
        self._waiting: deque[Callable[[], None]] = deque()
        self._closed = False
        self._running = 0

    def submit(
        self,
        function: Callable[Arguments, Answer],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Answer]:
        """Do it a little later."""
        if self._closed:
            raise RuntimeError("the executor is closed")
        future: FiberFuture[Answer] = FiberFuture(self._fibers)

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*args, **kwargs))
            except Exception as wrong:  # noqa: BLE001 - who asked gets it
                future.set_exception(wrong)

        self._waiting.append(run)
        self._plan()
        return future

    def _plan(self) -> None:
        world = self._fibers.world
        world.after(world.between(10, self._late_us_max), self._next, self._fibers.life)

    def _next(self) -> None:
        if not self._waiting or self._running >= self._count:
            return
        self._running += 1
        try:
            self._waiting.popleft()()
        finally:
            self._running -= 1
        if self._waiting:
            self._plan()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish what waits, or forget it."""
        self._closed = True
        if cancel_futures:
            self._waiting.clear()
        if wait:
            self._fibers.pass_until(lambda: not self._waiting and not self._running)


class _Started:
    """A fiber that was started."""

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self.over = False

    def join(self) -> None:
        """Return when it has ended."""
        self._fibers.pass_until(lambda: self.over)


class FiberThreads(Threads):
    """Workers, executors and loops of one life of a broker.

    Args:
        is_apart: appends run beside the worker; False = as seeds did before they were.
    """

    def __init__(self, fibers: Fibers, *, is_apart: bool) -> None:
        self._fibers = fibers
        self._apart = FiberApartCommitter(fibers) if is_apart else None

    def worker(self, name: str, clock: Clock) -> PartitionWorker:
        """A worker."""
        return FiberWorker(name, clock, self._fibers, self._apart)

    def executor(self, name: str, count: int = 1) -> Executor:
        """An executor."""
        return FiberExecutor(self._fibers, count)

    def lock(self) -> FiberLock:
        """A lock whose holder may wait."""
        return FiberLock(self._fibers)

    def future(self) -> Future[Any]:
        """A future."""
        return FiberFuture(self._fibers)

    def start(self, name: str, run: Callable[[], Any], *, daemon: bool = False) -> Running:
        """Run it a little later."""
        started = _Started(self._fibers)

        def run_it() -> None:
            try:
                run()
            finally:
                started.over = True

        world = self._fibers.world
        world.after(world.between(10, 5_000), run_it, self._fibers.life)
        return started

    def start_for_ever(self, name: str, run: Callable[[], None]) -> Running:
        """As `start`: a loop that breaks off is what is looked for."""
        return self.start(name, run)


class FiberConcurrency(Concurrency):
    """How the store of such a broker waits."""

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self.clock = FiberClock(fibers)

    def lock(self) -> FiberLock:
        """A lock whose holder may wait."""
        return FiberLock(self._fibers)

    def executor(self) -> Executor:
        """A fiber at a time."""
        return FiberExecutor(self._fibers, 1)
