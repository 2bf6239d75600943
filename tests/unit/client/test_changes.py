"""What a move changes, as columns; and every mistake in it (rule 15)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.client.changes import Change, condition_columns, shift_ms_of
from dejaqueue.errors import BadRequest
from dejaqueue.schema import messages

NOW_MS = 1_767_000_000_000


def change_columns(rows: int, due: Any, priority: Any, group: Any) -> dict[str, pa.Array]:
    return Change(due, priority=priority, group=group).columns(rows, lambda: NOW_MS)


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


def test_delays_begin_now_and_shifts_at_each_message_s_time() -> None:
    change = Change(delay=[1, timedelta(minutes=1)], if_due=datetime(2026, 1, 1, tzinfo=UTC))
    columns = change.columns(2, lambda: NOW_MS)
    assert columns["due"].to_pylist() == [NOW_MS + 1_000, NOW_MS + 60_000]
    assert columns["if_due"].to_pylist() == [1_767_225_600_000] * 2
    assert Change(by=-1.5).columns(2, lambda: NOW_MS)["by_ms"].to_pylist() == [-1_500, -1_500]
    each = Change(by=np.array([1, -2]), if_due=[5_000_000_000_000, 0])
    assert each.columns(2, lambda: NOW_MS)["by_ms"].to_pylist() == [1_000, -2_000]
    for name, column in (columns | each.columns(2, lambda: NOW_MS)).items():
        assert column.type == messages.MOVE.field(name).type


def test_only_a_shift_without_a_condition_may_not_be_repeated() -> None:
    assert Change(due=5).repeats
    assert Change(delay=5).repeats
    assert Change(by=5, if_due=0).repeats
    assert not Change(by=5).repeats


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (Change(due=0, delay=1), "delay"),
        (Change(delay=1, by=1), "by"),
        (Change(delay=-1), "delay"),
        (Change(by="1h"), "by"),
        (Change(by=[1]), "by"),
        (Change(by=float("nan")), "by"),
        (Change(if_due=0), "due"),
        (Change(due=0, if_due="then"), "if_due"),
        (Change(due=0, if_due=[0]), "if_due"),
    ],
)
def test_mistakes_with_times_are_named(change: Change, field: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}\b"):
        change.columns(2, lambda: NOW_MS)


def test_conditions_alone() -> None:
    assert condition_columns(2, None) == {}
    assert condition_columns(2, 0)["if_due"].to_pylist() == [0, 0]


def test_shifts_may_be_negative() -> None:
    assert (shift_ms_of(-1), shift_ms_of(timedelta(seconds=-2)), shift_ms_of(3)) == (
        *(-1_000, -2_000),
        3_000,
    )
