"""Errors as problem details (RFC 9457).

Room: http. The one place where an error becomes an HTTP answer.
Holds: every error has the content type application/problem+json; a bug is a 500 without its story.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from dejaqueue.access.near_names import with_near_name
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    InternalError,
    TopicUnknown,
    TryLater,
    Unauthenticated,
)
from dejaqueue.http.auditing import note_error
from dejaqueue.http.service import principal_of

MEDIA_TYPE = "application/problem+json"


def problem(error: DejaQError) -> JSONResponse:
    """The answer to a call that ended with this error."""
    headers = {}
    if isinstance(error, TryLater):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_ms / 1_000)))
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    body = {
        "type": f"https://dejaq.dev/errors#{type(error).__name__}",
        "title": type(error).__name__,
        "status": error.http_status,
        "detail": error.told(),
        "number": error.number,
        "retry": error.retry,
        **_fields(error),
    }
    return JSONResponse(body, error.http_status, headers, MEDIA_TYPE)


def framework_problem(error: HTTPException) -> JSONResponse:
    """The answer to a call that the framework's error ended."""
    body = {"type": "about:blank", "title": str(error.detail), "status": error.status_code}
    return JSONResponse(body, error.status_code, error.headers, MEDIA_TYPE)


def _fields(error: DejaQError) -> dict[str, Any]:
    """What travels with the error; an id is a text, as everywhere in JSON."""
    fields = error.fields()
    return fields | {"id": str(fields["id"])} if "id" in fields else fields


def _allowed(app: FastAPI, path: str) -> list[str]:
    """The methods of a path; the framework only knows those of the first route that it tried."""
    methods = {
        method.upper()
        for template, operations in app.openapi()["paths"].items()
        for method in operations
        if _pattern(template).fullmatch(path)
    }
    return sorted(methods)


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    return compile_path(template)[0]


def install(app: FastAPI) -> None:
    """Have every error of the application answered as a problem."""

    @app.exception_handler(DejaQError)
    async def ours(request: Request, error: DejaQError) -> JSONResponse:
        note_error(request.scope, error)
        if isinstance(error, TopicUnknown):
            # The broker's own, also where a topic in shards is asked by way of others.
            broker = request.app.state.service.broker
            error = with_near_name(error, broker.topics, principal_of(request).sees)
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        wrong = BadRequest(field, str(first["msg"]), first.get("input"))
        note_error(request.scope, wrong)
        return problem(wrong)

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 405:
            error.headers = {"Allow": ", ".join(_allowed(app, request.url.path))}
        return framework_problem(error)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        wrong = InternalError(f"{request.method} {request.url.path}: {error!r}")
        wrong.__cause__ = error  # for the log
        return problem(wrong)
