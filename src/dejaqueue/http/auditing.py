"""The audit log of the HTTP API: a line for each administrative request, and each refused one.

Room: http. Middleware around the whole application; what is called most passes it untouched.
See: access/audit.py for the lines; access/rules.py for which requests administer.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from dejaqueue.access import audit
from dejaqueue.access.rules import HTTP_ROUTES
from dejaqueue.errors import DejaQError, NotAllowed

_FACTS = "dejaq.audit"
_OUTCOME = "dejaq.outcome"
_PRINCIPAL = "dejaq.principal"
_TOPIC_FIELDS = ("topic", "queue_name", "dead_letter_topic")


def install(app: FastAPI) -> None:
    """Have requests of an application audited."""
    app.add_middleware(_Audited)


def note(request: Request, **facts: object) -> None:
    """Further facts for the request's line: never a payload, never a secret."""
    request.scope.setdefault(_FACTS, {}).update(facts)


def note_caller(request: Request, name: str) -> None:
    """Who the request is from."""
    request.scope[_PRINCIPAL] = name


def note_error(request: Request, error: DejaQError) -> None:
    """What the request ended with."""
    request.scope[_OUTCOME] = error


class _Audited:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
        error = scope.get(_OUTCOME)
        if error is None and scope.get("method") in (None, "GET", "HEAD"):
            return  # whoever looks changes nothing
        path = getattr(scope.get("route"), "path", "")
        rule = HTTP_ROUTES.get((scope["method"], path))
        if (rule is not None and rule.audited) or isinstance(error, NotAllowed):
            _record(scope, path, error)


def _record(scope: Scope, path: str, error: DejaQError | None) -> None:
    facts: dict[str, Any] = dict(scope.get(_FACTS, {}))
    named = scope.get("path_params", {})
    found = [named[field] for field in _TOPIC_FIELDS if field in named]
    topic = str(facts.pop("topic", found[0] if found else ""))
    peer = scope.get("client") or ("unknown", 0)
    audit.record(
        scope.get(_PRINCIPAL, audit.NOBODY),
        f"{peer[0]}:{peer[1]}",
        f"{scope['method']} {path}",
        topic,
        "done" if error is None else type(error).__name__,
        **facts,
    )
