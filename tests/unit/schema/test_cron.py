"""CronEntry: its fields, their limits, and its way through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.schema.cron import HEADER_FIRING, CronEntry, Misfire, Overlap

FULL = CronEntry(
    "ü",
    cron="0 9 * * *",
    zone="Europe/Berlin",
    start_ms=5,
    end_ms=9,
    jitter_ms=3,
    misfire=Misfire.ALL,
    overlap=Overlap.SKIP,
    payload=b"\x00\xff",
    headers={"a": "b"},
    tags=("x", "y"),
    group="g",
    priority=1,
    paused=True,
)


def test_json_and_back_is_the_same() -> None:
    assert CronEntry.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL
    assert FULL.check() == FULL
    assert CronEntry("a", every_ms=1_000, misfire="skip").check().misfire is Misfire.SKIP  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "entry.name"),
        ({"name": "a", "colour": 1}, "entry.colour"),
        ({"name": "a", "payload": "*"}, "entry.payload"),
        ({"name": "a", "payload": 5}, "entry.payload"),
        ({"name": "a", "misfire": "maybe"}, "entry.misfire"),
        ({"name": "a", "overlap": None}, "entry.overlap"),
    ],
)
def test_json_that_is_no_entry_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest, match=field):
        CronEntry.from_dict(values)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "x" * 257),
        ("name", 7),
        ("name", "\ud800"),
        ("group", "\ud800"),
        ("name", "a\x1fb"),
        ("zone", None),
        ("cron", 5),
        ("cron", "*" * 2_000),
        ("every_ms", 999),
        ("every_ms", True),
        ("jitter_ms", -1),
        ("start_ms", 1.5),
        ("paused", 1),
        ("payload", "text"),
        ("payload", b"x" * 65_537),
        ("headers", [1]),
        ("headers", {"a": 1}),
        ("headers", {HEADER_FIRING: "1"}),
        ("headers", {"a": "x" * 4_000}),
        ("tags", "red"),
        ("tags", ("",)),
        ("tags", ("a",) * 17),
        ("group", "x" * 257),
        ("priority", 65_536),
    ],
)
def test_a_value_out_of_its_limits_is_refused_by_name(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"name": "a", "every_ms": 60_000} | {field: value}
    with pytest.raises(BadRequest, match=f"entry.{field}"):
        CronEntry(**fields).check()
