"""In place of Python's threading, queue and concurrent.futures: for whoever runs in a fiber.

Whoever waits lets the world go on. Code that is given these knows no other threads.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from greenlet import getcurrent

from tests.simulation.cluster.fibers import Fibers, Waiter
from tests.simulation.cluster.threads import FiberFuture

Item = TypeVar("Item")


def fibers_here() -> Fibers | None:
    """Of the broker whose fiber runs; None in the world's own."""
    found: Fibers | None = getattr(getcurrent(), "fibers", None)
    return found


def fibers_now() -> Fibers:
    """Of the broker whose fiber runs."""
    found = fibers_here()
    assert found is not None, "somebody waits who must not"
    return found


def fiber_future() -> FiberFuture[object]:
    """In place of concurrent.futures.Future: for whoever runs now."""
    return FiberFuture(fibers_now())


class _Thread:
    """In place of threading.Thread."""

    def __init__(
        self, *, target: Callable[..., None], name: str, daemon: bool, args: Sequence[Any] = ()
    ) -> None:
        self._target, self._fibers = partial(target, *args), fibers_now()
        self._over = False

    def start(self) -> None:
        """It runs a little later."""
        world = self._fibers.world
        world.after(world.between(10, 5_000), self._run, self._fibers.life)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._over = True

    def join(self, seconds: float | None = None) -> None:
        """Return when it has ended; nobody waits in vain here."""
        self._fibers.pass_until(lambda: self._over)


class _Event:
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
        """Whoever waits from now on waits for the next `set`."""
        self._is_set = False

    def is_set(self) -> bool:
        """True after `set`."""
        return self._is_set

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, or for so many seconds."""
        if not self._is_set:
            fibers = fibers_now()
            waiter = Waiter(fibers)
            self._waiters.append(waiter)
            waiter.wait(None if seconds is None else fibers.world.now_us + int(seconds * 1e6) + 1)
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return self._is_set


class FiberCondition:
    """In place of threading.Condition. Its holders do not wait but in `wait`."""

    def __init__(self) -> None:
        self._waiters: list[Waiter] = []

    def __enter__(self) -> FiberCondition:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until told, or for so long."""
        fibers = fibers_now()
        waiter = Waiter(fibers)
        self._waiters.append(waiter)
        until_us = None if seconds is None else fibers.world.now_us + int(seconds * 1e6) + 1
        return waiter.wait(until_us)

    def notify(self, _: int = 1) -> None:
        """Whoever waits goes on: all of them, each of whom looks again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.tell()


class FiberQueue(Generic[Item]):
    """What was put into it, oldest first."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._waiters: list[Waiter] = []

    def put(self, item: Item) -> None:
        """See SimpleQueue.put."""
        self._items.append(item)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.tell()

    def get(self, timeout: float | None = None) -> Item:
        """See SimpleQueue.get. Raises queue.Empty."""
        fibers = fibers_now()
        until_us = None if timeout is None else fibers.world.now_us + int(timeout * 1e6) + 1
        while not self._items:
            if until_us is not None and fibers.world.now_us >= until_us:
                raise queue.Empty
            waiter = Waiter(fibers)
            self._waiters.append(waiter)
            waiter.wait(until_us)
        return self._items.popleft()


def fiber_threads() -> SimpleNamespace:
    """In place of the module threading, for what waits in no lock."""
    return SimpleNamespace(
        Thread=_Thread,
        Event=_Event,
        Lock=threading.Lock,
        Condition=FiberCondition,
        current_thread=lambda: None,
    )


def fiber_queues() -> SimpleNamespace:
    """In place of the module queue."""
    return SimpleNamespace(SimpleQueue=FiberQueue, Empty=queue.Empty)
