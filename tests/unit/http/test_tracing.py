"""Traces over HTTP: the context of a request is its messages' context, whatever their form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.http.conftest import Api

PATH = "/v1/topics/t/messages"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def headers_of(api: Api) -> list[dict[str, str]]:
    return [message.get("headers") or {} for message in api.lease(max=100)]


@pytest.mark.parametrize(
    "body",
    [
        {"payload": "a"},
        {"payload": "a", "headers": None},
        {"payload": "a", "partition": 0},
        {"payload": "x" * 40_000},
        {"messages": [{"payload": "a"}, {"payload": "b"}]},
    ],
    ids=["one", "none", "placed", "large", "many"],
)
def test_the_context_of_the_request_is_the_messages(api: Api, body: dict[str, Any]) -> None:
    context = {"traceparent": PARENT, "tracestate": "a=b"}
    api.post(PATH, body, status=201, headers=context)
    assert headers_of(api) == [context] * len(body.get("messages", [1]))


def test_lines_have_it_too(api: Api) -> None:
    answer = api.http.post(
        PATH,
        content=json.dumps({"payload": "a"}),
        headers={"Content-Type": "application/x-ndjson", "traceparent": PARENT},
    )
    assert answer.status_code == 201
    assert headers_of(api) == [{"traceparent": PARENT}]


def test_headers_of_a_message_stay(api: Api) -> None:
    body = {"payload": "a", "headers": {"a": "b", "traceparent": "mine"}}
    api.post(PATH, body, status=201, headers={"traceparent": PARENT})
    assert headers_of(api) == [{"a": "b", "traceparent": "mine"}]


@pytest.mark.parametrize(
    "wrong",
    ["", "x", "ff" + PARENT[2:], PARENT.replace("b7ad6b7169203331", "0" * 16), PARENT + "-00"],
)
def test_what_is_no_context_is_passed_over(api: Api, wrong: str) -> None:
    api.post(PATH, {"payload": "a"}, status=201, headers={"traceparent": wrong})
    assert headers_of(api) == [{}]


def test_a_long_state_stays_behind(api: Api) -> None:
    context = {"traceparent": PARENT, "tracestate": "a=" + "b" * 600}
    api.post(PATH, {"payload": "a"}, status=201, headers=context)
    assert headers_of(api) == [{"traceparent": PARENT}]


def test_headers_that_are_none_are_refused_as_ever(api: Api) -> None:
    body = {"payload": "a", "headers": {"a": 1}}
    found = api.post(PATH, body, status=400, headers={"traceparent": PARENT})
    assert found["field"].startswith("headers")
