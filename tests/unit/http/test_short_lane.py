"""Connections with a short lane: what it is asked for, what it says, what goes the ordinary way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from dejaqueue.http.bounds import Bounds
from dejaqueue.http.protocol import Connections, bounded
from dejaqueue.http.short_lane import Answering, ShortLaneProtocol
from tests.patience import until


class Echo:
    """Takes POSTs of /short; says no to the body `no`, and gives up on `later`."""

    kind = b"text/plain"

    def is_for(self, scope: Any) -> bool:
        return bool(scope["path"] == "/short")

    def begin(self, scope: Any, body: bytes, receive: Any) -> Answering | None:
        return None if body == b"no" else self._answer(body, receive)

    async def _answer(self, body: bytes, receive: Any) -> bytes | None:
        if body == b"later":
            assert (await receive())["body"] == body
            return None
        return b"short: " + body


async def ordinary(scope: Any, receive: Any, send: Any) -> None:
    """Says what came."""
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"long: " + body[:10]})


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    kind = bounded(Connections(Bounds()), ShortLaneProtocol, short_lane=Echo())
    config = uvicorn.Config(
        ordinary, port=0, http=kind, ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, "the server listens")
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield client
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/short", b"a", b"short: a"),
        ("/long", b"a", b"long: a"),
        ("/short", b"", b"long: "),
        ("/short", b"no", b"long: no"),
        ("/short", b"later", b"long: later"),
        ("/short", b"x" * 65_536, b"short: " + b"x" * 65_536),
        ("/short", b"x" * 65_537, b"long: xxxxxxxxxx"),
    ],
)
def test_what_is_small_and_whole_is_asked_of_the_short_lane(
    http: httpx.Client, path: str, body: bytes, told: bytes
) -> None:
    for _ in range(2):
        assert http.post(path, content=body).content == told


def test_a_body_of_unknown_length_goes_the_ordinary_way(http: httpx.Client) -> None:
    assert http.post("/short", content=iter([b"a", b"b"])).content == b"long: ab"


def test_an_answer_has_a_head_as_any_other(http: httpx.Client) -> None:
    short, long = http.post("/short", content=b"a"), http.post("/long", content=b"a")
    assert short.headers["content-type"] == "text/plain"
    assert set(long.headers) - set(short.headers) <= {"transfer-encoding"}
    closed = http.post("/short", content=b"a", headers={"connection": "close"})
    assert (closed.content, closed.headers["connection"]) == (b"short: a", "close")
