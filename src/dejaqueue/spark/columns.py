"""The columns of messages in Spark's types, and a user's schema checked against them.

Room: spark. Types on both sides; no connection.
Holds: an error names the column, what it should be, and what it is.
See: schema/messages.py for the wire's types; docs/guides/spark.md for the table.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dejaqueue.errors import BadRequest
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.messages import DEFAULT_PRIORITY, SEND
from dejaqueue.schema.texts import mended

READ = {
    "id": ("bigint",),
    "due": ("timestamp", "bigint"),
    "attempts": ("int", "bigint"),
    "key": ("string",),
    "group": ("string",),
    "priority": ("int", "bigint"),
    "tags": ("array<string>",),
    "headers": ("map<string,string>",),
    "payload": ("binary", "string"),
    "state": ("string",),
    "expires": ("timestamp", "bigint"),
    "partition": ("int", "bigint"),
    "topic": ("string",),
}
"""Columns to read and the types they may be asked for in, the first by default.

A timestamp of Spark counts microseconds since 1970 in UTC, so a time in milliseconds is exact in
it. As bigint it is those milliseconds.
"""
HISTORY = {
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "change": ("string",),
    "at_ms": ("bigint", "timestamp"),
    "id": ("bigint",),
    "sequence": ("bigint",),
    "position": ("bigint",),
    "due": ("bigint", "timestamp"),
    "key": ("string",),
    "group": ("string",),
    "priority": ("int", "bigint"),
    "attempt": ("int", "bigint"),
    "lateness_ms": ("bigint",),
    "ahead_ms": ("bigint",),
    "consumer": ("string",),
    "reason": ("string",),
    "missed": ("bigint",),
}
"""Columns of the view `history`, as READ; numbers by default, as in the files that it reads."""
WRITE = {
    "payload": ("binary", "string"),
    "due": ("bigint", "int", "timestamp"),
    "key": ("string",),
    "group": ("string",),
    "priority": ("int", "smallint", "tinyint", "bigint"),
    "tags": ("array<string>",),
    "headers": ("map<string,string>",),
    "expires": ("bigint", "int", "timestamp"),
    "partition": ("int", "smallint", "tinyint", "bigint"),
}
"""Columns to write and the types they may have. All but payload may be left out."""


def schema_of(names: tuple[str, ...], known: dict[str, tuple[str, ...]]) -> str:
    """These columns, or all that are known, as Spark writes schemas. Raises BadRequest."""
    for name in names:
        if name not in known:
            raise BadRequest("option columns", f"names of {', '.join(known)}", name)
    if len(set(names)) < len(names):
        raise BadRequest("option columns", "each name once", ", ".join(names))
    return ", ".join(f"`{name}` {known[name][0]}" for name in names or known)


def check_read(schema: StructType, known: dict[str, tuple[str, ...]] = READ) -> None:
    """Raise BadRequest if a user asks for a column, or a type of it, that there is not."""
    _check(schema, known)


def check_write(schema: StructType) -> None:
    """Raise BadRequest if a table can't be a schedule."""
    _check(schema, WRITE)
    names = schema.fieldNames()
    if "payload" not in names:
        raise BadRequest("column payload", "a column of this name", ", ".join(names))
    if "key" in names and "partition" in names:
        raise BadRequest("column partition", "not together with key, which decides it", "both")


def _check(schema: StructType, known: dict[str, tuple[str, ...]]) -> None:
    names = schema.fieldNames()
    for place, column in enumerate(schema.fields):
        name, kind = column.name, column.dataType.simpleString()
        if name not in known:
            close = [one for one in known if one.lower() == name.lower()]
            wanted = close[0] if close else f"one of {', '.join(known)}"
            raise BadRequest(f"column {name}", wanted, name)
        if name in names[:place]:
            raise BadRequest(f"column {name}", "once", "twice")
        if kind not in known[name]:
            raise BadRequest(f"type of column {name}", " or ".join(known[name]), kind)


# --- reading ------------------------------------------------------------------------------------


class Shaper:
    """Makes batches of a scan what Spark expects for a schema, to the field."""

    def __init__(self, schema: StructType, topic: str) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._topic = topic

    @property
    def wanted(self) -> list[str]:
        """The columns to scan."""
        # Without any column a batch would not know how many rows it has.
        return [name for name in self._schema.names if name != "topic"] or ["id"]

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in Spark's types; bytes that are no text, asked for as one, become U+FFFD."""
        columns = []
        for field in self._schema:
            if field.name == "topic":
                column = pa.repeat(pa.scalar(self._topic), batch.num_rows)
            else:
                column = batch.column(field.name)
            if pa.types.is_timestamp(field.type):
                column = column.cast(pa.timestamp("ms", "UTC"))
            if pa.types.is_binary(column.type) and pa.types.is_string(field.type):
                # A cast fails on the whole stretch for one payload, each time that it is tried.
                column = mended(column.view(pa.utf8()))
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


# --- writing ------------------------------------------------------------------------------------


def fill(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Nulls of optional columns as what they stand for: due now, the usual priority.

    Raises:
        BadRequest: a payload, or a partition, is null.
    """
    for place, field in enumerate(batch.schema):
        column = batch.column(place)
        if not column.null_count or (SEND.field(field.name).nullable and field.name != "partition"):
            continue
        if field.name in ("payload", "partition"):
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise BadRequest(f"column {field.name}", "a value in every row", f"null in row {row}")
        value = DEFAULT_PRIORITY if field.name == "priority" else now_ms
        default = pa.scalar(value, pa.int64())
        if pa.types.is_timestamp(field.type):
            default = default.cast(pa.timestamp("ms", field.type.tz))
        filled = pc.fill_null(column, default.cast(field.type))
        batch = batch.set_column(place, field.name, filled)
    return batch
