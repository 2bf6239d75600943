"""Bodies within bounds, JSON or a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import HTTPException, Request

from dejaqueue.errors import BadRequest
from dejaqueue.http import bodies


def request_of(*chunks: bytes, **headers: str) -> Request:
    """A request whose body comes in these chunks; without any the client goes away."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": chunk, "more_body": place + 1 < len(chunks)}
        for place, chunk in enumerate(chunks)
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": named}, receive)


def test_chunks_are_joined() -> None:
    assert asyncio.run(bodies.read_body(request_of(b"a", b"", b"bc"))) == b"abc"
    assert asyncio.run(bodies.read_body(request_of(b""))) == b""


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (request_of(b"abc", b"def"), 413),
        (request_of(b"", content_length="10000000"), 413),
        (request_of(), 400),
    ],
)
def test_a_body_that_is_too_large_or_never_comes(request_: Request, status: int) -> None:
    with pytest.raises(HTTPException) as refused:
        asyncio.run(bodies.read_body(request_, 5))
    assert refused.value.status_code == status


def test_kinds_are_read_from_headers() -> None:
    request = request_of(
        content_type="Application/X-NDJSON; charset=utf-8", accept="text/html, application/x-ndjson"
    )
    assert bodies.content_kind(request) == bodies.NDJSON
    assert bodies.wanted_kind(request, bodies.JSON, bodies.NDJSON) == bodies.NDJSON
    assert bodies.wanted_kind(request, bodies.JSON) == bodies.JSON
    assert bodies.content_kind(request_of()) == bodies.JSON
    with pytest.raises(HTTPException, match="415"):
        bodies.check_kind(request, bodies.JSON)


def test_objects_have_known_fields() -> None:
    assert bodies.parse_object(b"", frozenset("a")) == {}
    assert bodies.parse_object(b'{"a":1}', frozenset("a")) == {"a": 1}
    for content, field in ((b"[]", "body"), (b"{", "body"), (b'{"b":1}', "b")):
        with pytest.raises(BadRequest) as refused:
            bodies.parse_object(content, frozenset("a"))
        assert refused.value.field == field


def test_numbers_and_truths_are_checked() -> None:
    values = {"n": 5, "none": None, "yes": True, "wrong": "1"}
    assert bodies.whole(values, "n", 1, 0, 5) == 5
    assert bodies.whole(values, "none", 1, 0, 5) == 1
    assert bodies.yes_or_no(values, "yes")
    assert not bodies.yes_or_no(values, "none")
    for name, high in (("n", 4), ("yes", 5), ("wrong", 5)):
        with pytest.raises(BadRequest, match=name):
            bodies.whole(values, name, 1, 0, high)
    with pytest.raises(BadRequest, match="true or false"):
        bodies.yes_or_no(values, "n")


def test_a_body_that_is_no_object_is_refused() -> None:
    assert asyncio.run(bodies.json_object(request_of(b""))) == {}
    with pytest.raises(BadRequest, match="a JSON object"):
        asyncio.run(bodies.json_object(request_of(b"3")))
