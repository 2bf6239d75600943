"""Fields of what a message says: what was not touched comes back to the byte."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.console.api import ApiError
from dejaqueue.console.message_fields import TEXT_CHARS_MAX, content_of, payload_bytes, shown

MESSAGES: list[dict[str, Any]] = [
    {"payload": "\n first line is empty\r\nand ends\rdiffer \n"},
    {"payload": "a\x00b\x1b[0m"},
    {"payload": "x" * (TEXT_CHARS_MAX + 1)},
    {"payload_base64": "/wAB"},
    {"payload_base64": "AAAA" * TEXT_CHARS_MAX},
    {"payload": "", "tags": ["a, b", "c"], "headers": {"a:b": " two\nlines "}, "priority": 7},
    {"key": " k ", "group": "g\r\n"},
]


def _as_a_browser_sends(texts: dict[str, str]) -> dict[str, str]:
    return {
        name: text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
        for name, text in texts.items()
    }


@pytest.mark.parametrize("content", MESSAGES)
def test_what_was_not_touched_is_as_it_was(content: dict[str, Any]) -> None:
    assert content_of(_as_a_browser_sends(shown(content)), content) == content


def test_what_was_touched_is_what_was_typed() -> None:
    before = {"payload_base64": "/wAB", "tags": ["a"], "headers": {"h": "1"}, "priority": 9}
    form = shown(before) | {"payload_base64": "", "payload": "new\r\nline", "tags": "b,\r\nc"}
    form |= {"headers": "h: 2\r\ni: 3\r\n", "priority": ""}
    wanted = {"payload": "new\nline", "tags": ["b", "c"], "headers": {"h": "2", "i": "3"}}
    assert content_of(form, before) == wanted
    assert content_of({"payload_base64": "/w ==\r\n"}, {}) == {"payload_base64": "/w=="}
    assert content_of(shown(before) | {"payload_base64": ""}, before)["payload"] == ""


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ApiError, match="not both"):
        content_of({"payload": "a", "payload_base64": "/w=="}, {})
    with pytest.raises(ApiError, match="whole number"):
        content_of({"priority": "high"}, {})


def test_how_long_a_payload_is() -> None:
    assert payload_bytes({"payload": "é"}) == 2
    assert payload_bytes({"payload_base64": "/wAB"}) == 3
    assert payload_bytes({"key": "hidden"}) is None
