"""The page for people: every call of the API, with a form to try it.

Room: http. Served at /docs. One file (page.html) that loads nothing from elsewhere, so that it
works in a network without a way out.
"""

from __future__ import annotations

from importlib import resources

from fastapi.responses import HTMLResponse

_PAGE = resources.files("dejaqueue.http").joinpath("page.html").read_text(encoding="utf-8")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def docs() -> HTMLResponse:
    """The page."""
    return HTMLResponse(_PAGE, headers=_HEADERS)
