"""A visit: one request for a page, with all that its view needs.

Room: console.
See: console.py, which makes one for each request; the views, one module for each group of pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from dejaqueue.console.api import Api, ApiError
from dejaqueue.console.pages import page
from dejaqueue.console.samples import Samples
from dejaqueue.console.session import Session
from dejaqueue.console.watches import Live, Watch, Watches
from dejaqueue.console.works import Works


@dataclass(slots=True)
class Visit:
    """One request for a page.

    Attributes:
        api: the API, with the viewer's key.
        samples, works, watches: what all pages share.
        form: fields of a form that was sent; the last of each name.
        trace_url: where traces are looked at, with {trace_id} in it; "" = nowhere.
    """

    request: Request
    session: Session
    api: Api
    samples: Samples
    works: Works
    watches: Watches
    form: dict[str, str] = field(default_factory=dict)
    trace_url: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """The parameters of the address that are not empty."""
        return {name: value for name, value in self.request.query_params.items() if value}

    def name(self, part: str) -> str:
        """What stands in the path for this."""
        return str(self.request.path_params[part])

    @property
    def now_ms(self) -> int:
        """The broker's time, UTC milliseconds."""
        return self.samples.now_ms()

    @property
    def is_part(self) -> bool:
        """True if a page asks for a part of itself."""
        return self.request.headers.get("hx-request") == "true"

    @property
    def peer(self) -> str:
        """Address and port of the viewer, as the audit log has it."""
        address, port = self.request.scope.get("client") or ("unknown", 0)
        return f"{address}:{port}"

    @property
    def shown(self) -> str:
        """What the page shows, of its address: the same in that of its stream of news."""
        path = str(self.request.scope["path"]).removeprefix("/console").removeprefix("/live")
        query = {name: self.fields[name] for name in ("q",) if name in self.fields}
        return path + (f"?{urlencode(query)}" if query else "")

    @property
    def watch(self) -> Watch:
        """Of this page, for whoever has this key, address and certificate."""
        scope = self.request.scope
        address = (scope.get("client") or ("", 0))[0]
        certificate = str(scope.get("dejaq.certificate", ""))
        return self.watches.of((self.session.key or "", address, certificate, self.shown))

    def live_page(self, template: str, live: Live, values: dict[str, Any]) -> Response:
        """A page with parts that change by themselves; for a page that is open, these alone."""
        watch = self.watch
        watch.take(live.parts, self.now_ms)
        values = (
            values
            | live.frame
            | {
                "parts": watch.texts,
                "seen": f"{watch.name}.{watch.version}",
                "stream": f"/console/live{self.shown}",
            }
        )
        return self.page(f"{template}_part" if self.is_part else template, values)

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number of the form or the address. Raises ApiError: it is none."""
        text = self.form.get(name) or self.fields.get(name) or ""
        if not text and default is not None:
            return default
        try:
            return int(text)
        except ValueError:
            raise ApiError(400, f"{name}: a whole number, got: {text[:100]}") from None

    def page(self, template: str, values: dict[str, Any], status: int = 200) -> Response:
        """A filled template."""
        return page(template, self.session, self.now_ms, values, status)


View: TypeAlias = Callable[[Visit], Awaitable[Response]]
"""Answers a visit. Raises ApiError."""

LiveView: TypeAlias = Callable[[Visit], Awaitable[Live]]
"""What a page shows now, of that which changes by itself. Raises ApiError."""
