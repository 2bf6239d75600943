"""Covers: what a row of the table of calls says and checks.

Not covered: that each is served (tests/integration/test_authorisation.py), that each has a function
(tests/unit/broker/calls/test_calls.py).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue import limits
from dejaqueue.access.calls import ACTIONS, TICKETS, Call, bytes_past
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


def test_what_the_client_makes_again_is_marked__and_nothing_that_it_makes_once() -> None:
    source = Path(dejaqueue.__file__).parent / "client" / "_aio"
    text = "".join(path.read_text() for path in sorted(source.glob("*.py")))
    again = set(re.findall(r'repeat\((?:self\._core, )?"(\w+)"', text))
    again |= set(re.findall(r'_entries\("(\w+)"', text))
    once = set(re.findall(r'(?:_once|_action|transport\.action)\("(\w+)"', text))
    assert len(again) > 10, "the client says it in another way now"
    assert len(once) > 5
    by_body = {"create_topic", "alter_topic"}  # what ends is not made again
    assert {name for name in again if not ACTIONS[name].repeats} == by_body & again
    asks_now = {"clock"}  # `connect` says whether a broker answers now
    assert {name for name in once if ACTIONS[name].repeats} == asks_now
    assert TICKETS["peek"].repeats
    assert not TICKETS["claim"].repeats


@pytest.mark.parametrize(
    ("body", "byte_count"),
    [
        ({"bytes": 5}, 5),
        ({"upload": "u", "first": 3, "end": 5}, 2 * limits.PART_BYTES),
        ({"upload": "u", "first": 5, "end": 3}, 0),
        ({"upload": "u"}, 0),
        ({"bytes": -5}, 0),
        ({"bytes": "5"}, 0),
        ({}, 0),
    ],
)
def test_what_goes_past_the_broker_counts_when_it_is_signed(
    body: dict[str, object], byte_count: int
) -> None:
    assert bytes_past("sign_upload", body) == byte_count
    assert bytes_past("sign_payload", body) == 0
