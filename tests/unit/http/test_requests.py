"""Requests are counted by their route's template, also those that fail.

Covered: status, routes, methods, a bug in the application. Not covered: real sockets
(tests/integration/test_metrics.py).
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from dejaqueue.http.requests import UNMATCHED, RequestCounter, RequestCounts


def ask(counts: RequestCounts, app: Any, **scope: Any) -> None:
    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        return None

    asyncio.run(RequestCounter(app, counts)({"type": "http", **scope}, receive, send))


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 404})
    await send({"type": "http.response.body", "body": b""})


async def found(scope: Scope, receive: Receive, send: Send) -> None:
    scope["route"] = SimpleNamespace(path="/topics/{name}")
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b""})


async def broken(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("a bug")


def test_template_of_the_route_is_the_label() -> None:
    counts = RequestCounts()
    ask(counts, found, method="GET", path="/topics/a")
    ask(counts, found, method="GET", path="/topics/b")
    assert counts.ended() == {("GET", "/topics/{name}", "200"): 2}
    assert counts.durations()["GET", "/topics/{name}"].count == 2


def test_paths_without_a_route_and_made_up_methods_share_a_label() -> None:
    counts = RequestCounts()
    ask(counts, not_found, method="GET", path="/x")
    ask(counts, not_found, method="BREW", path="/y")
    assert counts.ended() == {("GET", UNMATCHED, "404"): 1, ("OTHER", UNMATCHED, "404"): 1}


def test_bug_counts_as_500_and_nothing_stays_open() -> None:
    counts = RequestCounts()
    with pytest.raises(RuntimeError):
        ask(counts, broken, method="POST", path="/x")
    assert counts.ended() == {("POST", UNMATCHED, "500"): 1}
    assert counts.open == 0


def test_what_is_no_request_passes_by() -> None:
    counts, seen = RequestCounts(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    asyncio.run(RequestCounter(app, counts)({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan"]
    assert counts.ended() == {}
