"""How the asynchronous client waits: the coroutine is suspended, the loop runs on.

Room: client. The counterpart of _sync/waiting.py: same names, same meaning.
Holds: nothing here blocks the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import httpx

T = TypeVar("T")

Http = httpx.AsyncClient
Mutex = asyncio.Lock
Ongoing: TypeAlias = "asyncio.Task[None]"
POLL_MS = 20_000
"""So long one request waits for messages; a drain ends it."""


async def close_http(http: httpx.AsyncClient) -> None:
    """Close its connections."""
    await http.aclose()


def hang_up(http: httpx.AsyncClient, url: str) -> None:
    """Nothing is to be done: the connection of a call that is called off is closed."""


async def pause(seconds: float) -> None:
    """Let time pass before a call is tried again."""
    # tidy: allow sleep, because nothing tells when a broker is there again
    await asyncio.sleep(seconds)


class Bell:
    """Wakes one coroutine that waits for it. Anybody may ring, from any thread."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_rung = False

    def ring(self) -> None:
        """Wake who waits, or who will wait next."""
        self._is_rung = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._event.set)

    def ring_anywhere(self) -> None:
        """As `ring`; from a signal's handler, too."""
        self.ring()

    async def wait(self, seconds: float | None = None) -> None:
        """Return when it rings, or after so long."""
        self._loop = asyncio.get_running_loop()
        if not self._is_rung:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()
        self._is_rung = False


def start(call: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> asyncio.Task[None]:
    """Have a call go on beside the caller."""
    return asyncio.get_running_loop().create_task(call(*args))


async def join(ongoing: asyncio.Task[None]) -> None:
    """Return when what was started has ended."""
    await asyncio.wait({ongoing})


def close_at_exit(_leases: Any) -> None:
    """The loop has ended by then, and took its tasks with it."""


async def unless(bell: Bell, call: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T | None:
    """The result of a call that may take long; None = the bell rang before."""
    calling = asyncio.get_running_loop().create_task(call(*args))
    ringing = asyncio.get_running_loop().create_task(bell.wait())
    try:
        await asyncio.wait({calling, ringing}, return_when=asyncio.FIRST_COMPLETED)
        return calling.result() if calling.done() else None
    finally:
        for one in (calling, ringing):
            one.cancel()
        await asyncio.gather(calling, ringing, return_exceptions=True)


async def unless_silent(
    call: Callable[[], Coroutine[Any, Any, T]],
    patience: Callable[[], float],
    is_silent: Callable[[], Coroutine[Any, Any, bool]],
) -> T | None:
    """The result of a call; None = it was left, as whoever is to answer gave no sign of life.

    Args:
        patience: how long to wait before that one is asked, seconds; each time anew.
        is_silent: asks.
    """
    calling = asyncio.get_running_loop().create_task(call())
    try:
        while True:
            await asyncio.wait({calling}, timeout=patience())
            if calling.done() or (await is_silent() and not calling.done()):
                return calling.result() if calling.done() else None
    finally:
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)


class Pool:
    """Coroutines that work at the same time, `concurrency` of them at most."""

    def __init__(self, concurrency: int) -> None:
        self._places = asyncio.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[None]] = set()

    async def place(self) -> None:
        """Return when one more may start."""
        await self._places.acquire()

    def start(self, call: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start one in the place that `place` gave."""
        task = asyncio.get_running_loop().create_task(call(*args))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._places.release()

    def cancel(self) -> None:
        """End those that work."""
        for task in self._tasks:
            task.cancel()

    async def join(self) -> None:
        """Return when none works any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
