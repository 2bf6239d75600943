"""Messages that a request names."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.http.named import check_id, named_batch, settle_batch, settled_rows


def test_ids_are_texts_or_whole_numbers() -> None:
    assert check_id("007") == check_id(7) == 7
    assert check_id(str((1 << 63) - 1)) == (1 << 63) - 1


@pytest.mark.parametrize("value", ["", "-1", "x", "٣", "9" * 19, "1" * 20, -1, 1 << 63, True, None])
def test_what_is_no_id_is_refused(value: object) -> None:
    with pytest.raises(BadRequest, match="id"):
        check_id(value)


def test_rows_to_settle_are_pairs() -> None:
    rows = settled_rows([{"id": "5", "attempt": 1}, {"id": 6, "attempt": 65_535}])
    assert rows == [(5, 1), (6, 65_535)]
    assert settle_batch(rows).to_pydict() == {"id": [5, 6], "attempts": [1, 65_535]}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (None, "messages"),
        ([], "messages"),
        ([1], "row 0"),
        ([{"id": "1"}], "row 0"),
        ([{"id": "1", "attempt": 1, "x": 1}], "row 0"),
        ([{"id": "1", "attempt": 65_536}], "attempt of row 0"),
        ([{"id": "1", "attempt": True}], "attempt of row 0"),
        ([{"id": "1", "attempt": 1}, {"id": [], "attempt": 1}], "id of row 1"),
    ],
)
def test_what_is_no_pair_is_refused(values: Any, field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        settled_rows(values)
    assert refused.value.field == field


CHANGES = ("due", "delay_ms", "by_ms", "priority", "group")


def test_messages_are_named_by_id_or_by_key() -> None:
    by_id = named_batch([{"id": "1", "due": 5}], 9, "due", "priority", "group")
    assert by_id.to_pydict() == {"id": [1], "due": [5]}
    by_key = named_batch([{"key": "a", "priority": 1, "group": ""}], 9, *CHANGES)
    assert by_key.to_pydict() == {"key": ["a"], "priority": [1], "group": [""]}
    assert named_batch([{"key": "a"}], 9).to_pydict() == {"key": ["a"]}


def test_times_may_be_lengths_and_have_conditions() -> None:
    delayed = named_batch([{"id": "1", "delay_ms": 5}], 1_000, *CHANGES)
    assert delayed.to_pydict() == {"id": [1], "due": [1_005]}
    rows = [{"key": "a", "by_ms": -5}, {"key": "b", "by_ms": 7, "if_due": 3}]
    shifted = named_batch(rows, 1_000, *CHANGES)
    assert shifted.to_pydict() == {"key": ["a", "b"], "by_ms": [-5, 7], "if_due": [None, 3]}
    assert named_batch([{"id": "1", "if_due": 3}], 9).to_pydict() == {"id": [1], "if_due": [3]}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "messages"),
        ([], "messages"),
        ([3], "row 0"),
        ([{"id": "1"}], "messages"),
        ([{"id": "1", "key": "a", "due": 1}], "key"),
        ([{"id": "1", "other": 1}], "other"),
        ([{"due": 1}], "key of row 0"),
        ([{"key": 1, "due": 1}], "key of row 0"),
        ([{"id": "1", "priority": "x"}], "priority of row 0"),
        ([{"id": "1", "due": []}], "due of row 0"),
        ([{"id": "1", "group": None}], "group of row 0"),
        ([{"id": "1", "due": 5, "by_ms": 5}], "by_ms"),
        ([{"id": "1", "delay_ms": -5}], "delay_ms of row 0"),
        ([{"id": "1", "by_ms": 1.5}], "by_ms of row 0"),
        ([{"id": "1", "if_due": 5}], "messages"),
        ([{"id": "1", "due": 5}, {"id": "1", "due": 5, "if_due": []}], "if_due of row 0"),
    ],
)
def test_what_names_no_message_is_refused(values: Any, field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        named_batch(values, 9, *CHANGES)
    assert refused.value.field == field
