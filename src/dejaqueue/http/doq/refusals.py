"""Errors as DOQ's clients know them: its status codes, its field names.

Room: http. For the routes of this package; other routes answer by problems.py.
Holds: what the state refuses gets the status that DOQ gives for that call; what is wrong in a
request 422, or 400 if it is not JSON; what may be tried again, or is not allowed, is as everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any, cast

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from dejaqueue.errors import BadRequest, Refused, TopicUnknown
from dejaqueue.http.auditing import note_error
from dejaqueue.http.problems import MEDIA_TYPE

VALUE_CHARACTERS_MAX = 200
FAILURES = {
    "create_queue": (409, "Failed to create a queue"),
    "update_queue": (409, "Failed to update a queue"),
    "delete_queue": (400, "Failed to delete a queue"),
    "get_queue": (400, "Failed to get a queue"),
    "cluster_servers": (400, "Failed to get the servers"),
    "enqueue": (409, "Failed to enqueue a message"),
    "dequeue": (400, "Failed to dequeue a message"),
    "get_message": (400, "Failed to get a message"),
    "delete_message": (400, "Failed to delete a message"),
    "ack": (400, "Failed to acknowledge a message"),
    "nack": (400, "Failed to return a message"),
    "touch": (400, "Failed to touch a message"),
    "set_priority": (409, "Failed to change the priority of a message"),
}
"""Name of the route: its status and what it says where the state says no."""


def documented(route: str) -> dict[int | str, dict[str, Any]]:
    """What a route answers where it refuses, for the OpenAPI document."""
    texts = {
        400: "The body is not JSON.",
        401: "An API key is needed, or this one is not known.",
        403: "The API key has no such role for this topic.",
        422: "A field is wrong: `errors` says which.",
        429: "Backlog, memory or disk is full; Retry-After says how long to wait.",
        503: "The broker is starting or stopping; Retry-After says how long to wait.",
    }
    status, detail = FAILURES.get(route, (400, "The body is not JSON"))
    texts[status] = f"{detail}: `errors` says why."
    schema = {
        "type": "object",
        "required": ["title", "status"],
        "properties": {
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "errors": {"type": "array", "items": {"type": "object"}},
        },
    }
    content = {MEDIA_TYPE: {"schema": schema}}
    return {code: {"description": text, "content": content} for code, text in sorted(texts.items())}


def refusal(status: int, detail: str, errors: list[dict[str, Any]]) -> JSONResponse:
    """An answer of DOQ's shape."""
    body = {
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": errors,
    }
    return JSONResponse(body, status, media_type=MEDIA_TYPE)


def _printable(value: object) -> str:
    return str(value)[:VALUE_CHARACTERS_MAX].encode(errors="replace").decode()


def _invalid(error: RequestValidationError) -> JSONResponse:
    problems = [
        {
            "message": _printable(first["msg"]),
            "location": _printable(".".join(str(part) for part in first["loc"])),
            "value": _printable(first.get("input")),
        }
        for first in error.errors()[:10]
    ]
    if any(first["type"] == "json_invalid" for first in error.errors()):
        return refusal(400, "the body is not JSON", problems)
    return refusal(422, "validation failed", problems)


Endpoint = Callable[[Request], Awaitable[Response]]


def guarded(route: str, answer: Endpoint) -> Endpoint:
    """An endpoint whose refusals are DOQ's."""
    status, detail = FAILURES.get(route, (400, "Failed"))

    async def call(request: Request) -> Response:
        try:
            return await answer(request)
        except RequestValidationError as error:
            return _invalid(error)
        except (TopicUnknown, Refused) as error:
            note_error(request.scope, error)
            return refusal(status, detail, [{"message": _printable(error.told())}])
        except BadRequest as error:
            note_error(request.scope, error)
            field = {"message": error.limit, "location": error.field}
            return refusal(422, "validation failed", [field | {"value": _printable(error.value)}])

    return call


class DoqRoute(APIRoute):
    """A route whose refusals are DOQ's."""

    # tidy: allow name, because it is the name of the framework
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, and what becomes of its errors."""
        call = guarded(self.name, super().get_route_handler())
        return cast(Callable[[Request], Coroutine[Any, Any, Response]], call)


class DirectDoqRoute(APIRoute):
    """The same without the framework between request and endpoint, which takes the parts of the
    path and reads the rest of the request itself: for what is called most."""

    # tidy: allow name, because it is the name of the framework
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, and what becomes of its errors."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint

        async def answer(request: Request) -> Response:
            return await endpoint(request, **request.path_params)

        return cast(Callable[[Request], Coroutine[Any, Any, Response]], guarded(self.name, answer))
