"""How the synchronous client waits: the calling thread sleeps.

Room: client. The counterpart of _aio/waiting.py: same names, same meaning, nothing awaited.
See: scripts/generate_sync_client.py, which swaps one for the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.core import ClientCore
from dejaqueue.client.sending.gather import Gather, Row

T = TypeVar("T")

Mutex = threading.Lock
MAY_BLOCK = True
"""The caller's own thread may open a connection."""


class _OwnLock(threading.local):
    """A lock per thread, taken: whoever releases it wakes the thread."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """A fresh lock, taken."""
        self.lock = threading.Lock()
        self.lock.acquire()


_own = _OwnLock()


def result(future: Future[T]) -> T:
    """The result of a future of a transport's thread."""
    return future.result()


def run(call: Callable[..., T], *args: Any) -> T:
    """Make a call that may block."""
    return call(*args)


def repeat(core: ClientCore, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a call that does twice what it does once, or that changes nothing: it is made
    again while no broker answers."""
    return core.call(name, body)


def acquire(window: threading.Semaphore) -> None:
    """Take a place in a window, when one is free."""
    window.acquire()


def send_row(gather: Gather, row: Row) -> int:
    """Send one message with whatever else is sent now; its id."""
    lock = _own.lock
    gathered, index = gather.add(row, lock, None)
    try:
        gather.pump()
        lock.acquire()  # the batch releases it once, when it is done
    except BaseException:
        _own.renew()  # interrupted: the old one will still be released
        raise
    return gathered.id_of(index)


def next_slice(core: ConsumeCore, rows_max: int, idle_us: int | None) -> Slice | None:
    """The next rows that are due; None when the consumer is over or nothing came for so long."""
    give_up_us = None if idle_us is None else core.clock.now_us() + idle_us
    while True:
        core.wake.clear()
        found = core.take(rows_max)
        if found is not None or core.is_over or core.is_ending:
            return found
        until_us = core.release_us()
        if give_up_us is not None:
            if core.clock.now_us() >= give_up_us:
                return None
            until_us = give_up_us if until_us is None else min(until_us, give_up_us)
        core.clock.wait_until(until_us, core.wake)


class Pool:
    """Calls that work at the same time on threads of their own, `concurrency` of them at most."""

    def __init__(self, concurrency: int) -> None:
        self._places = threading.Semaphore(concurrency)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="dejaq-work")

    def place(self) -> None:
        """Return when one more may start."""
        self._places.acquire()

    def start(self, call: Callable[..., None], *args: Any) -> None:
        """Start one in the place that `place` gave."""
        self._threads.submit(call, *args).add_done_callback(self._ended)

    def _ended(self, _call: Future[None]) -> None:
        self._places.release()

    def cancel(self) -> None:
        """A thread cannot be ended: `join` waits for those that work."""

    def join(self) -> None:
        """Return when none works any more."""
        self._threads.shutdown(wait=True)
