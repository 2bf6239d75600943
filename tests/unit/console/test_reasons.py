"""Why not yet: a sentence for every state, and for each thing that holds a ready message."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.console.reasons import reason
from dejaqueue.model import MessageState

NOW_MS = 10_000_000
SETTINGS = {"kind": "timeline", "lease_ms": 30_000, "paused": False, "group_in_flight_max": 0}
BUSY = {"consumers": [{"credit": 0}], "ready": 1, "leased": 5}
FREE = {"consumers": [{"credit": 9}, {"credit": 0}], "ready": 1, "leased": 0}
FILTERS = {
    "consumers": [
        {"credit": 0, "tags_any": ["red", "green"], "tags_all": [], "tags_none": ["b"]},
        {"credit": 5, "tags_any": [], "tags_all": ["blue", "new"], "tags_none": []},
    ],
    "ready": 1,
    "leased": 0,
}
READY = {"state": "scheduled", "due": NOW_MS - 40, "attempt": 0}


@pytest.mark.parametrize(
    ("message", "settings", "stats", "words"),
    [
        ({"due": NOW_MS + 10_800_000}, {}, BUSY, "Due in 3 h; nobody gets it before."),
        ({"due": NOW_MS + 1, "attempt": 1}, {}, BUSY, "Due in 1 ms for attempt 2"),
        ({}, {"paused": True}, FREE, "Ready for 40 ms; the topic is paused"),
        ({}, {}, {}, "who consumes the topic is not yours to see"),
        ({}, {}, BUSY | {"consumers": []}, "nobody consumes this topic"),
        ({"group": "vip"}, {"group_in_flight_max": 5}, BUSY | {"group_leased": 5},
         "its group vip is at its cap: it may have 5 messages in flight"),
        ({"group": "vip"}, {"group_in_flight_max": 5}, BUSY | {"group_leased": 4},
         "one consumer is connected, and none has credit"),
        ({"group": "vip"}, {"group_runs": True}, BUSY | {"group_leased": 3},
         "its group vip has a run of 3 in flight: more comes when all of them are settled"),
        ({"group": "vip"}, {"group_runs": True}, BUSY | {"group_leased": 0},
         "one consumer is connected, and none has credit"),
        ({}, {}, BUSY, "one consumer is connected, and none has credit"),
        ({}, {}, BUSY | {"consumers": [{"credit": 0}] * 2}, "2 consumers are connected"),
        ({}, {}, FREE | {"ready": 7}, "7 messages are ready, and those before it"),
        ({}, {}, FREE, "consumers that take it have credit: it is on its way"),
        ({"tags": ["a", "b"]}, {}, FILTERS, "consumers are connected, and nobody's filter takes "
         "its tags (a, b)."),
        ({}, {}, FILTERS, "nobody's filter takes a message without tags."),
        ({"tags": ["red"]}, {}, FILTERS,
         "one consumer is connected whose filter takes its tags, and none has credit"),
        ({"tags": ["blue", "new"]}, {}, FILTERS, "it is on its way"),
        ({"state": "leased", "attempt": 1, "consumer": "mailer", "due": NOW_MS + 12_000}, {}, FREE,
         "Leased by consumer mailer for attempt 1; its lease ends at 1970-01-01 02:46:52.000 UTC "
         "(in 12 s)."),
        ({"state": "leased", "attempt": 2, "due": NOW_MS + 1}, {}, FREE,
         "a consumer whose name is not known for attempt 2"),
        ({"state": "leased", "attempt": 2, "due": NOW_MS}, {}, FREE, "its lease has just ended"),
    ],
)  # fmt: skip
def test_what_holds_a_message_is_said(
    message: dict[str, Any], settings: dict[str, Any], stats: dict[str, Any], words: str
) -> None:
    assert words in reason(READY | message, SETTINGS | settings, stats, NOW_MS)


def test_every_state_has_a_sentence() -> None:
    states = {state.name.lower() for state in MessageState} - {"done"}
    said = {reason(READY | {"state": state}, SETTINGS, FREE, NOW_MS) for state in states}
    assert len(said) == len(states) == 5
    assert all(text.endswith(".") for text in said)
