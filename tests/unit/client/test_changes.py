"""What a move changes, as columns; and every mistake in it (rule 15)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.client.changes import change_columns
from dejaqueue.errors import BadRequest
from dejaqueue.schema import messages


def test_one_value_for_all_or_one_for_each() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    one = change_columns(2, noon, 7, "a")
    assert {name: column.to_pylist() for name, column in one.items()} == {
        "due": [1_767_268_800_000, 1_767_268_800_000],
        "priority": [7, 7],
        "group": ["a", "a"],
    }
    each = change_columns(2, [0, 1_767_268_800_000], np.array([0, 65_535]), pa.array(["", "b"]))
    assert {name: column.to_pylist() for name, column in each.items()} == {
        "due": [0, 1_767_268_800_000],
        "priority": [0, 65_535],
        "group": ["", "b"],
    }
    for name, column in (one | each).items():
        assert column.type == messages.MOVE.field(name).type


def test_what_is_not_given_stays() -> None:
    assert list(change_columns(1, None, None, "")) == ["group"]
    assert list(change_columns(1, None, 0, None)) == ["priority"]


@pytest.mark.parametrize(
    ("due", "priority", "group", "field"),
    [
        (None, None, None, "due"),
        ("tomorrow", None, None, "due"),
        ([0], None, None, "due"),
        ([0, 1_767_268_800], None, None, "due"),
        (np.array([1, -1]), None, None, "due"),
        (None, -1, None, "priority"),
        (None, [1, 65_536], None, "priority"),
        (None, [1], None, "priority"),
        (None, 1.5, None, "priority"),
        (None, True, None, "priority"),
        (None, None, 5, "group"),
        (None, None, ["a"], "group"),
        (None, None, ["a", None], "group"),
    ],
)
def test_mistakes_are_named(due: Any, priority: Any, group: Any, field: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}\b"):
        change_columns(2, due, priority, group)
