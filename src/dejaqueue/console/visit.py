"""A visit: one request for a page, with all that its view needs.

Room: console.
See: console.py, which makes one for each request; the views, one module for each group of pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from dejaqueue.console.api import Api, ApiError
from dejaqueue.console.pages import page
from dejaqueue.console.samples import Samples
from dejaqueue.console.session import Session
from dejaqueue.console.works import Works


@dataclass(slots=True)
class Visit:
    """One request for a page.

    Attributes:
        api: the API, with the viewer's key.
        samples, works: what all pages share.
        form: fields of a form that was sent; the last of each name.
    """

    request: Request
    session: Session
    api: Api
    samples: Samples
    works: Works
    form: dict[str, str] = field(default_factory=dict)

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
