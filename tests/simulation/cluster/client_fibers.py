"""What the client library finds in place of threads, locks, time and chance, while it is simulated.

A client of a simulated cluster is a process of its own: a life, a clock and fibers. The library
itself is unchanged: for as long as a simulation lasts, the names by which its modules know
`threading`, `ThreadPoolExecutor`, clocks, `random`, `uuid` and `pyarrow.flight` mean what is here.
The modules are found by their package, so that files may be moved.

Holds: which client runs is told by the fiber that runs; whoever asks for a lock may have to let
others go first, so that what two threads of a client do meets in an order drawn from the seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any

import pytest
from greenlet import getcurrent, greenlet
from pyarrow import flight

import dejaqueue.client
from dejaqueue.clock import SteadyClock, SystemClock, Wake
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import START_US, Life, SimulatedClock, World
from tests.simulation.cluster.fibers import Fibers, Waiter, _Bell

PREEMPTED = 0.05
"""The share of locks before which others go first."""
HOLD_UP_US_MAX = 300


class ClientProcess:
    """A program that uses the library: its life, its clock, its fibers.

    Args:
        name: of the client.
        clock: its machine's.

    Attributes:
        life: ends when the program is killed.
    """

    def __init__(self, name: str, world: World, skew_us: int, drift_ppm: int) -> None:
        self.name, self.world = name, world
        self.life = Life(self._guarded)
        self.fibers = ClientFibers(world, self.life)
        self.clock = ClientClock(self.fibers, skew_us, drift_ppm)

    def _guarded(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(Gone):
            self.fibers.run(call)

    def start(self, run: Callable[[], Any]) -> FiberThread:
        """A thread of this program."""
        thread = FiberThread(target=run, process=self)
        thread.start()
        return thread

    def kill(self) -> None:
        """The program ends at once; what it had sent may still arrive."""
        self.life.end()


class ClientWaiter(Waiter):
    """Waits, in a coroutine too: Python keeps by thread which loop runs, and here is one thread."""

    def wait(self, until_us: int | None = None) -> bool:
        """See Waiter.wait."""
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return super().wait(until_us)
        finally:
            asyncio._set_running_loop(loop)


class ClientFibers(Fibers):
    """The fibers of a program."""

    def pass_time(self, duration_us: int) -> None:
        """Let the world go on for so long."""
        ClientWaiter(self).wait(self.world.now_us + duration_us)


def process() -> ClientProcess:
    """Whose fiber runs."""
    thread = getattr(getcurrent(), "thread", None)
    assert thread is not None, "the client library runs in no fiber of a client"
    found: ClientProcess = thread.process
    return found


class ClientClock(SimulatedClock):
    """The clock of a client's machine, on which its fibers wait."""

    def __init__(self, fibers: Fibers, skew_us: int, drift_ppm: int) -> None:
        super().__init__(fibers.world, skew_us, drift_ppm)
        self._fibers = fibers

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        """Wait until the instant or until the bell rings, while the world goes on."""
        if not wake.rung:
            waiter = ClientWaiter(self._fibers)
            wake.condition = _Bell(waiter)
            now_us = self._world.now_us
            # Not one microsecond early, whatever the drift rounds.
            until = None if instant_us is None else now_us + max(0, instant_us - self.now_us()) + 1
            waiter.wait(until)
        rang, wake.rung = wake.rung, False
        return rang


class _ClockOfWhoRuns:
    """For clocks that the library keeps in a module: that of the client whose fiber asks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(process().clock, name)


class FiberThread:
    """In place of threading.Thread."""

    def __init__(
        self,
        *,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool = False,
        process: ClientProcess | None = None,
    ) -> None:
        self.process = process or globals()["process"]()
        self.name = name
        self._run: Callable[[], object] = lambda: target(*args)
        self._over = False
        self._waiters: list[Waiter] = []

    def start(self) -> None:
        """It runs a little later."""
        world = self.process.world
        world.after(world.between(1, 500), self._begin, self.process.life)

    def _begin(self) -> None:
        fiber = getcurrent()
        assert isinstance(fiber, greenlet)
        fiber.thread = self
        # What a thread of a client raises, the library's own too, ends the simulation: in a program
        # it would be a line in a log.
        try:
            self._run()
        finally:
            self._over = True
            for waiter in self._waiters:
                waiter.tell()

    def join(self, timeout: float | None = None) -> None:
        """Return when it has ended, or after so many seconds."""
        if not self._over:
            _wait(self._waiters, timeout)

    def is_alive(self) -> bool:
        """True until it has ended."""
        return not self._over


def _wait(waiters: list[Waiter] | deque[Waiter], timeout: float | None) -> bool:
    """Wait among these; False if nobody told in time."""
    one = process()
    waiter = ClientWaiter(one.fibers)
    waiters.append(waiter)
    until_us = None if timeout is None else one.world.now_us + int(timeout * 1e6)
    return waiter.wait(until_us)


class FiberMutex:
    """In place of threading.Lock."""

    def __init__(self) -> None:
        self._held = False
        self._waiters: deque[Waiter] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; others may go first."""
        if not blocking:
            taken, self._held = not self._held, True
            return taken
        one = process()
        if one.world.chance(PREEMPTED):
            one.fibers.pass_time(one.world.between(0, HOLD_UP_US_MAX))
        while self._held:
            _wait(self._waiters, None)
        self._held = True
        return True

    def release(self) -> None:
        """Whoever waits goes on."""
        if not self._held:
            raise RuntimeError("release of a lock that nobody holds")
        self._held = False
        if self._waiters:
            self._waiters.popleft().tell()

    def take_over(self) -> None:
        """Hold it, whoever did: of a program that was killed."""
        self._held = True

    def locked(self) -> bool:
        """True if somebody holds it."""
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class FiberSemaphore:
    """In place of threading.Semaphore."""

    def __init__(self, value: int = 1) -> None:
        self._free = value
        self._waiters: deque[Waiter] = deque()

    def acquire(self, blocking: bool = True) -> bool:
        """Take a place."""
        while not self._free:
            if not blocking:
                return False
            _wait(self._waiters, None)
        self._free -= 1
        return True

    def release(self) -> None:
        """Give a place."""
        self._free += 1
        if self._waiters:
            self._waiters.popleft().tell()


class FiberEvent:
    """In place of threading.Event."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[Waiter] = []

    def set(self) -> None:
        """Whoever waits goes on."""
        self._is_set = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.tell()

    def clear(self) -> None:
        """The next one waits."""
        self._is_set = False

    def is_set(self) -> bool:
        """True after `set`."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for so many seconds."""
        return self._is_set or _wait(self._waiters, timeout)


class FiberCondition:
    """In place of threading.Condition."""

    def __init__(self) -> None:
        self._mutex = FiberMutex()
        self._waiters: list[Waiter] = []

    def __enter__(self) -> bool:
        return self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self._mutex.release()

    def wait_for(self, is_so: Callable[[], object], timeout: float | None = None) -> bool:
        """Wait until it is so, or for so many seconds; others may take the lock meanwhile."""
        world = process().world
        until_us = None if timeout is None else world.now_us + int(timeout * 1e6)
        while not is_so() and (until_us is None or world.now_us < until_us):
            self._mutex.release()
            try:
                _wait(self._waiters, None if until_us is None else (until_us - world.now_us) / 1e6)
                self._mutex.acquire()
            except Gone:
                self._mutex.take_over()  # its `with` releases it, and nobody is left to notice
                raise
        return bool(is_so())

    def notify_all(self) -> None:
        """Whoever waits looks again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.tell()


class FiberPool(ThreadPoolExecutor):
    """In place of ThreadPoolExecutor: so many fibers at once."""

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        self._count, self._running = max_workers, 0
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._closed = False
        self._quiet: list[Waiter] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it a little later, in a fiber."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = CountedFuture()
        self._queue.append((future, lambda: function(*args, **kwargs)))
        if self._running < self._count:
            self._running += 1
            FiberThread(target=self._serve).start()
        return future

    def _serve(self) -> None:
        while self._queue:
            future, call = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    answer = call()
                except Exception as wrong:  # noqa: BLE001 - who asked gets it
                    future.set_exception(wrong)
                else:
                    future.set_result(answer)
        self._running -= 1
        for waiter in self._quiet:
            waiter.tell()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing any more."""
        self._closed = True
        while cancel_futures and self._queue:
            self._queue.popleft()[0].cancel()
        while wait and self._running:
            _wait(self._quiet, None)


class CountedFuture(Future[Any]):
    """A future whose place in a set does not follow from where it lies in memory."""

    _count = 0

    def __init__(self) -> None:
        super().__init__()
        CountedFuture._count += 1
        self._number = CountedFuture._count

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _OrderedSet:
    """In place of weakref.WeakSet: in the order of adding, and nothing leaves by itself, since when
    memory is cleared up does not follow from the seed."""

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}

    def add(self, one: Any) -> None:
        self._kept[id(one)] = one

    def discard(self, one: Any) -> None:
        self._kept.pop(id(one), None)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._kept.values()))

    def __len__(self) -> int:
        return len(self._kept)


class _FiberLocal:
    """In place of an instance of threading.local: one for each fiber."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._each: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        fiber = getcurrent()
        if fiber not in self._each:
            self._each[fiber] = self._kind()
        return getattr(self._each[fiber], name)


def _waiting(inner: Callable[..., Any]) -> Callable[..., Any]:
    """`Future.result` and `.exception`: a fiber waits while the world goes on."""

    def waits(self: Future[Any], timeout: float | None = None) -> Any:
        thread = getattr(getcurrent(), "thread", None)
        if thread is not None and not self.done():
            one: ClientProcess = thread.process
            waiter = ClientWaiter(one.fibers)
            self.add_done_callback(lambda _: waiter.tell())
            until_us = None if timeout is None else one.world.now_us + int(timeout * 1e6)
            if not waiter.wait(until_us):
                raise TimeoutError
        return inner(self, 0)

    return waits


def _modules() -> list[ModuleType]:
    prefix = dejaqueue.client.__name__
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name == prefix or name.startswith(f"{prefix}.")
    ]


@contextlib.contextmanager
def clients_in_fibers(world: World, wire: Any) -> Iterator[None]:
    """Have the client library find what is here, for as long as this lasts.

    Args:
        wire: in place of `pyarrow.flight` (wire.py).
    """
    # Its modules are loaded before, or they would keep what they find here.
    import dejaqueue.client.routed_transport  # noqa: F401

    dice = random.Random(f"{world.seed} client")
    stand_ins: list[tuple[Any, Any]] = [
        (
            threading,
            SimpleNamespace(
                Thread=FiberThread,
                Lock=FiberMutex,
                Semaphore=FiberSemaphore,
                Event=FiberEvent,
                Condition=FiberCondition,
                current_thread=lambda: getattr(getcurrent(), "thread", None),
            ),
        ),
        (threading.Lock, FiberMutex),
        (ThreadPoolExecutor, FiberPool),
        (Future, CountedFuture),
        (SteadyClock, _ClockOfWhoRuns),
        (SystemClock, _ClockOfWhoRuns),
        (random, dice),
        (uuid, SimpleNamespace(uuid4=lambda: uuid.UUID(int=dice.getrandbits(128)))),
        (weakref, SimpleNamespace(**(vars(weakref) | {"WeakSet": _OrderedSet}))),
        (flight, wire),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("result", "exception"):
            patch.setattr(Future, name, _waiting(getattr(Future, name)))
        for module in _modules():
            for name, value in list(vars(module).items()):
                for real, stand_in in stand_ins:
                    if value is real:
                        patch.setattr(module, name, stand_in)
                if isinstance(value, threading.local):
                    patch.setattr(module, name, _FiberLocal(type(value)))
                elif isinstance(value, SteadyClock | SystemClock):
                    patch.setattr(module, name, _ClockOfWhoRuns())
        CountedFuture._count = 0
        yield


# --- a loop of asyncio ----------------------------------------------------------------------------


class _Selector:
    """What a loop waits with: nothing is there but calls and times."""

    def __init__(self, loop: FiberLoop) -> None:
        self._loop = loop
        self._waiter: Waiter | None = None
        self._told = False

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait for a call of another fiber, or so long."""
        one = self._loop.process
        told, self._told = self._told, False
        if told or (timeout is not None and timeout <= 0):
            return []
        self._waiter = waiter = ClientWaiter(one.fibers)
        waiter.wait(None if timeout is None else one.world.now_us + int(timeout * 1e6) + 1)
        self._waiter = None
        self._told = False
        return []

    def tell(self) -> None:
        """End the wait."""
        self._told = True
        if self._waiter is not None:
            self._waiter.tell()

    def get_map(self) -> dict[Any, Any]:
        return {}

    def close(self) -> None:
        pass


class FiberLoop(asyncio.BaseEventLoop):
    """An event loop in a fiber."""

    def __init__(self, process: ClientProcess) -> None:
        self.process = process
        super().__init__()
        self._selector = _Selector(self)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Seconds of the world, few enough to be told apart by microseconds."""
        return (self.process.world.now_us - START_US) / 1e6

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        self._selector.tell()

    def run_in_executor(  # type: ignore[override]  # of fibers, not of threads
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """On another fiber."""
        inner: Future[Any] = CountedFuture()

        def run() -> None:
            try:
                answer = func(*args)
            except Exception as wrong:  # noqa: BLE001 - who asked gets it
                inner.set_exception(wrong)
            else:
                inner.set_result(answer)

        FiberThread(target=run, process=self.process).start()
        return asyncio.wrap_future(inner, loop=self)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""
