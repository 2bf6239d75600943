"""Filters as values. What they select: test_selection.py, test_replay.py."""

from __future__ import annotations

import json

import pytest

from dejaqueue.engine.message_filter import Selection
from dejaqueue.model import MessageState, TagFilter


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(group=""),
        Selection(due_from_ms=5, due_to_ms=9, priority_from=1, priority_to=3, sender="a"),
        Selection(tags=TagFilter(("a",), (), ("b", "c"))),
    ],
)
def test_what_goes_through_a_journal_is_the_same(selection: Selection) -> None:
    values = json.loads(json.dumps(selection.to_values()))
    assert Selection.from_values(values) == selection


def test_states_are_not_in_the_journal() -> None:
    assert Selection(states=(MessageState.DEAD,)).to_values() == {}


def test_what_states_and_times_decide_alone_is_plain() -> None:
    assert Selection(due_from_ms=5, due_to_ms=9).is_plain
    for other in ({"group": ""}, {"tags": TagFilter(("a",))}, {"priority_to": 3}, {"sender": "a"}):
        assert not Selection(**other).is_plain


def test_what_is_no_filter_is_refused() -> None:
    with pytest.raises(TypeError):
        Selection.from_values({"colour": "red"})
