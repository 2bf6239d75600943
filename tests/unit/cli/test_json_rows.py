"""Rows as JSON, column by column: whatever the texts contain, it parses back."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.cli.json_rows import rows_to_json
from dejaqueue.errors import BadRequest


def parsed(table: pa.Table) -> list[dict[str, object]]:
    return [json.loads(text) for text in rows_to_json(table).to_pylist()]


@given(st.lists(st.tuples(st.text(), st.none() | st.integers(-(1 << 63), (1 << 63) - 1))))
def test_texts_and_numbers_come_back_as_they_were(rows: list[tuple[str, int | None]]) -> None:
    table = pa.table(
        {
            'a "name"\\': pa.array([text for text, _ in rows], pa.utf8()),
            "n": pa.array([number for _, number in rows], pa.int64()),
        }
    )
    assert parsed(table) == [{'a "name"\\': text, "n": number} for text, number in rows]


def test_every_kind_of_column_has_its_json() -> None:
    table = pa.table(
        {
            "float": [1.5, float("nan")],
            "bool": [True, None],
            "instant": pa.array(
                [datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("ms", "UTC")
            ),
            "wall": pa.array([datetime(2026, 1, 2), None], pa.timestamp("s")),
            "list": [[1, 2], None],
            "word": pa.array(["x", "y"]).dictionary_encode(),
            "nothing": pa.nulls(2),
        }
    )
    first, second = parsed(table)
    assert first == {
        "float": 1.5,
        "bool": True,
        "instant": "2026-01-02T00:00:00.000Z",
        "wall": "2026-01-02T00:00:00",
        "list": [1, 2],
        "word": "x",
        "nothing": None,
    }
    assert second == dict.fromkeys(first) | {"word": "y"}


def test_bytes_are_refused_with_the_column_named() -> None:
    with pytest.raises(BadRequest, match="column raw: numbers, texts or times"):
        rows_to_json(pa.table({"raw": [b"x"]}))


def test_no_column_gives_empty_objects_and_no_row_gives_none() -> None:
    assert rows_to_json(pa.table({"a": pa.array([], pa.utf8())})).to_pylist() == []
