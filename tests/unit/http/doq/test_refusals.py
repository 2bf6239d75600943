"""Errors as DOQ's clients know them: status, detail and fields of each kind.

Not covered: which call raises what (test_routes.py).
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from dejaqueue.errors import BadRequest, Forbidden, Refused, TopicUnknown, Unavailable
from dejaqueue.http.doq.refusals import FAILURES, VALUE_CHARACTERS_MAX, documented, guarded


def answer_to(error: Exception, route: str = "enqueue") -> dict[str, Any]:
    async def fail(_request: Request) -> Response:
        raise error

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    response = asyncio.run(_answer(guarded(route, fail), Request(scope)))
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = orjson.loads(response.body)
    assert found["status"] == response.status_code
    return found


async def _answer(call: Any, request: Request) -> Response:
    found: Response = await call(request)
    return found


@pytest.mark.parametrize("route", FAILURES)
@pytest.mark.parametrize("error", [Refused("queue is empty"), TopicUnknown("q")])
def test_what_the_state_refuses_has_the_status_of_its_call(route: str, error: Exception) -> None:
    found = answer_to(error, route)
    assert (found["status"], found["detail"]) == FAILURES[route]
    assert found["errors"] == [{"message": str(error)}]


def test_a_wrong_field_is_named_with_its_limit() -> None:
    found = answer_to(BadRequest("priority", "at most 5", 6))
    expected = {"message": "at most 5", "location": "priority", "value": "6"}
    assert (found["status"], found["errors"]) == (422, [expected])


def test_a_wrong_shape_is_422__what_is_no_json_is_400() -> None:
    wrong = {"type": "missing", "loc": ("body", "content"), "msg": "Field required", "input": {}}
    found = answer_to(RequestValidationError([wrong]))
    assert (found["status"], found["errors"][0]["location"]) == (422, "body.content")
    garbled = wrong | {"type": "json_invalid"}
    assert answer_to(RequestValidationError([garbled]))["status"] == 400


def test_a_value_is_shown_in_part__and_as_unicode() -> None:
    found = answer_to(BadRequest("content", "a text", "\ud800" + "x" * 999))
    shown = found["errors"][0]["value"]
    assert len(shown) == VALUE_CHARACTERS_MAX
    assert shown.startswith("?x")


@pytest.mark.parametrize("error", [Unavailable("later"), Forbidden("no")])
def test_other_errors_are_answered_as_everywhere(error: Exception) -> None:
    with pytest.raises(type(error)):
        answer_to(error)


def test_the_document_tells_each_call_s_own_status() -> None:
    told = documented("enqueue")
    assert str(told[409]["description"]).startswith("Failed to enqueue a message")
    assert list(told) == sorted(told, key=int)
    assert 409 not in documented("dequeue")
