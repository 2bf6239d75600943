"""The lane past the router: which calls it takes, and that it answers as the router does.

Not covered: what the calls do (test_routes.py).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httpx
import pytest
from fastapi import Request
from fastapi.exceptions import RequestValidationError

from dejaqueue.http.doq.calls import Lane, _wants_ack, router


class Below:
    """The application below; notes what is passed on to it."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append(scope["path"])


def passed_on(method: str, path: str, kind: str = "http") -> bool:
    below = Below()
    scope = {"type": kind, "method": method, "path": path, "headers": [], "query_string": b""}

    async def nothing(*given: Any) -> Any:
        return {"type": "http.disconnect"}

    async def run() -> None:
        with suppress(KeyError):  # where it is taken there is no application
            await Lane(below)(scope, nothing, nothing)

    asyncio.run(run())
    return below.paths == [path]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/API/v1/queues/q/messages"),
        ("GET", "/API/v1/queues/q/messages"),
        ("POST", "/API/v1/queues/q/messages/7/ack"),
    ],
)
def test_what_is_called_most_goes_past_the_router(method: str, path: str) -> None:
    assert not passed_on(method, path)
    assert passed_on("DELETE", path), "another method is the router's"
    assert passed_on(method, path, kind="websocket")
    assert passed_on(method, f"/v1{path}")
    assert passed_on(method, f"{path}/more")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/API/v1/queues//messages"),
        ("POST", "/API/v1/queues/q/messages//ack"),
        ("GET", "/API/v1/queues/q/messages/7"),
        ("POST", "/API/v1/queues/q/messages/7/nack"),
        ("GET", "/API/v1/queues/q"),
        ("GET", "/API/v1/queues/"),
    ],
)
def test_everything_else_is_the_routers(method: str, path: str) -> None:
    assert passed_on(method, path)


def test_the_lane_has_the_calls_of_its_router_and_no_others() -> None:
    assert len(Lane(Below())._routes) == len(router.routes) == 3


def asked(query: str) -> bool:
    return _wants_ack(Request({"type": "http", "query_string": query.encode(), "headers": []}))


def test_a_message_is_done_at_once_only_where_that_is_asked_for() -> None:
    assert [asked(query) for query in ("", "x=1", "ack=0", "ack=No", "ack=f")] == [False] * 5
    assert [asked(query) for query in ("ack=true", "ack=1", "ack=ON", "x=1&ack=y")] == [True] * 4
    for query in ("ack=", "ack=maybe", "ack=2"):
        with pytest.raises(RequestValidationError):
            asked(query)


@pytest.fixture
def queue(http: httpx.Client) -> httpx.Client:
    assert http.post("/queues", json={"name": "q", "type": "delayed"}).status_code == 200
    return http


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[]", 422),
        (b'{"content": "a"}', 422),
        (b'{"content": "a", "priority": -1}', 422),
        (b'{"content": "a", "priority": 1, "colour": "red"}', 422),
        (b'{"content": "a", "priority": 1}', 200),
    ],
)
def test_a_body_that_is_wrong_is_refused_as_the_framework_does(
    queue: httpx.Client, content: bytes, status: int
) -> None:
    kind = {"content-type": "application/json"}
    answer = queue.post("/queues/q/messages", content=content, headers=kind)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["errors"]


def test_an_error_has_one_form_on_both_ways(queue: httpx.Client) -> None:
    by_lane = queue.post("/queues/none/messages", json={"content": "a", "priority": 1})
    by_router = queue.put("/queues/none/messages/1/priority", json={"priority": 1})
    assert by_lane.status_code == by_router.status_code == 409
    assert by_lane.json().keys() == by_router.json().keys()
