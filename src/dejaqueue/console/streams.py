"""Streams: pages that are open hear when to look again; and what goes on ends with the server.

Room: console. Server-sent events, on the event loop.
Holds: a stream ends when its viewer's key does, and when the server stops; an open page costs a
few bytes in each period until it asks.
See: http/server.py, which closes this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import Response, StreamingResponse

from dejaqueue.access.gate import Gate
from dejaqueue.console.api import ApiError
from dejaqueue.console.pages import HEADERS
from dejaqueue.console.samples import PERIOD_MS
from dejaqueue.console.visit import Visit
from dejaqueue.console.works import Works
from dejaqueue.errors import Unauthenticated

STREAMS_MAX = 100
"""Open pages that are told of news at once; those beyond show what they have."""


class Streams:
    """What goes on after an answer has begun.

    Attributes:
        works: changes that go on.
    """

    def __init__(self) -> None:
        self.works = Works()
        self._bells: set[asyncio.Event] = set()
        self._is_closed = False

    def close(self) -> None:
        """End all of it; on the event loop."""
        self._is_closed = True
        for bell in self._bells:
            bell.set()
        self.works.close()

    def open(self, gate: Gate, visit: Visit) -> Response:
        """A stream of ticks for an open page. Raises ApiError: there are too many."""
        if len(self._bells) >= STREAMS_MAX:
            raise ApiError(503, "too many pages are open")
        headers = HEADERS | {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._ticks(gate, visit), 200, headers, "text/event-stream")

    async def _ticks(self, gate: Gate, visit: Visit) -> AsyncIterator[str]:
        assert visit.session.principal is not None
        loop, bell = asyncio.get_running_loop(), asyncio.Event()

        def end(_: Unauthenticated) -> None:
            with suppress(RuntimeError):  # the loop has ended, and the stream with it
                loop.call_soon_threadsafe(bell.set)

        self._bells.add(bell)
        try:
            yield "retry: 1000\n\nevent: hello\ndata: \n\n"
            with gate.admit(visit.session.principal, end):
                while not await _rung(bell):
                    yield f"event: tick\ndata: {visit.now_ms}\n\n"
            if not self._is_closed:  # then the browser asks again, and finds another broker
                yield "event: ended\ndata: \n\n"
        finally:
            self._bells.discard(bell)


async def _rung(bell: asyncio.Event) -> bool:
    """True as soon as it is over; False after a period."""
    try:
        async with asyncio.timeout(PERIOD_MS / 1_000):
            await bell.wait()
    except TimeoutError:
        return False
    return True
