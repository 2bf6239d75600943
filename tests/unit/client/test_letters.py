"""Requests about dead letters: paged, counted, and checked before they are sent.

Not covered: what the broker answers (tests/rules/test_rule_18_dead_letters.py).
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client import letters
from dejaqueue.client.browsing import NEXT
from dejaqueue.client.results import Redriven
from dejaqueue.errors import BadRequest
from dejaqueue.schema.messages import PEEK


class Caller:
    """Gives the answers of a test, and notes what was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def _answer(self, body: dict[str, Any]) -> Future[Any]:
        self.asked.append(body)
        future: Future[Any] = Future()
        future.set_result(self.answers.pop(0))
        return future

    def action(self, name: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert name == "redrive"
        return self._answer(body)

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        return self._answer(ticket)


def page(reasons: list[str | None], following: dict[str, int] | None = None) -> pa.Table:
    """Letters that died of these."""
    rows = [
        {
            "id": number,
            "due": 0,
            "attempts": 0,
            "priority": 0,
            "headers": None if reason is None else [("dejaq-dead-reason", reason)],
            "payload": (reason or "").encode(),
            "state": "scheduled",
        }
        for number, reason in enumerate(reasons)
    ]
    table = pa.Table.from_pylist(rows, PEEK)
    return table.replace_schema_metadata({NEXT: json.dumps(following)} if following else None)


def answer(moved: int, left: int = 0, following: object = None) -> dict[str, Any]:
    return {"moved": moved, "left": left, "next": following}


def test_letters_are_looked_for_until_there_are_enough() -> None:
    caller = Caller(page(["a", "b", None], {"id": 7}), page(["b", "b"], {"id": 9}))
    choice = letters.check_choice("t.dead", "b", "g")
    found = letters.find(caller, choice, 3)
    assert found["payload"].to_pylist() == [b"b"] * 3
    assert [(asked["after"], asked["limit"], asked["group"]) for asked in caller.asked] == [
        (None, 3, "g"),
        ({"id": 7}, 2, "g"),
    ]


def test_a_search_ends_with_the_last_page() -> None:
    caller = Caller(page([], {"id": 7}), page(["a"]))
    assert letters.find(caller, letters.check_choice("t", None, None), 5).num_rows == 1
    assert letters.find(caller, letters.check_choice("t", None, None), 0).num_rows == 0


def test_a_move_goes_on_to_the_last_page__or_the_count() -> None:
    choice = letters.check_choice("t.dead", None, None)
    caller = Caller(answer(2, 1, {"id": 5}), answer(3))
    assert letters.move(caller, choice, None, None) == Redriven(5, 1)
    assert [asked["after"] for asked in caller.asked] == [None, {"id": 5}]
    caller = Caller(answer(2, 0, {"id": 5}), answer(1, 0, {"id": 6}))
    assert letters.move(caller, choice, None, 3) == Redriven(3, 0)
    assert [asked["limit"] for asked in caller.asked] == [3, 1]


def test_many_ids_take_several_calls() -> None:
    caller = Caller(answer(2_000), answer(1))
    choice = letters.check_choice("t.dead", None, None)
    assert letters.move(caller, choice, list(range(2_001)), None) == Redriven(2_001, 0)
    assert [len(asked["ids"]) for asked in caller.asked] == [2_000, 1]
    assert letters.move(caller, choice, [], None) == Redriven(0, 0)


@pytest.mark.parametrize(
    ("topic", "reason", "group"), [("a/b", None, None), ("t", 5, None), ("t", None, b"g")]
)
def test_a_choice_that_cannot_be_is_refused(topic: str, reason: Any, group: Any) -> None:
    with pytest.raises(BadRequest):
        letters.check_choice(topic, reason, group)


@pytest.mark.parametrize("count", [-1, 1.5, True, "many"])
def test_a_count_that_cannot_be_is_refused(count: Any) -> None:
    choice = letters.check_choice("t", None, None)
    with pytest.raises(BadRequest, match=r"^count: a whole number, not negative"):
        letters.move(Caller(), choice, None, count)
    with pytest.raises(BadRequest, match=r"^limit: a whole number, not negative"):
        letters.find(Caller(), choice, count)
