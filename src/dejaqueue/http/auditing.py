"""The audit log of the HTTP API: a line for each administrative request, and each refused one.

Room: http. Middleware around the whole application; what is called most passes it untouched.
See: access/audit.py for the lines; access/rules.py for which requests administer.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dejaqueue.access import audit
from dejaqueue.access.rules import HTTP_ROUTES
from dejaqueue.errors import DejaQError, NotAllowed

_FACTS = "dejaq.audit"
_OUTCOME = "dejaq.outcome"
_PRINCIPAL = "dejaq.principal"
_LOOKING = frozenset({"GET", "HEAD"})
_BUSY = frozenset({"messages", "lease", "ack", "nack", "extend", "touch"})
"""How the paths of what is called most end: none of these administers."""
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
    """What the request ended with; a refusal is written down at once."""
    scope = request.scope
    scope[_OUTCOME] = error
    if isinstance(error, NotAllowed):
        who, peer, action, topic = _who_what(scope)
        audit.refused(who, peer, action, topic, error)


class _Audited:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method", "GET") in _LOOKING or scope["path"].rpartition("/")[2] in _BUSY:
            await self._app(scope, receive, send)
            return

        async def write_down(message: Message) -> None:
            if message["type"] == "http.response.start":
                _record(scope, message["status"])
            await send(message)

        await self._app(scope, receive, write_down)


def _record(scope: Scope, status: int) -> None:
    """Before the answer goes out: whoever has it can rely on the line."""
    error = scope.get(_OUTCOME)
    rule = HTTP_ROUTES.get((scope["method"], _path(scope)))
    if rule is None or not rule.audited or isinstance(error, NotAllowed):
        return
    facts: dict[str, Any] = dict(scope.get(_FACTS, {}))
    facts.pop("topic", None)
    outcome = type(error).__name__ if error else "done" if status < 400 else str(status)
    audit.record(*_who_what(scope), outcome, **facts)


def _path(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "")


def _who_what(scope: Scope) -> tuple[str, str, str, str]:
    """Caller, address, action and topic of a request."""
    named = scope.get("path_params", {})
    found = [named[field] for field in _TOPIC_FIELDS if field in named]
    topic = scope.get(_FACTS, {}).get("topic", found[0] if found else "")
    address, port = scope.get("client") or (audit.NOBODY, 0)
    who = scope.get(_PRINCIPAL, audit.NOBODY)
    return who, f"{address}:{port}", f"{scope['method']} {_path(scope)}", str(topic)
