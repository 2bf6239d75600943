"""Requests of the API without sockets: what they carry, and what comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from dejaqueue.console.api import Api, ApiError

OUTER: dict[str, Any] = {
    "type": "http", "scheme": "http", "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80),
    "headers": [(b"host", b"a:80"), (b"cookie", b"k=v"), (b"origin", b"http://a")],
    "dejaq.certificate": "cn", "http_version": "1.1", "asgi": {}, "path": "/console",
}  # fmt: skip


def asked(status: int, content: bytes, **call: Any) -> tuple[Scope, Any]:
    """What an application was asked, and what came of its answer."""
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = await receive()
        seen.append(dict(scope) | {"body": message["body"]})
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": content})

    answer = asyncio.run(Api(app, OUTER, "dq_1_2").call(**call))
    return seen[0], answer


def test_a_request_has_the_viewers_key_and_nothing_of_a_browser() -> None:
    scope, answer = asked(
        200, b'{"a":1}', method="POST", path="/v1/topics/a%2Fb", body={"x": 1},
        query={"n": None, "l": [1, 2], "b": True},
    )  # fmt: skip
    assert answer == {"a": 1}
    assert dict(scope["headers"]) == {
        b"host": b"a:80", b"content-type": b"application/json", b"content-length": b"7",
        b"authorization": b"Bearer dq_1_2",
    }  # fmt: skip
    assert (scope["path"], scope["raw_path"]) == ("/v1/topics/a/b", b"/v1/topics/a%2Fb")
    assert scope["query_string"] == b"l=1&l=2&b=true"
    assert (scope["dejaq.certificate"], scope["client"]) == ("cn", ("127.0.0.1", 5))


def test_whoever_waits_for_the_caller_to_go_away_hears_it_when_all_is_answered() -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        gone = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        heard.append("waits" if not gone.done() else "went on")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await asyncio.sleep(0)
        heard.append("waits" if not gone.done() else "went on")
        await send({"type": "http.response.body", "body": b""})
        heard.append((await gone)["type"])

    asyncio.run(Api(app, OUTER, None).get("/"))
    assert heard == ["waits", "waits", "http.disconnect"]


def test_an_answer_may_be_empty_or_no_json() -> None:
    assert asked(204, b"", method="GET", path="/")[1] is None
    assert asked(200, b"text", method="GET", path="/")[1] == "text"


@pytest.mark.parametrize(
    ("content", "detail"), [(b'{"detail":"no"}', "no"), (b'{"title":"t"}', "t"), (b"oh", "oh")]
)
def test_an_answer_that_says_no_is_an_error(content: bytes, detail: str) -> None:
    with pytest.raises(ApiError, match=detail) as raised:
        asked(409, content, method="GET", path="/")
    assert raised.value.status == 409
