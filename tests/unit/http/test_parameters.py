"""Parameters and pages."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.errors import BadRequest
from dejaqueue.http import parameters

VALUES = st.recursive(
    st.none() | st.integers(-(1 << 62), 1 << 62) | st.text(),
    lambda inner: st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(VALUES)
def test_cursors_come_back(following: Any) -> None:
    text = parameters.to_cursor(following)
    assert parameters.from_cursor(text) == following
    assert text is None or text.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("text", ["", "?", "é", "abc", 5, [], "====", "a" * 1_001])
def test_what_is_no_cursor_is_refused(text: object) -> None:
    with pytest.raises(BadRequest, match="after"):
        parameters.from_cursor(text)


def test_instants_are_numbers_or_texts() -> None:
    assert parameters.instant_ms("1000", "due") == parameters.instant_ms(1_000, "due") == 1_000
    assert parameters.instant_ms("1970-01-01T00:00:01Z", "due") == 1_000
    assert parameters.instant_ms(None, "due") is None
    refused: list[Any] = ["", "x", "٣x", [], True, 1.5, "9" * 30]
    for wrong in refused:
        with pytest.raises(BadRequest, match="due"):
            parameters.instant_ms(wrong, "due")


def test_unknown_parameters_are_named() -> None:
    request = Request({"type": "http", "query_string": b"a=1&b=2", "headers": []})
    parameters.check_names(request, "a", "b")
    with pytest.raises(BadRequest, match="b"):
        parameters.check_names(request, "a")


def test_what_is_none_is_left_out() -> None:
    assert parameters.given(a=None, b=0, c="") == {"b": 0, "c": ""}
