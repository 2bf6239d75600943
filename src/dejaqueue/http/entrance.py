"""The entrance of the HTTP API: who is let in.

Room: http. Middleware around the whole application.
Holds: once there is a key, nothing but what is public is answered without one, not even that a
path is not there.
See: access/gate.py for who calls; access/rules.py for what is public; auditing.py for the log.
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dejaqueue.access.gate import Gate, bearer_of
from dejaqueue.access.rules import HTTP_ROUTES, PUBLIC
from dejaqueue.errors import DejaQError
from dejaqueue.http.auditing import PRINCIPAL, note_error, record
from dejaqueue.http.problems import problem

_PUBLIC_PATHS = frozenset(path for (_, path), rule in HTTP_ROUTES.items() if rule is PUBLIC)
_LOOKING = frozenset({"GET", "HEAD"})
_BUSY = frozenset({"messages", "lease", "ack", "nack", "extend", "touch"})
"""How the paths of what is called most end: none of these administers."""


def install(app: FastAPI, gate: Gate) -> None:
    """Have requests of an application let in and audited."""
    app.add_middleware(_Entrance, gate=gate)


class _Entrance:
    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PUBLIC_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            scope[PRINCIPAL] = self._gate.principal(_bearer(scope))
        except DejaQError as error:
            note_error(scope, error)
            await problem(error)(scope, receive, send)
            return
        if scope["method"] in _LOOKING or scope["path"].rpartition("/")[2] in _BUSY:
            await self._app(scope, receive, send)
            return

        async def write_down(message: Message) -> None:
            if message["type"] == "http.response.start":
                record(scope, message["status"])
            await send(message)

        await self._app(scope, receive, write_down)


def _bearer(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bearer_of(value.decode("latin-1"))
    return None
