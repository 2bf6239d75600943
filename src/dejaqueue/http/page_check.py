"""What tells whether a page asks, and who says to be who: looked at once for each kind of caller.

Room: http. On the event loop.
Holds: what was let in once is remembered by all that was looked at; what was refused is not.
See: access/pages.py for what is refused; entrance.py and sqs/short_lane.py, which ask.
"""

from __future__ import annotations

from starlette.types import Scope

from dejaqueue.access import pages
from dejaqueue.access.pages import Pages
from dejaqueue.errors import BadRequest

_PAGE_HEADERS = frozenset(name.encode() for name in pages.HEADERS)
_Asked = tuple[bool, bool, tuple[tuple[bytes, bytes], ...]]
_LET_IN_MAX, _LET_IN_BYTES_MAX = 256, 1_000
"""Kinds of callers that are remembered: a program sends the same headers with each request, and to
look at them again would take a tenth of the time of the smallest request."""


class PageCheck:
    """Keeps out what browsers send for pages of other origins, and remembers who is let in."""

    def __init__(self, known: Pages) -> None:
        self._pages = known
        self._let_in: set[_Asked] = set()

    def check(self, headers: dict[bytes, bytes], *, is_secure: bool, takes: bool) -> None:
        """Raise Forbidden for what a browser sends for a page of another origin."""
        asked = is_secure, takes, tuple(headers.items())
        if asked in self._let_in:
            return
        texts = {name.decode(): value.decode("latin-1") for name, value in headers.items()}
        self._pages.check(texts, is_secure=is_secure, takes=takes)
        if (
            sum(map(len, headers.values())) <= _LET_IN_BYTES_MAX
        ):  # tidy: allow name, because it is a dict's
            if len(self._let_in) >= _LET_IN_MAX:
                self._let_in.clear()
            self._let_in.add(asked)


def what_asks(scope: Scope) -> tuple[list[str], dict[bytes, bytes]]:
    """Authorization headers of a request, and what tells whether a page asks.

    Raises:
        BadRequest: there are two hosts: what is before this may have gone by the other one.
    """
    authorizations: list[str] = []
    by_name: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _PAGE_HEADERS:
            if name == b"host" and name in by_name:
                raise BadRequest("host", "one header", "two")
            by_name[name] = value
        elif name == b"authorization":
            authorizations.append(value.decode("latin-1"))
    return authorizations, by_name
