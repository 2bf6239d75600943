"""What may be asked about many messages. Answers of whole topics: tests/rules."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue import limits
from dejaqueue.broker.calls import browse
from dejaqueue.broker.calls.browse import answer_of, parse_selection, topic_name, whole
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.model import MessageState, TagFilter

DEFAULT = (MessageState.SCHEDULED, MessageState.LEASED)


@pytest.mark.parametrize("value", [True, 1.0, "1", -1, 11])
def test_a_whole_number_is_one_within_its_bounds(value: object) -> None:
    assert whole({"n": 10}, "n", 5, 10) == 10
    assert whole({}, "n", 5, 10) == 5
    with pytest.raises(BadRequest, match="^n.*a whole number from 0 to 10"):
        whole({"n": value}, "n", 5, 10)


def test_nothing_asked_is_everything_in_the_states_that_are_meant() -> None:
    selection = parse_selection({}, 50, DEFAULT)
    assert (selection.states, selection.tags, selection.group) == (DEFAULT, None, None)
    assert (selection.priority_from, selection.priority_to) == (0, limits.PRIORITY_MAX)


def test_ready_is_what_is_due_by_now() -> None:
    assert parse_selection({"state": "ready"}, 50, DEFAULT).due_to_ms == 51
    assert parse_selection({"state": "ready", "due_to": 40}, 50, DEFAULT).due_to_ms == 40
    assert parse_selection({"state": "scheduled"}, 50, DEFAULT).due_to_ms > 51
    assert parse_selection({"state": "ready"}, 50, DEFAULT).states == (MessageState.SCHEDULED,)


def test_tags_and_owners_narrow_a_selection() -> None:
    selection = parse_selection({"tags_any": ["a"], "tags_none": ["b"]}, 50, DEFAULT, "who")
    assert selection.tags == TagFilter(("a",), (), ("b",))
    assert selection.sender == "who"


@pytest.mark.parametrize(
    ("values", "field"),
    [({"state": "lost"}, "state"), ({"state": ["dead"]}, "state"), ({"group": 5}, "group")],
)
def test_a_selection_that_is_none_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}\b"):
        parse_selection(values, 50, DEFAULT)


def test_a_topic_has_a_name() -> None:
    assert topic_name({"topic": "t"}) == "t"
    with pytest.raises(BadRequest, match=r"^topic\b"):
        topic_name({"topic": 5})


def test_a_worker_that_does_not_answer_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "WAIT_SECONDS", 0)
    with pytest.raises(Unavailable, match="the partition is busy"):
        answer_of(Future())
