"""Covers: a sentence for every change of history, in order with gaps; where a trace is to be seen.

Not covered: the page that shows them (test_messages.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.console.history import lines, sentence, trace_link
from dejaqueue.schema.history import CHANGE_NAMES

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_every_change_has_a_sentence_of_its_own() -> None:
    said = {sentence({"change": name, "attempt": 1}) for name in CHANGE_NAMES if name != "gap"}
    assert len(said) == len(CHANGE_NAMES) - 2, "one again is told as the first delivery is"
    assert not said & set(CHANGE_NAMES), "a name is no sentence"
    assert sentence({"change": "unheard_of", "attempt": 1}) == "unheard_of"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"change": "enqueued", "due": 0}, "Sent, due 1970-01-01 00:00:00.000 UTC"),
        ({"change": "moved", "due": 0, "priority": 7, "group": "g"},
         "Moved, due 1970-01-01 00:00:00.000 UTC, priority 7, group g"),
        ({"change": "redelivered", "attempt": 2, "lateness_ms": -20},
         "Leased by a consumer for attempt 2, 20 ms ahead"),
        ({"change": "cancelled", "reason": "replaced"}, "Cancelled: replaced"),
        ({"change": "dead", "reason": "broken"}, "Dead: nobody gets it here any more: broken"),
    ],
)  # fmt: skip
def test_a_sentence_says_what_is_known(change: dict[str, Any], text: str) -> None:
    assert sentence({"attempt": 1} | change) == text


def test_gaps_stand_where_they_were() -> None:
    told = lines({
        "changes": [
            {"change": "enqueued", "position": 1, "at_ms": 10, "attempt": 0},
            {"change": "acked", "position": 9, "at_ms": 30, "attempt": 1},
        ],
        "gaps": [{"first": 2, "last": 5, "at_ms": 20, "reason": "history was off", "missed": None}],
    })  # fmt: skip
    assert [(line["at_ms"], line["is_gap"]) for line in told] == [
        (10, False), (20, True), (30, False),
    ]  # fmt: skip
    assert told[1]["text"].endswith("are not recorded: history was off")


@pytest.mark.parametrize(
    "parent",
    ["", "x", f"00-{TRACE}-00f067aa0ba902b7", f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
     f"00-{TRACE}/../-00f067aa0ba902b7-01", f"00-{'0' * 32}-00f067aa0ba902b7-01"],
)  # fmt: skip
def test_what_is_no_trace_has_no_link(parent: str) -> None:
    assert trace_link("https://x.example/{trace_id}", {"traceparent": parent}) == ""
    good = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    assert trace_link("", good) == ""
    assert trace_link("https://x.example/{trace_id}/{trace_id}", good).count(TRACE) == 2
