"""Covers: notes of writes: what is refused, what is kept, and how much of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.access.calls import ACTIONS
from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.calls.reports import note_write, writes
from dejaqueue.broker.topic.write_reports import REPORTS_MAX, WriteReports
from dejaqueue.errors import BadRequest
from dejaqueue.limits import LABEL_BYTES_MAX


@pytest.fixture
def runtime() -> Any:
    return SimpleNamespace(write_reports=WriteReports())


def note(runtime: Any, label: str, now_ms: int = 5, **more: Any) -> None:
    body = {"topic": "t", "label": label, "counts": {"OK": 1}} | more
    ACTIONS["note_write"].check(body)
    note_write(runtime, body, NOBODY, now_ms)


def test_what_was_noted_is_found_by_its_label_or_with_all_others(runtime: Any) -> None:
    note(runtime, "a", counts={"OK": 3, "DUPLICATE": 2})
    note(runtime, "q", now_ms=6, epoch=0)
    note(runtime, "q", now_ms=7, epoch=1, committed=False)
    first = {"label": "a", "epoch": -1, "committed": True, "at_ms": 5}
    first["counts"] = {"OK": 3, "DUPLICATE": 2}
    found = writes(runtime, {"topic": "t"}, NOBODY)["writes"]
    assert found[0] == first
    assert [one["at_ms"] for one in found] == [5, 6, 7]
    assert writes(runtime, {"topic": "t", "label": "a"}, NOBODY)["writes"] == [first]
    assert [one["committed"] for one in found] == [True, True, False]
    note(runtime, "a", now_ms=8)  # again: as the newest one
    assert [one["label"] for one in writes(runtime, {"topic": "t"}, NOBODY)["writes"]] == [
        "q",
        "q",
        "a",
    ]


def test_the_oldest_goes_first(runtime: Any) -> None:
    for number in range(REPORTS_MAX + 3):
        note(runtime, f"n{number}")
    found = [one["label"] for one in writes(runtime, {"topic": "t"}, NOBODY)["writes"]]
    assert found == [f"n{number}" for number in range(3, REPORTS_MAX + 3)]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"label": ""}, "label"),
        ({"label": "x" * (LABEL_BYTES_MAX + 1)}, "label"),
        ({"label": 5}, "label"),
        ({"counts": {"FINE": 1}}, "counts"),
        ({"counts": {"OK": -1}}, "counts"),
        ({"counts": {"OK": True}}, "counts"),
        ({"counts": [1]}, "counts"),
        ({"epoch": -2}, "epoch"),
        ({"epoch": "1"}, "epoch"),
        ({"committed": 1}, "committed"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_wrong_note_is_refused_by_its_field(
    runtime: Any, wrong: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadRequest, match=field):
        note(runtime, **({"label": "x"} | wrong))
    assert writes(runtime, {"topic": "t"}, NOBODY)["writes"] == []
