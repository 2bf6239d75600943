"""HEAD is GET without a body, but for paths where GET takes something."""

from __future__ import annotations

from httpx import Client

from tests.unit.http.doq.conftest import broker, clock, http
from tests.unit.http.doq.test_routes import make, put, take

__all__ = ["broker", "clock", "http"]


def test_head_says_what_get_would(http: Client) -> None:
    for path in ("/livez", "/stats", "/openapi.json", "/nothing"):
        url = str(http.base_url).removesuffix("/API/v1/") + path
        got, head = http.get(url), http.head(url)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-type"] == got.headers["content-type"]


def test_head_takes_no_message(http: Client) -> None:
    make(http)
    put(http, "a")
    assert http.head("/queues/q/messages").status_code == 405
    assert take(http)["content"] == "a"
