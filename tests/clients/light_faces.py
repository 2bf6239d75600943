"""One broker, and the faces of its clients: DejaQ's own, the light one, and that one's async side.

A case is written once, as a program without an event loop would be. The asynchronous client is put
behind a face that runs its coroutines on a loop of its own, so that it does the same cases.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import dejaqueue
import dejaqueue_client
from tests.integration.access_fixture import Site
from tests.patience import PATIENCE_SECONDS

FACES = ("flight", "light", "light-async")


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, call: Callable[[], Any]) -> Any:
        """What a call answers, once it has been awaited."""

        async def awaited() -> Any:
            found = call()
            return await found if inspect.isawaitable(found) else found

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(PATIENCE_SECONDS)

    def close(self) -> None:
        """End; what was left open on it is called off."""

        async def rest() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(rest(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()


class Waited:
    """An asynchronous object as one that blocks."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name == "drain":
            return found

        def call(*values: Any, **named: Any) -> Any:
            values = tuple(map(_inner_of, values))
            if name == "run":
                values = tuple(self._as_coroutine(one) if callable(one) else one for one in values)
            return self._shown(self._loop.run(lambda: found(*values, **named)))

        return call

    def _as_coroutine(self, work: Callable[[Any], object]) -> Callable[[Any], Any]:
        async def working(message: Any) -> None:
            await asyncio.to_thread(work, Waited(message, self._loop))

        return working

    def _shown(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self._shown(one) for one in found]
        is_ours = type(found).__name__.startswith("Async")
        return Waited(found, self._loop) if is_ours or inspect.isasyncgen(found) else found

    def __len__(self) -> int:
        return len(self._inner)

    def __enter__(self) -> Waited:
        self._loop.run(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(lambda: self._inner.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._shown(self._loop.run(self._inner.__anext__))
        except StopAsyncIteration:
            raise StopIteration from None


def _inner_of(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_inner_of, value))
    return value._inner if isinstance(value, Waited) else value


@contextmanager
def face_of(kind: str, site: Site, **options: Any) -> Iterator[Any]:
    """A client of this kind."""
    if kind == "flight":
        with dejaqueue.Client(site.flight.url, **options) as client:
            yield client
    else:
        with light_face(kind, site.http_url, **options) as light:
            yield light


@contextmanager
def light_face(kind: str, url: str, **options: Any) -> Iterator[Any]:
    """A light client, of a broker at this address."""
    if kind == "light":
        with dejaqueue_client.Client(url, **options) as light:
            yield light
        return
    loop = Loop()
    try:
        made = loop.run(lambda: dejaqueue_client.AsyncClient(url, **options))
        with Waited(made, loop) as waited:
            yield waited
    finally:
        loop.close()


def told(error: BaseException) -> tuple[str, str]:
    """Class and text of an error; each client has classes of its own."""
    return type(error).__name__, str(error)


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    """The error of a call that is refused."""
    try:
        found = call()
    except (dejaqueue.DejaQError, dejaqueue_client.DejaQError) as error:
        return told(error)
    raise AssertionError(f"not refused: {found!r}")


def counted(client: Any, topic: str) -> dict[str, int]:
    """Messages of a topic by state, of those states that there are; what is ready is scheduled.
    A topic of dead letters is made when it is needed."""
    try:
        found = client.counts(topic)
    except (dejaqueue.TopicUnknown, dejaqueue_client.TopicUnknown):
        return {}
    return {state: count for state, count in found.items() if count and state != "ready"}
