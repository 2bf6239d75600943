"""Pages: templates filled for a viewer, and the headers under which a browser shows them.

Room: console. Jinja2, which escapes every value.
Holds: no page has a script or a style of its own in it, and the policy forbids both, so a message
cannot bring one; nothing is loaded from elsewhere; no page is kept by a cache or framed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, RedirectResponse, Response

from dejaqueue.console import words
from dejaqueue.console.files import address
from dejaqueue.console.session import Session
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: a browser would then leave out the origin of a form.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def environment() -> Environment:
    """Templates, with the words of words.py as filters."""
    # Here: it takes 30 ms to load, and a broker starts without anybody who looks at the console.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("dejaqueue.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("count", "rate", "size", "absolute", "iso", "sparkline", "late"):
        made.filters[name] = getattr(words, name)
    made.filters["length_ms"] = words.length
    made.globals["address"] = address
    made.globals["version"] = __version__
    return made


def fill(name: str, now_ms: int, values: dict[str, Any]) -> str:
    """A filled template, as text.

    Args:
        name: of the template, without its ending.
    """

    def when(instant_ms: int) -> str:
        return words.relative(instant_ms, now_ms)

    return environment().get_template(f"{name}.html").render(now_ms=now_ms, when=when, **values)


def page(
    name: str, session: Session, now_ms: int, values: dict[str, Any], status: int = 200
) -> Response:
    """A filled template.

    Args:
        name: of the template, without its ending.
    """
    text = fill(name, now_ms, {"session": session, **values})
    return HTMLResponse(text, status, headers=HEADERS)


def redirect(path: str) -> Response:
    """Have the browser ask for another page of the console."""
    return RedirectResponse(path, 303, headers=HEADERS)
