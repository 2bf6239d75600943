"""The console as an application: which page is where, and who may come in.

Room: console. ASGI, around the HTTP API: what is not at /console (or at /) goes on to it.
Holds: every request has a session (session.py) before a page sees it; every change has shown its
token; an error of the API is a page that says so.
See: http/app.py, which puts it around the API.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dejaqueue.access.gate import Gate
from dejaqueue.access.pages import Pages
from dejaqueue.console import session as sessions
from dejaqueue.console.api import Api, ApiError
from dejaqueue.console.files import digest, files
from dejaqueue.console.pages import HEADERS, page, redirect
from dejaqueue.console.samples import Samples
from dejaqueue.console.sending import FORM_BYTES_MAX as FILE_FORM_BYTES_MAX
from dejaqueue.console.session import Session
from dejaqueue.console.streams import Streams
from dejaqueue.console.visit import LiveView, View, Visit
from dejaqueue.errors import DejaQError, Forbidden, Unauthenticated

PREFIX = "/console"
ICON_PATH = "/favicon.ico"
"""What browsers ask for beside any page, without a key: that is no attempt to get in."""
FORM_BYTES_MAX = 1 << 20
_PACKED_FROM = 2_048
"""Bytes; a shorter page is sent as it is."""


class Console:
    """The console of a broker, around its API.

    Args:
        app: the API.
        gate: says whose key it is.
        pages: tells requests of other sites' pages, while there are no keys.
        now_ms: the broker's time, UTC milliseconds.
        views: (method, path below /console, function) of each page.
        live_views: (path below /console/live, function) of what changes by itself.
        streams: what goes on after an answer.
        trace_url: where traces are looked at, with {trace_id} in it; "" = nowhere.

    Attributes:
        samples, works, watches: what all pages share.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        pages: Pages,
        now_ms: Callable[[], int],
        views: list[tuple[str, str, View]],
        live_views: list[tuple[str, LiveView]],
        streams: Streams,
        trace_url: str = "",
    ) -> None:
        self._app = app
        self._gate = gate
        self._pages = pages
        self._now_ms = now_ms
        self.samples = Samples(now_ms)
        self.works, self.watches = streams.works, streams.watches
        self._streams = streams
        self._trace_url = trace_url
        own: list[tuple[str, str, View]] = [
            ("GET", "/login", self._show_login),
            ("POST", "/login", self._log_in),
            ("POST", "/logout", self._log_out),
            *(("GET", f"/live{path}", partial(self._live, look)) for path, look in live_views),
        ]
        self._routes = [
            (Route(PREFIX + path, _nothing, methods=[method]), view)
            for method, path, view in [*own, *views]
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for the console, or pass it on."""
        path = scope.get("path", "")
        if scope["type"] == "http" and path == "/" and scope["method"] in ("GET", "HEAD"):
            await redirect(PREFIX)(scope, receive, send)
        elif scope["type"] == "http" and path == ICON_PATH:
            icon = _file({**scope, "path": f"{PREFIX}/files/any/icon.svg"})
            await icon(scope, receive, send)
        elif scope["type"] == "http" and (path == PREFIX or path.startswith(PREFIX + "/")):
            response = await self._answer(scope, receive)
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        if scope["path"].startswith(f"{PREFIX}/files/"):
            return _file(scope)
        try:
            session = sessions.open_session(scope, self._gate, self._pages)
        except DejaQError as error:
            return _refused(error)
        fresh = "" if session.word else sessions.new_word()
        if fresh:
            session = replace(session, word=fresh)
        response = await self._seen(scope, receive, session)
        if fresh:
            word = sessions.cookie("dejaq_console", fresh, session)
            response.headers.append("Set-Cookie", word)
        return _packed(scope, response)

    async def _seen(self, scope: Scope, receive: Receive, session: Session) -> Response:
        """The answer for a viewer whose browser has a word to tell forms by."""
        request = Request(scope, receive)
        visit = Visit(
            request, session, Api(self._app, scope, session.key), self.samples, self.works,
            self.watches, trace_url=self._trace_url,
        )  # fmt: skip
        try:
            if scope["method"] == "POST":
                visit.form = await _form(request, _form_bytes_max(scope, session))
                headers = {name.lower(): value for name, value in request.headers.items()}
                token = headers.get(sessions.TOKEN_HEADER) or visit.form.get("csrf", "")
                sessions.check_change(session, headers, token)
            view = self._view(scope)
            if session.principal is None and view not in (self._show_login, self._log_in):
                return _to_login(request, session)
            return await view(visit)
        except ApiError as error:
            if error.status == 401:
                return _to_login(request, session)
            return visit.page(
                "problem", {"status": error.status, "detail": error.detail}, error.status
            )
        except DejaQError as error:
            status = 403 if isinstance(error, Forbidden) else 400
            return visit.page("problem", {"status": status, "detail": str(error)}, status)

    def _view(self, scope: Scope) -> View:
        """The page of a path; its names are in the scope then. Raises ApiError: there is none."""
        is_there = False
        for route, view in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope["path_params"] = found["path_params"]
                return view
            is_there = is_there or match is Match.PARTIAL
        if is_there:
            raise ApiError(405, "this page is not asked for in this way")
        raise ApiError(404, "there is no such page")

    # --- logging in -----------------------------------------------------------------------------

    async def _show_login(self, visit: Visit) -> Response:
        if visit.session.principal is not None:
            return redirect(_inside(visit.fields.get("to", "")))
        return visit.page("login", {"to": _inside(visit.fields.get("to", "")), "error": ""})

    async def _log_in(self, visit: Visit) -> Response:
        key, to = visit.form.get("key", "").strip(), _inside(visit.form.get("to", ""))
        try:
            sessions.login(self._gate, key, visit.request.scope)
        except Unauthenticated:
            return visit.page(
                "login", {"to": to, "error": "This is no API key of this broker."}, 403
            )
        response = redirect(to)
        response.headers.append("Set-Cookie", sessions.cookie("dejaq_key", key, visit.session))
        return response

    async def _log_out(self, visit: Visit) -> Response:
        response = redirect(f"{PREFIX}/login")
        ended = sessions.cookie("dejaq_key", "", visit.session, ends=True)
        response.headers.append("Set-Cookie", ended)
        return response

    async def _live(self, look: LiveView, visit: Visit) -> Response:
        return self._streams.open(self._gate, visit, partial(look, visit))


async def _nothing(request: Request) -> Response:
    raise AssertionError("the console calls its views itself")


def _form_bytes_max(scope: Scope, session: Session) -> int:
    """How long a form may be: with a file in it longer, but of nobody who has not logged in."""
    has_file = session.principal is not None and scope["path"].endswith("/rows")
    return FILE_FORM_BYTES_MAX if has_file else FORM_BYTES_MAX


async def _form(request: Request, byte_count_max: int) -> dict[str, str]:
    """The fields of a form. Raises ApiError: it is too long, or none."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind not in ("", "application/x-www-form-urlencoded"):
        raise ApiError(415, "a form as application/x-www-form-urlencoded")
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > byte_count_max:
            raise ApiError(413, f"a form of at most {byte_count_max} bytes")
    text = content.decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=200))
    except ValueError:
        raise ApiError(400, "a form of at most 200 fields") from None


def _inside(path: str) -> str:
    """A path of the console, whatever was given."""
    is_inside = path == PREFIX or path.startswith((f"{PREFIX}/", f"{PREFIX}?"))
    return path if is_inside and path.isprintable() and "\\" not in path else PREFIX


def _to_login(request: Request, session: Session) -> Response:
    """To the form; of a link on another site's page, once round, because the browser sends cookies
    only with what a page of this console asks for."""
    headers = request.headers
    if headers.get("hx-request") == "true":
        return Response(status_code=401, headers=HEADERS | {"HX-Refresh": "true"})
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.method == "GET":
        return page("again", session, 0, {"to": _inside(session.path)})
    return redirect(f"{PREFIX}/login?to={quote(_inside(session.path))}")


def _packed(scope: Scope, response: Response) -> Response:
    """The answer with gzip, if that saves something.

    That a page with its token is packed tells nobody the token: a browser sends no cookie with what
    another site's page asks for, so nobody else can have pages made and measure them.
    """
    body = bytes(getattr(response, "body", b""))  # a stream has none
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding")
    if len(body) < _PACKED_FROM or b"gzip" not in accepted:
        return response
    response.body = gzip.compress(body, 1, mtime=0)
    response.headers["Content-Length"] = str(len(response.body))
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    return response


def _refused(error: DejaQError) -> Response:
    status = 403 if isinstance(error, Forbidden) else 503
    return Response(f"{error}\n", status, HEADERS, "text/plain; charset=utf-8")


def _file(scope: Scope) -> Response:
    _, _, name = scope["path"].removeprefix(f"{PREFIX}/files/").partition("/")
    file = files().get(name)
    if file is None or scope["method"] not in ("GET", "HEAD"):
        return Response(status_code=404)
    is_now = f"/files/{digest()}/" in scope["path"]
    headers = {
        "Content-Type": file.kind,
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Vary": "Accept-Encoding",
        "Cache-Control": "public, max-age=31536000, immutable" if is_now else "no-cache",
    }
    accepted = b",".join(v for n, v in scope["headers"] if n == b"accept-encoding")
    if b"gzip" in accepted:
        return Response(file.packed, 200, headers | {"Content-Encoding": "gzip"})
    return Response(file.plain, 200, headers)
