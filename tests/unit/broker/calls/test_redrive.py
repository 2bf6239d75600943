"""What can be asked of a redrive (rule 15). Not covered: what it does (tests/rules)."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.access.calls import ACTIONS
from dejaqueue.broker.calls.redrive import PAGE_ROWS, Choice, parse
from dejaqueue.errors import BadRequest


def test_what_is_left_out_has_a_default() -> None:
    assert parse({"topic": "t.dead"}) == Choice("t.dead", None, False, None, None, PAGE_ROWS)
    whole = {"topic": "t.dead", "to": "t", "drop": False, "reason": "r", "group": "", "limit": 5}
    assert parse(whole) == Choice("t.dead", "t", False, "r", "", 5)
    assert parse({"topic": "t", "limit": 1 << 40, "drop": True}).limit == PAGE_ROWS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic", None),
        ("topic", "a/b"),
        ("topic", 5),
        ("to", 5),
        ("to", ""),
        ("to", "t.dead"),
        ("drop", "yes"),
        ("drop", 1),
        ("reason", 5),
        ("group", ["a"]),
        ("limit", -1),
        ("limit", 1.5),
        ("limit", True),
        ("colour", "red"),
    ],
)
def test_a_bad_field_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        body = {"topic": "t.dead", field: value}
        ACTIONS["redrive"].check(body)
        parse(body)
    assert caught.value.field in (field, "topic.name")


def test_letters_cannot_be_sent_and_thrown_away() -> None:
    with pytest.raises(BadRequest, match=r"^drop: "):
        parse({"topic": "t.dead", "to": "t", "drop": True})
