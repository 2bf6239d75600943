"""Streams: pages that are open are told what has changed; and what goes on ends with the server.

Room: console. Server-sent events, on the event loop.
Holds: a stream ends when its viewer's key does, and when the server stops; a page that does not
read is told the newest once it does, and nothing is kept for it meanwhile.
See: watches.py; http/server.py, which closes this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.responses import Response, StreamingResponse

from dejaqueue.access.gate import Gate
from dejaqueue.console.api import ApiError
from dejaqueue.console.pages import HEADERS
from dejaqueue.console.visit import Visit
from dejaqueue.console.watches import Look, Watches, is_rung
from dejaqueue.console.works import Works
from dejaqueue.digits import number_of
from dejaqueue.errors import Unauthenticated

STREAMS_MAX = 100
"""Open pages that are told of news at once; those beyond show what they have."""
SILENCE_SECONDS = 15.0
"""A stream without news says so, and so finds out that nobody is there."""


class Streams:
    """What goes on after an answer has begun.

    Args:
        now_ms: the broker's time, UTC milliseconds.

    Attributes:
        works: changes that go on.
        watches: what open pages show.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.works = Works()
        self.watches = Watches(now_ms)
        self._bells: set[asyncio.Event] = set()
        self._is_closed = False

    def close(self) -> None:
        """End all of it; on the event loop."""
        self._is_closed = True
        for bell in self._bells:
            bell.set()
        self.watches.close()
        self.works.close()

    def open(self, gate: Gate, visit: Visit, look: Look) -> Response:
        """A stream of news for an open page. Raises ApiError: there are too many."""
        if len(self._bells) >= STREAMS_MAX:
            raise ApiError(503, "too many pages are open")
        headers = HEADERS | {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._news(gate, visit, look), 200, headers, "text/event-stream")

    async def _news(self, gate: Gate, visit: Visit, look: Look) -> AsyncIterator[str]:
        assert visit.session.principal is not None
        loop, bell = asyncio.get_running_loop(), asyncio.Event()
        is_over = False

        def end(_: Unauthenticated) -> None:
            nonlocal is_over
            is_over = True
            with suppress(RuntimeError):  # the loop has ended, and the stream with it
                loop.call_soon_threadsafe(bell.set)

        watch, now_ms = visit.watch, self.watches.now_ms
        name, _, text = visit.fields.get("seen", "").rpartition(".")
        version = number_of(text) if name == watch.name else None
        self._bells.add(bell)
        self.watches.listen(watch, bell, look)
        try:
            yield "retry: 1000\n\nevent: hello\ndata: \n\n"
            if version is None:  # the page was made before this broker started, or long ago
                yield "event: again\ndata: \n\n"
            seen = watch.version if version is None else version
            with gate.admit(visit.session.principal, end):
                while not (is_over or self._is_closed):
                    bell.clear()
                    if news := watch.news(seen, now_ms()):
                        seen = watch.version
                        yield news
                    elif not await is_rung(bell, SILENCE_SECONDS):
                        yield ": nothing new\n\n"
            if not self._is_closed:  # then the browser asks again, and finds another broker
                yield "event: ended\ndata: \n\n"
        finally:
            self._bells.discard(bell)
            self.watches.leave(watch, bell)
