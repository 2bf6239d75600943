"""What a message carries: bytes, texts, and values as JSON.

Not covered: what the clients make of it (tests/integration/test_comfort.py).
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dejaqueue.client.sending.content import NOTHING, content_of, json_in, json_of, payload_of
from dejaqueue.errors import BadRequest


def test_payloads() -> None:
    assert payload_of("é") == "é".encode()
    assert payload_of(bytearray(b"x")) == b"x"
    assert payload_of(memoryview(b"x")) == b"x"
    with pytest.raises(BadRequest, match="payload: bytes or str, got: 'int'"):
        payload_of(7)


def test_json_is_compact_and_utf_8() -> None:
    assert (
        json_of({"a": [1, 2.5, None, True], "é": "ü"}) == '{"a":[1,2.5,null,true],"é":"ü"}'.encode()
    )


def test_exactly_one_is_given() -> None:
    assert content_of(b"x") == b"x"
    assert content_of(None, json=None) == b"null"
    with pytest.raises(BadRequest, match="json: payload or json, not both"):
        content_of(b"", json={})
    with pytest.raises(BadRequest, match="payload: bytes or str"):
        content_of(None, NOTHING)


@pytest.mark.parametrize(
    ("value", "field", "shown"),
    [
        ({"a": [0, {"at": datetime.date(2026, 1, 1)}]}, "json.a[1].at", "got: 'date'"),
        ([1.0, float("nan")], "json[1]", "got: nan"),
        ({"x": "\ud800"}, "json.x", "half surrogates"),
        ({1, 2}, "json", "got: 'set'"),
        ({("a", "b"): 1}, "json", "keys must be"),
    ],
)
def test_what_json_cannot_say_is_named_by_its_place(value: Any, field: str, shown: str) -> None:
    with pytest.raises(BadRequest) as caught:
        json_of(value)
    assert caught.value.field == field
    assert shown in str(caught.value)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadRequest, match="json"):
        json_of(endless)


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadRequest, match="nested too deeply"):
        json_of(deep)
    with pytest.raises(BadRequest, match="message 7"):
        json_in(b"[" * 100_000, 7)


def test_json_is_read_again() -> None:
    value = {"a": [1, 2.5, None, True], "é": "ü"}
    assert json_in(json_of(value), 1) == value


@pytest.mark.parametrize("payload", [b"", b"{", b"NaN", b"\xff", b"\xff\xfe1\x00", b"1 2"])
def test_what_is_no_json_names_the_message(payload: bytes) -> None:
    with pytest.raises(BadRequest, match="payload of message 41: JSON in UTF-8"):
        json_in(payload, 41)
