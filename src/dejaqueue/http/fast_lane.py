"""The fast lane: what is called most goes past the framework's router.

Room: http. Middleware, the innermost: whatever the application puts around its routes is around
these calls, too.
Holds: a call gets the same answer here as by the router; the OpenAPI document comes from there.

The router and what it wraps around each call took more than half of the time of sending a message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute

from dejaqueue.errors import DejaQError
from dejaqueue.http.auditing import note_error
from dejaqueue.http.direct import DirectRoute
from dejaqueue.http.problems import framework_problem, problem

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PREFIX = "/v1/topics/"
_PATTERN = f"{PREFIX}{{topic}}/"


def calls_of(routes: Iterable[BaseRoute]) -> dict[str, DirectRoute]:
    """The direct routes POST /v1/topics/{topic}/NAME, by name."""
    return {
        route.path.removeprefix(_PATTERN): route
        for route in routes
        if isinstance(route, DirectRoute)
        and route.path.startswith(_PATTERN)
        and route.methods == {"POST"}
    }


class FastLane:
    """Answers the calls of direct routes; everything else goes on.

    Args:
        app: what comes behind.
        calls: what `calls_of` found.
    """

    def __init__(self, app: App, calls: dict[str, DirectRoute]) -> None:
        self._app = app
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "http" and scope["method"] == "POST":
            path: str = scope["path"]
            if path.startswith(PREFIX):
                topic, _, name = path[len(PREFIX) :].partition("/")
                route = self._calls.get(name)
                if route is not None and topic:
                    await _answer(route, topic, scope, receive, send)
                    return
        await self._app(scope, receive, send)


async def _answer(
    route: DirectRoute, topic: str, scope: Scope, receive: Receive, send: Send
) -> None:
    scope["path_params"] = {"topic": topic}
    scope["route"] = route
    request = Request(scope, receive, send)
    try:
        response: Response = await route.endpoint(request, topic)
    except DejaQError as error:
        note_error(request.scope, error)
        response = problem(error)
    except HTTPException as error:
        response = framework_problem(error)
    await response(scope, receive, send)
