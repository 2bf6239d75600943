"""Fields of one message: taken as they are, or refused by name; nothing is cut or dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dejaqueue.client.sending.fields import CHECKS
from dejaqueue.errors import BadRequest


@pytest.mark.parametrize(
    ("field", "value", "taken"),
    [
        ("key", None, None),
        ("key", "ä", "ä"),
        ("group", None, ""),
        ("group", "", ""),
        ("priority", None, 32_768),
        ("priority", np.uint16(65_535), 65_535),
        ("tags", (), None),
        ("tags", ("a", "b"), ["a", "b"]),
        ("tags", {"a"}, ["a"]),
        ("headers", {}, None),
        ("headers", {"a": "b"}, [("a", "b")]),
        ("headers", [("a", "b")], [("a", "b")]),
    ],
)
def test_what_is_right_is_taken(field: str, value: Any, taken: Any) -> None:
    assert CHECKS[field](field, value) == taken


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("key", "", "key: from 1 to 256 bytes, or None for no key, got: ''"),
        ("key", 5, "key: a text, got: 5"),
        ("key", "\ud800", "key: a text without half surrogates"),
        ("group", b"g", "group: a text, got: b'g'"),
        ("priority", 1.5, "priority: a whole number from 0 to 65535, got: 1.5"),
        ("priority", True, "priority: a whole number from 0 to 65535, got: True"),
        ("priority", 65_536, "priority: a whole number from 0 to 65535, got: 65536"),
        ("priority", -1, "priority: a whole number from 0 to 65535, got: -1"),
        ("tags", "red", "tags: several texts, got: 'red'"),
        ("tags", ["a", 1], "tags[1]: a text, got: 1"),
        ("headers", {"a": 1}, "headers['a']: a text, got: 1"),
        ("headers", {1: "a"}, "name in headers: a text, got: 1"),
        ("headers", ["ab"], "headers: texts by name, got: 'ab'"),
        ("headers", 5, "headers: texts by name, got: 5"),
    ],
)
def test_what_is_wrong_names_field_limit_and_value(field: str, value: Any, text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        CHECKS[field](field, value)
    assert str(refused.value).startswith(text)
