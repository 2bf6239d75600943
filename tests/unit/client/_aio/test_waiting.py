"""How coroutines wait: the loop runs on meanwhile."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import Future

from dejaqueue.client._aio import waiting as waits_aio
from dejaqueue.client._sync import waiting as waits_sync


def test_both_kinds_of_waiting_have_the_same_names() -> None:
    def public(module: object) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(module, inspect.isfunction)
            if not name.startswith("_") and member.__module__ == module.__name__  # type: ignore[attr-defined]
        }

    assert public(waits_aio) == public(waits_sync)
    assert public(waits_aio)


def test_a_full_window_does_not_stop_the_loop() -> None:
    async def main() -> None:
        window = threading.Semaphore(0)
        waiting = asyncio.create_task(waits_aio.acquire(window))
        ran = asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)
        await ran.wait()
        assert not waiting.done()
        window.release()
        await waiting

    asyncio.run(main())


def test_results_and_calls() -> None:
    async def main() -> None:
        future: Future[int] = Future()
        threading.Timer(0.01, future.set_result, args=(3,)).start()
        assert await waits_aio.result(future) == 3
        here = threading.get_ident()
        assert await waits_aio.run(threading.get_ident) != here

    asyncio.run(main())


def test_a_cancelled_wait_leaves_what_was_sent_alone() -> None:
    future: Future[int] = Future()

    async def main() -> None:
        waiting = asyncio.create_task(waits_aio.result(future))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()

    asyncio.run(main())
    future.set_result(3)  # the answer comes, though the loop is closed by now
    assert future.result() == 3
