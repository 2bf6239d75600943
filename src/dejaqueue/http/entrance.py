"""The entrance of the HTTP API: who is let in.

Room: http. Middleware around the whole application.
Holds: once there is a key, nothing but what is public is answered without one, not even that a
path is not there; while there is none, pages that a browser shows cannot call a broker either.
See: access/gate.py for who calls; access/rules.py for what is public; auditing.py for the log.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dejaqueue.access.administration import is_near
from dejaqueue.access.gate import Gate, bearer_of
from dejaqueue.access.roles import EVERYBODY
from dejaqueue.access.rules import HTTP_ROUTES, PUBLIC
from dejaqueue.errors import DejaQError, Forbidden
from dejaqueue.http.auditing import BEARER, CERTIFICATE, PRINCIPAL, note_error, record
from dejaqueue.http.forwarding import FORWARDED
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
            bearer, host, origin = _headers(scope)
            certificate = scope.get(CERTIFICATE, "")
            if certificate and _is_passed_on(scope):
                certificate = ""  # it is another broker's, and says nothing of the caller
            scope[PRINCIPAL] = self._gate.principal(bearer, certificate)
            scope[BEARER] = bearer
            if scope[PRINCIPAL] is EVERYBODY or bearer is None:  # a browser has certificates, too
                _check_page(scope, host, origin)
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


def _is_passed_on(scope: Scope) -> bool:
    return any(name == FORWARDED for name, _ in scope["headers"])


def _headers(scope: Scope) -> tuple[str | None, str, str]:
    """API key, host and origin of a request; origin "" = no page of a browser asks."""
    bearer, host, origin = None, "", ""
    for name, value in scope["headers"]:
        if name == b"authorization":
            bearer = bearer_of(value.decode("latin-1"))
        elif name == b"host":
            host = value.decode("latin-1")
        elif name == b"origin":
            origin = value.decode("latin-1")
    return bearer, host, origin


def _check_page(scope: Scope, host: str, origin: str) -> None:
    """Raise Forbidden for what a page of some web site has a browser on this machine ask.

    While there are no keys, nothing else would stop it. A page of another origin says so in a
    header; one that has had its own name resolved to this machine's address is known by that name.
    """
    if origin and origin.partition("://")[2] != host:
        raise Forbidden(f"while there is no API key, pages of {origin[:100]} may not call this")
    client = scope.get("client")
    if client is not None and _is_outside(host) and is_near(client[0]):
        raise Forbidden(
            f"while there is no API key, this machine is not called {host[:100]} by its programs"
        )


@lru_cache(maxsize=256)
def _is_outside(host: str) -> bool:
    """True for a name that the network gives, as `queue.example:80`; False for an address."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if "." not in name or name.endswith(".localhost"):
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False
