"""What `dejaq send` reads: four formats, the same columns out, or a clear refusal."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyarrow import parquet

from dejaqueue.cli import sources
from dejaqueue.cli.sources import Columns, format_of, read_batches, to_instants
from dejaqueue.errors import BadRequest

NOW_MS = 1_000_000


def read(
    content: bytes, file_format: str, columns: Columns | None = None
) -> list[dict[str, object]]:
    batches = read_batches(io.BytesIO(content), file_format, columns or Columns(), NOW_MS)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        ("a.csv", None, "csv"),
        ("a.JSONL", None, "jsonl"),
        ("a.ndjson", None, "jsonl"),
        ("a.parquet", None, "parquet"),
        ("a.txt", None, "lines"),
        (None, None, "lines"),
        ("-", None, "lines"),
        ("a.csv", "lines", "lines"),
    ],
)
def test_format_is_what_was_given_or_the_ending(
    path: str | None, given: str | None, expected: str
) -> None:
    assert format_of(path, given) == expected


def test_lines_are_payloads__ends_and_empty_lines_left_out() -> None:
    assert read(b"one\r\n\n two \nlast", "lines") == [
        {"payload": b"one"},
        {"payload": b" two"},
        {"payload": b"last"},
    ]


def test_lines_across_blocks_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK_BYTES", 7)
    lines = [f"line {n}".encode() for n in range(100)]
    assert [row["payload"] for row in read(b"\n".join(lines), "lines")] == lines


def test_rows_come_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", 10)
    batches = list(read_batches(io.BytesIO(b"x\n" * 25), "lines", Columns(), NOW_MS))
    assert [batch.num_rows for batch in batches] == [10, 10, 5]


def test_one_due_time_for_every_row() -> None:
    assert read(b"a\nb\n", "lines", Columns(due_ms=5)) == [
        {"payload": b"a", "due": 5},
        {"payload": b"b", "due": 5},
    ]


def test_json_line_without_payload_is_the_payload_itself() -> None:
    line = b'{"name": "Eve",  "key": "k1", "delay_ms": 250}'
    assert read(line, "jsonl") == [{"payload": line, "due": NOW_MS + 250, "key": "k1"}]


def test_json_line_with_payload_and_everything_else() -> None:
    line = json.dumps(
        {
            "payload": "hello",
            "due": "2026-01-01T00:00:00Z",
            "key": "k",
            "group": "g",
            "priority": 7,
            "tags": ["x", "y"],
        }
    ).encode()
    assert read(line, "jsonl") == [
        {
            "payload": b"hello",
            "due": 1_767_225_600_000,
            "key": "k",
            "group": "g",
            "priority": 7,
            "tags": ["x", "y"],
        }
    ]


def test_csv_row_becomes_json__and_a_key_keeps_its_zeros() -> None:
    (row,) = read(b"key,name,age\n007,Bond,40\n", "csv")
    assert row["key"] == "007"
    payload = row["payload"]
    assert isinstance(payload, bytes)
    assert json.loads(payload) == {"key": "007", "name": "Bond", "age": 40}


def test_csv_with_named_columns() -> None:
    content = b"email,remind_at,text\na@x.org,2026-01-01T00:00:00Z,007\n"
    columns = Columns(payload="text", due="remind_at", key="email")
    assert read(content, "csv", columns) == [
        {"payload": b"007", "due": 1_767_225_600_000, "key": "a@x.org"}
    ]


def test_parquet_also_from_a_pipe() -> None:
    table = pa.table({"payload": ["a", "b"], "due": pa.array([1, 2], pa.int64())})
    stored = io.BytesIO()
    parquet.write_table(table, stored)

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    expected = [{"payload": b"a", "due": 1}, {"payload": b"b", "due": 2}]
    assert read(stored.getvalue(), "parquet") == expected
    batches = read_batches(Pipe(stored.getvalue()), "parquet", Columns(), NOW_MS)
    assert [row for batch in batches for row in batch.to_pylist()] == expected


@pytest.mark.parametrize(
    ("content", "file_format", "columns", "text"),
    [
        (b"a,b\n1,2\n", "csv", Columns(due="when"), "due column: one of a, b, got: 'when'"),
        (b"due\nnever\n", "csv", Columns(), "due column: timestamp"),
        (b"due\n2026-01-01T00:00:00\n", "csv", Columns(), "due column: times with a zone"),
        (b"due,a\n,1\n5,1\n", "csv", Columns(), "due column: a value in every row"),
        (b"delay_ms,a\nlong,1\n", "csv", Columns(), "delay_ms column: int64"),
        (b'{"a": 1\n', "jsonl", Columns(), "input: jsonl"),
        (b"not parquet", "parquet", Columns(), "input: parquet"),
        (b'{"payload": {"a": 1}}', "jsonl", Columns(), "payload column"),
        (b'{"payload": "a", "priority": -1}', "jsonl", Columns(), "priority column: uint16"),
    ],
)
def test_bad_input_names_the_column_and_the_reason(
    content: bytes, file_format: str, columns: Columns, text: str
) -> None:
    with pytest.raises(BadRequest) as error:
        read(content, file_format, columns)
    assert text in str(error.value)


def test_json_texts_that_look_like_times_stay_texts() -> None:
    line = b'{"payload": "2026-01-01", "key": "2026-01-01T00:00:00Z"}'
    assert read(line, "jsonl") == [{"payload": b"2026-01-01", "key": "2026-01-01T00:00:00Z"}]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_instants_of_any_unit_become_milliseconds(unit: str) -> None:
    moments = pa.chunked_array(
        [pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp(unit, "UTC"))]
    )
    assert to_instants(moments).to_pylist() == [1_767_225_600_000]


def test_parts_of_a_millisecond_round_up() -> None:
    ticks = pa.chunked_array([pa.array([1, 999, 1_000, 1_001]).cast(pa.timestamp("us", "UTC"))])
    assert to_instants(ticks).to_pylist() == [1, 1, 1, 2]
