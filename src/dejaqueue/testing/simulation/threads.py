"""Threads that are none: what a broker would do on its own threads, done when the world says so.

Room: testing. Stands for broker/topic/threads.py.
Holds: a turn of a worker, an append, a snapshot and a parcel are each one thing that happens; a
crash may come between any two of them, or in the middle of an append (disk.py).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from dejaqueue.broker.partition.worker import PartitionWorker
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.broker.topic.threads import Running, Threads
from dejaqueue.clock import Clock, Wake
from dejaqueue.journal.appending import append_together
from dejaqueue.journal.interface import Append
from dejaqueue.testing.simulation.world import Life, World

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

TURN_US_MAX = 200
"""A worker that is rung takes its turn within this, unless it is held up."""
STALL_US_MAX = 60_000
"""A worker that is held up (a garbage collection, a busy machine) is for this long at most."""
APPEND_US_MAX = 4_000


class Gone(BaseException):
    """The thread that waited here ended with its process."""


class _Ring(Wake):
    """Rung by whoever has work for a worker; it plans the worker's turn."""

    def __init__(self, plan: Callable[[], None]) -> None:
        super().__init__()
        self._plan_turn = plan

    def ring(self) -> None:
        """Plan a turn."""
        self._plan_turn()


class SimulatedCommitter(Committer):
    """Appends groups a little later, one after the other."""

    def __init__(self, name: str, world: World, life: Life) -> None:
        super().__init__(name)
        self._world, self._life = world, life
        self._appends: deque[Append] = deque()

    def start(self) -> None:
        """There is no thread."""

    def stop(self) -> None:
        """Finish what was submitted."""
        while self._appends:
            append_together([self._appends.popleft()])

    def _put(self, appends: Sequence[Append]) -> None:
        """Append a little later."""
        self._appends += appends
        self._world.after(self._world.between(50, APPEND_US_MAX), self._append_some, self._life)

    def _append_some(self) -> None:
        """What waits, or some of it: who comes meanwhile is not always taken along."""
        count = self._world.between(1, max(1, len(self._appends)))
        append_together([self._appends.popleft() for _ in range(min(count, len(self._appends)))])

    def wait(self, landed: threading.Condition, is_landed: Callable[[], bool]) -> None:
        """Who waits makes it happen now."""
        self._flush()
        while not is_landed():
            append_together([self._appends.popleft()])


class SimulatedWorker(PartitionWorker):
    """Takes its turns when the world says so.

    Holds: when it has nothing to do, no partition has something to append or to answer that is not
    on its way: else that would wait for the next request, which may never come.
    """

    def __init__(self, name: str, clock: Clock, world: World, life: Life) -> None:
        super().__init__(name, clock, SimulatedCommitter(name, world, life))
        self._world, self._life = world, life
        self._wake = _Ring(self._plan_turn)
        self._turn_is_planned = False
        self._planned_us: int | None = None
        self._busy = False
        self._stepped: set[Any] = set()

    def start(self) -> None:
        """There is no thread."""

    def stop(self) -> None:
        """Finish what waits."""
        while self.turn(busy=False):
            pass
        self.committer.stop()

    def call(self, function: Callable[[], None]) -> None:
        """There is one thread, and no turn is being taken: at once."""
        function()

    def _plan_turn(self) -> None:
        if self._turn_is_planned or self._life.over:
            return
        self._turn_is_planned = True
        stalls = self._world.chance(0.002)
        delay_us = self._world.between(0, STALL_US_MAX if stalls else TURN_US_MAX)
        self._world.after(delay_us, self._take_turn, self._life)

    def _step(self, partition: Any, step: Callable[[], int | None]) -> None:
        self._stepped.add(partition)
        super()._step(partition, step)

    def forget(self, partition: Any) -> None:
        """See PartitionWorker.forget."""
        self._stepped.discard(partition)
        super().forget(partition)

    def _take_turn(self) -> None:
        self._turn_is_planned = False
        self._busy = self.turn(busy=self._busy)
        if self._busy:
            self._plan_turn()
            return
        self._check_rest()
        next_us = self.next_us
        if next_us is not None and next_us != self._planned_us:
            self._planned_us = next_us
            self._world.after(next_us - self._clock.now_us(), self._time_has_come, self._life)

    def _check_rest(self) -> None:
        if self._rung or self._landed:
            return
        for partition in self._stepped - self._lent:
            if not partition.loaded:
                continue
            commits = partition.core.commits
            waits = bool(commits.group.entries or commits.group.replies)
            if waits and not commits.in_flight and not commits.is_broken:
                place = f"{partition.core.topic().name}, {partition.number}"
                raise AssertionError(f"partition {place} rests, and its group is not appended")

    def _time_has_come(self) -> None:
        self._planned_us = None
        self._plan_turn()


class SimulatedExecutor(Executor):
    """Does what it is given a little later, in order."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life
        self._waiting: deque[Callable[[], None]] = deque()
        self._closed = False
        self._busy = False

    def submit(
        self,
        function: Callable[Arguments, Answer],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Answer]:
        """Do it a little later; who waits for the future makes it happen at once."""
        if self._closed:
            raise RuntimeError("the executor is closed")
        future: _Awaited[Answer] = _Awaited(self._do_one)

        def run() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except Exception as wrong:  # noqa: BLE001 - who asked gets it
                future.set_exception(wrong)

        self._waiting.append(run)
        self._world.after(self._world.between(10, 20_000), self._do_one, self._life)
        return future

    def _do_one(self) -> None:
        if self._busy:  # what runs waits for something: the next one comes after it
            self._world.after(self._world.between(10, 5_000), self._do_one, self._life)
            return
        if self._waiting:
            self._busy = True
            try:
                self._waiting.popleft()()
            finally:
                self._busy = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish what waits, or forget it."""
        self._closed = True
        while self._waiting and not cancel_futures:
            self._do_one()
        self._waiting.clear()


class _Awaited(Future[Answer]):
    """A future whose waiter does the work."""

    def __init__(self, do_one: Callable[[], None]) -> None:
        super().__init__()
        self._do_one = do_one

    def result(self, timeout: float | None = None) -> Answer:
        """The result, worked for if need be."""
        while not self.done():
            self._do_one()
        return super().result(0)


class _Expected(Future[Answer]):
    """A future for which somebody waits while the world goes on."""

    def __init__(self, world: World, life: Life) -> None:
        super().__init__()
        self._world, self._life = world, life

    def result(self, timeout: float | None = None) -> Answer:
        """The result, once what was to happen before has happened."""
        world = self._world
        until_us = None if timeout is None else world.now_us + int(timeout * 1e6)
        world.waiters += 1
        try:
            while not self.done():
                if self._life.over:
                    raise Gone
                if until_us is not None and world.now_us > until_us:
                    raise TimeoutError
                assert world.step(), "somebody waits for what never happens"
        finally:
            world.waiters -= 1
        return super().result(0)


class _OneHolder:
    """A lock of a world with one thread."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        # Its holder is further down this thread's stack, so that it would never let go.
        assert not self._held, "somebody waits for a lock in a simulation"
        self._held = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held = False


class _Planned:
    """What will run."""

    def join(self) -> None:
        """Nobody waits for what a broker that is alone starts."""
        raise AssertionError("somebody waits in a simulation")


class SimulatedThreads(Threads):
    """What a simulated broker gets in place of threads; one for each of its lives."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life

    def worker(self, name: str, clock: Clock) -> PartitionWorker:
        """A worker."""
        return SimulatedWorker(name, clock, self._world, self._life)

    def executor(self, name: str, count: int = 1) -> Executor:
        """An executor."""
        return SimulatedExecutor(self._world, self._life)

    def future(self) -> Future[Any]:
        """A future whose waiter lets the world go on."""
        return _Expected(self._world, self._life)

    def lock(self) -> _OneHolder:
        """A lock for which nobody can wait."""
        return _OneHolder()

    def start(self, name: str, run: Callable[[], Any], *, daemon: bool = False) -> Running:
        """Run it a little later; nobody waits for its end."""
        self._world.after(self._world.between(10, 5_000), run, self._life)
        return _Planned()
