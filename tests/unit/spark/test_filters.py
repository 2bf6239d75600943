"""Covers: which filters go to the broker, and as what.

Not covered: that the broker finds what Spark would (tests/spark/test_batch.py).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from dejaqueue import limits
from dejaqueue.spark.filters import Pushed

DUE = ("due",)
PRIORITY = ("priority",)
PART_MS = datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "fields"),
    [
        ([GreaterThanOrEqual(DUE, 5), LessThan(DUE, 9)], {"due_from": 5, "due_to": 9}),
        ([GreaterThan(DUE, 5), LessThanOrEqual(DUE, 9)], {"due_from": 6, "due_to": 10}),
        ([GreaterThan(DUE, 5), GreaterThan(DUE, 2)], {"due_from": 6}),
        ([EqualTo(DUE, 5)], {"due_from": 5, "due_to": 6}),
        ([GreaterThanOrEqual(DUE, PART_MS)], {"due_from": 1_001}),
        ([LessThan(DUE, PART_MS)], {"due_to": 1_001}),
        ([LessThanOrEqual(DUE, datetime.fromtimestamp(1, UTC))], {"due_to": 1_001}),
        ([LessThan(PRIORITY, 5)], {"priority_to": 4}),
        ([EqualTo(PRIORITY, 5)], {"priority_from": 5, "priority_to": 5}),
        ([EqualTo(("group",), "g")], {"group": "g"}),
        ([EqualTo(("state",), "leased")], {"state": "leased"}),
        ([IsNotNull(DUE), IsNotNull(("id",))], {}),
    ],
)  # fmt: skip
def test_the_broker_applies_them(filters: list[Filter], fields: dict[str, Any]) -> None:
    pushed = Pushed("")
    assert pushed.push(filters) == []
    assert pushed.fields == fields


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("group",), "g")),
        StringStartsWith(("key",), "k"),
        IsNotNull(("key",)),
        EqualTo(("group",), ""),
        EqualTo(("state",), "dead"),
        EqualTo(("attempts",), 1),
        EqualTo(("headers", "h"), "v"),
        In(("group",), ("a", "b")),
        In(("id",), tuple(range(limits.PEEK_ROWS_MAX + 1))),
        LessThan(DUE, 0),
        GreaterThan(DUE, 1 << 62),
        LessThan(("id",), 4),
    ],
)
def test_others_are_left_to_spark(one: Filter) -> None:
    pushed = Pushed("")
    assert pushed.push([one]) == [one]
    assert (pushed.fields, pushed.ids, pushed.keys, pushed.partitions) == ({}, None, None, None)


def test_names_are_joined() -> None:
    pushed = Pushed("")
    filters = [In(("id",), (1, 2, 3)), In(("id",), (2, 3, 4)), EqualTo(("key",), "k")]
    assert pushed.push([*filters, In(("partition",), (0, 1)), EqualTo(("partition",), 1)]) == []
    assert pushed.ids == {2, 3}
    assert pushed.keys == {"k"}
    assert pushed.partitions == {1}


def test_a_second_group_is_left_to_spark__and_a_state_that_the_option_named() -> None:
    pushed = Pushed("ready")
    filters: list[Filter] = [EqualTo(("group",), "a"), EqualTo(("group",), "b")]
    state = EqualTo(("state",), "scheduled")
    assert pushed.push([*filters, state]) == [filters[1], state]
    assert pushed.fields == {"state": "ready", "group": "a"}
