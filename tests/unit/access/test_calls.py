"""Covers: what a row of the table of calls says and checks.

Not covered: that each is served (tests/integration/test_authorisation.py), that each has a function
(tests/unit/broker/calls/test_calls.py).
"""

from __future__ import annotations

import pytest

from dejaqueue.access.calls import ACTIONS, TICKETS, Call
from dejaqueue.access.rules import Rule
from dejaqueue.errors import BadRequest

ROWS = [*ACTIONS.values(), *TICKETS.values()]


@pytest.mark.parametrize("call", ROWS, ids=lambda call: str(call.name))
def test_a_row_is_whole(call: Call) -> None:
    assert len(set(call.fields)) == len(call.fields)
    assert set(call.required) <= set(call.fields)
    assert call.sentence[0].isupper()
    assert call.sentence.endswith(".")


def test_a_body_has_the_fields_of_its_row_and_no_other() -> None:
    call = Call("c", ("a", "b"), Rule(), "Do it.", required=("a",))
    call.check({"a": 1, "b": 2})
    with pytest.raises(BadRequest, match=r"^c: one of a, b"):
        call.check({"a": 1, "c": 2})
    with pytest.raises(BadRequest, match=r"^a: "):
        call.check({"b": 1})


def test_what_a_function_checks_itself_passes_the_row() -> None:
    call = Call("c", ("a",), Rule(), "Do it.", more="settings")
    call.check({"whatever": 1})
    assert call.body == "a, settings"
    assert Call("c", (), Rule(), "Do it.").body == "nothing"
