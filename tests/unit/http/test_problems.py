"""Every error is a problem, and a bug tells no stories."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request

from dejaqueue.access.roles import EVERYBODY
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    DuplicateKey,
    TopicUnknown,
    Unauthenticated,
    Unavailable,
)
from dejaqueue.http import problems
from dejaqueue.http.auditing import PRINCIPAL, SHARDED
from dejaqueue.model import Topic


def answer_to(error: Exception) -> httpx.Response:
    app = FastAPI()
    problems.install(app)
    broker = SimpleNamespace(topics=lambda: [Topic("orders")])
    app.state.service = SimpleNamespace(broker=broker)

    @app.get("/")
    async def fail(request: Request, number: int = 0) -> None:
        request.scope.update({PRINCIPAL: EVERYBODY, SHARDED: object()})
        raise error

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/", params={"number": "x"} if error.args == ("x",) else {})

    answer = asyncio.run(ask())
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    return answer


def test_an_error_says_its_fields() -> None:
    found = answer_to(BadRequest("priority", "at most 5", 6)).json()
    assert (found["title"], found["field"], found["value"]) == ("BadRequest", "priority", "6")


def test_an_unknown_topic_is_told_with_a_near_name__of_a_topic_in_shards_too() -> None:
    found = answer_to(TopicUnknown("order")).json()
    assert (found["status"], "did you mean orders?" in found["detail"]) == (404, True)


def test_an_id_is_a_text() -> None:
    assert answer_to(DuplicateKey("k", 1 << 62)).json()["id"] == str(1 << 62)


@pytest.mark.parametrize(
    ("error", "status", "name", "value"),
    [
        (Unavailable("later", 1_500), 503, "retry-after", "2"),
        (Unauthenticated("who"), 401, "www-authenticate", "Bearer"),
    ],
)
def test_headers_say_what_to_do(error: DejaQError, status: int, name: str, value: str) -> None:
    answer = answer_to(error)
    assert (answer.status_code, answer.headers[name]) == (status, value)


def test_the_frameworks_errors_are_problems_too() -> None:
    assert answer_to(HTTPException(413, "too large")).json()["title"] == "too large"
    assert answer_to(ValueError("x")).json()["field"] == "query.number"


def test_a_bug_tells_no_stories(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        answer = answer_to(RuntimeError("secret"))
    assert answer.status_code == 500
    assert "secret" not in answer.text
