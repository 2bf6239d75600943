"""The entrance of the HTTP API: finds out who calls, and lets in or refuses.

Room: http. Middleware around the whole application.
Holds: once there is a key, nothing but what is public is answered without one, not even that a
path is not there; without a key, pages that a browser shows cannot call a broker either.
See: access/gate.py for who calls; access/pages.py for pages; access/routes.py for what is public;
auditing.py for the log.
"""

from __future__ import annotations

from collections.abc import Awaitable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dejaqueue.access.gate import Gate, only_bearer_of
from dejaqueue.access.pages import Pages
from dejaqueue.access.roles import EVERYBODY, Principal
from dejaqueue.access.routes import RULES
from dejaqueue.access.rules import PUBLIC
from dejaqueue.errors import DejaQError
from dejaqueue.http.auditing import BEARER, CERTIFICATE, PRINCIPAL, SIGNED, note_error, record
from dejaqueue.http.forwarding import FORWARDED
from dejaqueue.http.heads import takes_messages
from dejaqueue.http.page_check import PageCheck, what_asks
from dejaqueue.http.problems import framework_problem, problem
from dejaqueue.http.sqs import door
from dejaqueue.http.sqs.refusals import refusal

_PUBLIC_PATHS = frozenset(path for (_, path), rule in RULES.items() if rule is PUBLIC)
_LOOKING = frozenset({"GET", "HEAD"})
_BUSY = frozenset({"messages", "lease", "ack", "nack", "extend", "touch"})
"""How the paths of what is called most end: none of these administers."""


def install(app: FastAPI, gate: Gate, known: Pages, *, with_sqs: bool = False) -> None:
    """Have requests of an application let in and audited.

    Args:
        with_sqs: requests to SQS's path may be signed.
    """
    app.add_middleware(_Entrance, gate=gate, known=known, with_sqs=with_sqs)


class _Entrance:
    def __init__(self, app: ASGIApp, gate: Gate, known: Pages, *, with_sqs: bool = False) -> None:
        self._app = app
        self._with_sqs = with_sqs
        self._gate = gate
        self._pages = PageCheck(known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PUBLIC_PATHS:
            await self._app(scope, receive, send)
            return
        takes = _takes(scope)
        is_sqs = self._with_sqs and door.is_ours(scope)
        try:
            authorizations, headers = what_asks(scope)
            signed = None
            if is_sqs:
                signed = await door.signer(scope, receive, self._gate, authorizations)
            if signed is not None:
                scope[BEARER] = bearer = None
                scope[SIGNED] = True
                scope[PRINCIPAL] = caller = signed[0]
                receive = signed[1]
            else:
                scope[BEARER] = bearer = only_bearer_of(authorizations)
                scope[PRINCIPAL] = caller = self._bearer(scope, bearer)
            # No page has a key that was not given to it. While there are none, whatever is sent as
            # one says nothing: a page that has had its name rebound can send what it likes.
            is_known = bearer is not None or signed is not None
            if not is_known or caller is EVERYBODY:  # a browser may show certificates, too
                self._pages.check(headers, is_secure=scope["scheme"] == "https", takes=takes)
        except DejaQError as error:
            note_error(scope, error)
            answer = refusal(error) if is_sqs else problem(error)
            await answer(scope, receive, send)
            return
        except HTTPException as error:
            await framework_problem(error)(scope, receive, send)
            return
        is_busy = scope["method"] in _LOOKING or scope["path"].rpartition("/")[2] in _BUSY
        if is_busy and not takes:
            await self._app(scope, receive, send)
            return

        def write_down(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                record(scope, message["status"])
            return send(message)

        await self._app(scope, receive, write_down)

    def _bearer(self, scope: Scope, bearer: str | None) -> Principal:
        """Who has this key, or shows a certificate. Raises Unauthenticated, Unavailable."""
        certificate = scope.get(CERTIFICATE, "")
        if certificate and _is_passed_on(scope):
            certificate = ""  # it is another broker's, and says nothing of the caller
        return self._gate.principal(bearer, certificate)


def _is_passed_on(scope: Scope) -> bool:
    return any(name == FORWARDED for name, _ in scope["headers"])


def _takes(scope: Scope) -> bool:
    """True for DOQ's GET of a message, which takes it, and for a stream of events."""
    path: str = scope["path"]
    is_get = scope["method"] == "GET" and path.endswith(("/messages", "/events"))
    return is_get and takes_messages(path)
