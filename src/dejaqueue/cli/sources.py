"""Where `dejaq send` gets its rows: lines, JSON lines, CSV or Parquet, as batches of the wire.

Room: cli. Arrow only; knows nothing of brokers.
Holds: a file is read in pieces, never whole (but for what one row group of Parquet takes); every
batch that comes out has the columns of `schema.messages.SEND`, or is refused with the column named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from dejaqueue.cli.json_rows import rows_to_json
from dejaqueue.errors import BadRequest
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.messages import SEND, TAGS

FORMATS = ("lines", "jsonl", "csv", "parquet")
BLOCK_BYTES = 4 << 20
"""Read at once: some ten thousand rows."""
BATCH_ROWS = 10_000
"""Rows of one batch to the broker."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column is what. None = the column of that very name, if there is one.

    Attributes:
        payload: absent = the whole row as JSON (for JSON lines: the line as it is).
        delay: length of time from now in milliseconds, instead of a due column.
        due_ms: the same instant for every row that has no other; -1 = on arrival.
        priority: the same for every row, unless there is a column of that name.
        expires_ms: the same instant of death for every row, unless there is a column of that name.
        ttl_ms: instead: each row dies so long after it is due.
        tags: the same for every row, unless there is a column of that name.
    """

    payload: str | None = None
    due: str | None = None
    delay: str | None = None
    key: str | None = None
    group: str | None = None
    due_ms: int = -1
    priority: int | None = None
    expires_ms: int | None = None
    ttl_ms: int | None = None
    tags: tuple[str, ...] = ()


def format_of(path: str | None, given: str | None) -> str:
    """The format that was given, or else what the file's ending says; lines if it says nothing."""
    if given:
        return given
    ending = Path(path).suffix.lower() if path else ""
    by_ending = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
    return by_ending.get(ending, "lines")


def read_batches(
    source: BinaryIO, file_format: str, columns: Columns, now_ms: int
) -> Iterator[pa.Table]:
    """Yield batches to send, of at most BATCH_ROWS rows.

    Raises:
        BadRequest: the source is not of this format, or a column is missing or of a wrong type.
    """
    try:
        for table in _read(source, file_format, columns):
            for start in range(0, table.num_rows, BATCH_ROWS):
                yield to_send(table.slice(start, BATCH_ROWS), columns, now_ms)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise BadRequest("input", f"{file_format} ({error})", _name(source)) from error


def _name(source: BinaryIO) -> str:
    return str(getattr(source, "name", "standard input"))


def _read(source: BinaryIO, file_format: str, columns: Columns) -> Iterator[pa.Table]:
    if file_format == "lines":
        for lines in _line_blocks(source):
            yield pa.table({"payload": pa.array(lines, pa.binary())})
    elif file_format == "jsonl":
        yield from _json_blocks(source, columns)
    elif file_format == "csv":
        yield from _csv_blocks(source, columns)
    else:
        yield from _parquet_blocks(source)


def _line_blocks(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lines without their ends, in blocks; empty lines are left out."""
    rest = b""
    while block := source.read(BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        if filled := [line for line in map(bytes.rstrip, lines) if line]:
            yield filled
    if last := rest.rstrip():
        yield [last]


def _json_blocks(source: BinaryIO, columns: Columns) -> Iterator[pa.Table]:
    """Parsed lines; without a `payload` field, the line itself is the payload."""
    named = (columns.payload, columns.due, columns.key, columns.group)
    for lines in _line_blocks(source):
        parsed = _parse_json(
            lines, {*filter(None, named), "payload", "due", "key", "group", "expires"}
        )
        if columns.payload is None and "payload" not in parsed.column_names:
            parsed = parsed.append_column("payload", pa.array(lines, pa.binary()))
        yield parsed


def _parse_json(lines: list[bytes], as_written: set[str]) -> pa.Table:
    """Lines as a table; what looks like a time stays a text in the columns `as_written`.

    Arrow would make it a time and drop its zone. A second pass is cheaper than to say beforehand
    that these columns are texts, as then a column that is not there would come out as nulls.
    """
    from pyarrow import json as arrow_json

    content = b"\n".join(lines)
    read_options = arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
    parsed = arrow_json.read_json(pa.BufferReader(content), read_options)
    texts = [
        pa.field(field.name, pa.utf8())
        for field in parsed.schema
        if field.name in as_written and pa.types.is_temporal(field.type)
    ]
    if not texts:
        return parsed
    parse_options = arrow_json.ParseOptions(explicit_schema=pa.schema(texts))
    return arrow_json.read_json(pa.BufferReader(content), read_options, parse_options)


def _csv_blocks(source: BinaryIO, columns: Columns) -> Iterator[pa.Table]:
    from pyarrow import csv

    # Texts stay as they are written: a key 007 is not the number 7.
    texts = {
        name: pa.utf8()
        for name in (columns.payload or "payload", columns.key or "key", columns.group or "group")
    }
    reader = csv.open_csv(
        source,
        read_options=csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
        convert_options=csv.ConvertOptions(column_types=texts),
    )
    for batch in reader:
        yield pa.Table.from_batches([batch])


def _parquet_blocks(source: BinaryIO) -> Iterator[pa.Table]:
    from pyarrow import parquet

    # The footer is at the end: a pipe has to be read to its end first.
    seekable = source if source.seekable() else pa.BufferReader(source.read())
    for batch in parquet.ParquetFile(seekable).iter_batches(batch_size=BATCH_ROWS):
        yield pa.Table.from_batches([batch])


def to_send(table: pa.Table, columns: Columns, now_ms: int) -> pa.Table:
    """The rows with the columns of SEND.

    Raises:
        BadRequest: a column that was named is missing, or its type cannot be what it is to be.
    """
    made: dict[str, pa.ChunkedArray | pa.Array] = {"payload": _payload(table, columns.payload)}
    due = _due(table, columns, now_ms)
    if due is not None:
        made["due"] = due
    for field, named in (("key", columns.key), ("group", columns.group)):
        if (found := _column(table, field, named)) is not None:
            made[field] = _cast(field, found, pa.utf8())
    for field in ("priority", "partition", "tags", "headers"):
        if (found := _column(table, field, None)) is not None:
            made[field] = _cast(field, found, SEND.field(field).type)
    if columns.priority is not None and "priority" not in made:
        made["priority"] = pa.array(np.full(table.num_rows, columns.priority, dtype=np.uint16))
    if columns.tags and "tags" not in made:
        made["tags"] = pa.array([list(columns.tags)] * table.num_rows, TAGS)
    expires = _expires(table, columns, due, now_ms)
    if expires is not None:
        made["expires"] = expires
    return pa.table(made)


def _expires(
    table: pa.Table, columns: Columns, due: pa.ChunkedArray | pa.Array | None, now_ms: int
) -> pa.ChunkedArray | pa.Array | None:
    """int64 milliseconds, or None where no message dies of age."""
    column = _column(table, "expires", None)
    if column is not None:
        return to_instants(column, "expires")
    if columns.ttl_ms is not None:
        if due is not None:
            return pc.add(due, columns.ttl_ms)
        return pa.array(np.full(table.num_rows, now_ms + columns.ttl_ms, dtype=np.int64))
    if columns.expires_ms is not None:
        return pa.array(np.full(table.num_rows, columns.expires_ms, dtype=np.int64))
    return None


def _column(table: pa.Table, field: str, named: str | None) -> pa.ChunkedArray | None:
    """The column for a field: the named one, which must be there, or that of the field's name."""
    if named is not None and named not in table.column_names:
        raise BadRequest(
            f"{field} column", f"one of {', '.join(table.column_names) or 'none'}", named
        )
    name = named or field
    return table[name] if name in table.column_names else None


def _payload(table: pa.Table, named: str | None) -> pa.ChunkedArray:
    column = _column(table, "payload", named)
    if column is None:
        return rows_to_json(table)
    if not pa.types.is_binary(column.type):
        column = _cast("payload", column, pa.utf8())
    if column.null_count:
        raise BadRequest("payload column", "a value in every row", None)
    return _cast("payload", column, pa.binary())


def _due(table: pa.Table, columns: Columns, now_ms: int) -> pa.ChunkedArray | pa.Array | None:
    """int64 milliseconds, or None where every message is due on arrival."""
    due = _column(table, "due", columns.due)
    if due is not None:
        return to_instants(due)
    delay = _column(table, "delay_ms", columns.delay)
    if delay is not None:
        delays_ms = _cast("delay_ms", delay, pa.int64())
        if delays_ms.null_count:
            raise BadRequest("delay_ms column", "a value in every row", None)
        return pc.add(delays_ms, now_ms)
    if columns.due_ms >= 0:
        return pa.array(np.full(table.num_rows, columns.due_ms, dtype=np.int64))
    return None


_PER_MS = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
"""By Arrow's unit: times what, and divided by what, is milliseconds."""


def to_instants(column: pa.ChunkedArray, field: str = "due") -> pa.ChunkedArray | pa.Array:
    """A column of instants as int64 milliseconds; parts of a millisecond round up: never early.

    Raises:
        BadRequest: neither whole milliseconds nor times with a zone, or a null.
    """
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _cast(field, column, pa.timestamp("us", "UTC"))
    if column.null_count and field == "due":
        raise BadRequest(f"{field} column", "a value in every row", None)
    if not pa.types.is_timestamp(column.type):
        return _cast(field, column, pa.int64())
    if column.type.tz is None:
        raise BadRequest(
            f"{field} column", "times with a zone, or UTC milliseconds", str(column.type)
        )
    times, divisor = _PER_MS[column.type.unit]
    ticks = column.cast(pa.int64()).to_numpy()
    return pa.array(-(-(ticks * times) // divisor))


def _cast(field: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        text = str(error).splitlines()[0]
        raise BadRequest(f"{field} column", f"{kind} ({text})", str(column.type)) from error
