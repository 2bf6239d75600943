"""How the asynchronous client waits: the coroutine is suspended, the loop runs on.

Room: client. The counterpart of _sync/waiting.py: same names, same meaning.
Holds: nothing here blocks the loop; nothing polls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.core import ClientCore
from dejaqueue.client.sending.gather import Gather, Row
from dejaqueue.errors import Unavailable

T = TypeVar("T")

Mutex = asyncio.Lock
MAY_BLOCK = False
"""Opening a connection would stop the loop: another thread does it."""


async def result(future: Future[T]) -> T:
    """The result of a future of a transport's thread.

    A coroutine that is cancelled meanwhile leaves the future alone: what was sent is answered all
    the same (`asyncio.wrap_future` would cancel it, and the answering thread would fail on that).
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def ring(_done: Future[T]) -> None:
        try:
            loop.call_soon_threadsafe(_finish, waiter)
        except RuntimeError:
            return  # the loop is closed: nobody waits

    future.add_done_callback(ring)
    await waiter
    return future.result()


async def run(call: Callable[..., T], *args: Any) -> T:
    """Make a call that may block, on another thread."""
    return await asyncio.to_thread(call, *args)


async def repeat(core: ClientCore, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a call that does twice what it does once, or that changes nothing: it is made
    again while no broker answers."""
    try:
        return await result(core.transport.action(name, body, repeats=True))
    except Unavailable:
        return await run(core.call, name, body)


async def acquire(window: threading.Semaphore) -> None:
    """Take a place in a window, when one is free."""
    if not window.acquire(blocking=False):
        await asyncio.to_thread(window.acquire)


async def send_row(gather: Gather, row: Row) -> int:
    """Send one message with whatever else is sent now; its id."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    gathered, index = gather.add(row, None, waiter)
    if index == 0:
        # After the loop has run every task that is ready to send now.
        loop.call_soon(gather.pump_soon)
    await waiter
    return gathered.id_of(index)


async def next_slice(core: ConsumeCore, rows_max: int, idle_us: int | None) -> Slice | None:
    """The next rows that are due; None when the consumer ended or nothing came for that long."""
    loop = asyncio.get_running_loop()
    give_up_us = None if idle_us is None else core.clock.now_us() + idle_us
    while True:
        waiter: asyncio.Future[None] = loop.create_future()

        def ring(waiter: asyncio.Future[None] = waiter) -> None:
            try:
                loop.call_soon_threadsafe(_finish, waiter)
            except RuntimeError:
                return  # the loop is closed: nobody waits

        core.listen(ring)
        try:
            found = core.take(rows_max)
            if found is not None or core.is_over or core.is_ending:
                return found
            until_us = core.release_us()
            if give_up_us is not None:
                if core.clock.now_us() >= give_up_us:
                    return None
                until_us = give_up_us if until_us is None else min(until_us, give_up_us)
            # The alarm's thread wakes the loop: a loop's own timers are whole milliseconds late.
            appointment = None if until_us is None else core.alarm.at(until_us, ring)
            try:
                await waiter
            finally:
                if appointment is not None:
                    appointment.cancel()
        finally:
            core.listen(None)


class Pool:
    """Coroutines that work at the same time, `concurrency` of them at most."""

    def __init__(self, concurrency: int) -> None:
        self._places = asyncio.Semaphore(concurrency)
        self._futures: set[asyncio.Future[None]] = set()

    async def place(self) -> None:
        """Return when one more may start."""
        await self._places.acquire()

    def start(self, call: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start one in the place that `place` gave."""
        future = asyncio.get_running_loop().create_task(call(*args))
        self._futures.add(future)
        future.add_done_callback(self._ended)

    def _ended(self, future: asyncio.Future[None]) -> None:
        self._futures.discard(future)
        self._places.release()

    def cancel(self) -> None:
        """End those that work."""
        for future in self._futures:
            future.cancel()

    async def join(self) -> None:
        """Return when none works any more."""
        await asyncio.gather(*self._futures, return_exceptions=True)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
