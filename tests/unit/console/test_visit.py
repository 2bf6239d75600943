"""A visit: the fields of its form and address."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from dejaqueue.console.api import Api, ApiError
from dejaqueue.console.samples import Samples
from dejaqueue.console.session import Session
from dejaqueue.console.visit import Visit
from dejaqueue.console.watches import Watches
from dejaqueue.console.works import Works


async def _app(*_: object) -> None: ...


def test_fields_are_whole_numbers_or_refused() -> None:
    scope = {
        "type": "http", "query_string": b"n=5&e=&x=a", "headers": [(b"hx-request", b"true")],
        "client": ("127.0.0.1", 9),
    }  # fmt: skip
    session = Session(None, "", None, "", False, "/console")
    api, samples = Api(_app, scope, None), Samples(lambda: 7)
    visit = Visit(Request(scope), session, api, samples, Works(), Watches(lambda: 7))
    visit.form = {"f": "8", "n": ""}
    assert (visit.whole("n"), visit.whole("f"), visit.whole("e", 3), visit.now_ms) == (5, 8, 3, 7)
    assert (visit.is_part, visit.peer, visit.fields) == (True, "127.0.0.1:9", {"n": "5", "x": "a"})
    for name in ("x", "none"):
        with pytest.raises(ApiError, match="a whole number"):
            visit.whole(name)
