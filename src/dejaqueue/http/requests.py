"""Requests counted: how many, how they ended, how long they took.

Room: http. ASGI, around the whole application.
Holds: adds a few microseconds to a request; labels come from the routes that there are, never from
what a client sent.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dejaqueue.metrics import Histogram, HistogramCounts

UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestCounts:
    """What is counted of requests; on the event loop alone, and read by any thread.

    Attributes:
        open: being answered now.
    """

    def __init__(self) -> None:
        self.open = 0
        self._ended: dict[tuple[str, str, int], int] = {}
        self._durations: dict[tuple[str, str], Histogram] = {}

    def count(self, method: str, route: str, status: int, took_us: int) -> None:
        """One request was answered."""
        ended, named = self._ended, (method, route, status)
        ended[named] = ended.get(named, 0) + 1
        histogram = self._durations.get((method, route))
        if histogram is None:
            histogram = self._durations[method, route] = Histogram()
        histogram.add(took_us)

    def ended(self) -> dict[tuple[str, str, str], int]:
        """How many requests were answered, by method, route and status."""
        copied = self._ended.copy()
        return {(method, route, str(status)): n for (method, route, status), n in copied.items()}

    def durations(self) -> dict[tuple[str, str], HistogramCounts]:
        """How long requests took, by method and route."""
        return {labels: histogram.read() for labels, histogram in self._durations.copy().items()}


class RequestCounter:
    """The application around the application."""

    def __init__(self, app: ASGIApp, counts: RequestCounts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        counts, status = self._counts, 500  # what a request gets whose answer never began
        began_ns = time.perf_counter_ns()

        def sending(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        counts.open += 1
        try:
            await self._app(scope, receive, sending)
        finally:
            counts.open -= 1
            took_us = (time.perf_counter_ns() - began_ns) // 1_000
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            counts.count(method, _route_of(scope), status, took_us)


def _route_of(scope: Scope) -> str:
    """The template of the route that was taken."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else UNMATCHED
