"""Rows of a table as JSON texts, built column by column.

Room: cli. Arrow only.
Holds: no Python per row but for nested columns; what comes out is JSON, whatever the texts contain.
"""

from __future__ import annotations

import json

import pyarrow as pa

from dejaqueue.errors import BadRequest
from dejaqueue.schema import arrow_calls as pc

_CONTROL = "[\\x00-\\x1f]"


def rows_to_json(table: pa.Table) -> pa.ChunkedArray:
    """One JSON object per row, its fields named and ordered as the columns.

    Returns:
        A binary column (UTF-8), as long as the table.

    Raises:
        BadRequest: a column's values cannot be said in JSON (binary).
    """
    if not table.num_columns:
        return pa.chunked_array([pa.array([b"{}"] * table.num_rows, pa.binary())])
    pieces: list[pa.ChunkedArray | str] = []
    for place, name in enumerate(table.column_names):
        opening = "{" if place == 0 else ","
        pieces += [f"{opening}{json.dumps(name, ensure_ascii=False)}:", _values(name, table[name])]
    joined = pc.binary_join_element_wise(*pieces, "}", "")
    return joined.cast(pa.binary())


def _values(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each value as JSON text; null where there is none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_null(kind):
        column = column.cast(pa.utf8())
    elif pa.types.is_floating(kind):
        # JSON has neither NaN nor infinity.
        finite = pc.is_finite(column)
        column = pc.if_else(finite, column, None).cast(pa.utf8())
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.utf8())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _quoted(column.cast(pa.utf8()))
    elif pa.types.is_timestamp(kind):
        column = _instants(column)
    elif pa.types.is_temporal(kind):
        column = _quoted(column.cast(pa.utf8()))
    elif pa.types.is_nested(kind):
        texts = [json.dumps(value, default=str, ensure_ascii=False) for value in column.to_pylist()]
        column = pa.chunked_array([pa.array(texts, pa.utf8())])
    else:
        raise BadRequest(f"column {name}", "numbers, texts or times", str(kind))
    return pc.fill_null(column, "null")


def _quoted(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = pc.replace_substring(texts, "\\", "\\\\")
    texts = pc.replace_substring(texts, '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py():
        for code in range(0x20):
            escaped = json.dumps(chr(code))[1:-1]
            texts = pc.replace_substring(texts, chr(code), escaped)
    return pc.binary_join_element_wise('"', texts, '"', "")


def _instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """ISO 8601; with Z where the column knows its zone (Arrow keeps such times in UTC)."""
    ending = '"' if column.type.tz is None else 'Z"'
    texts = column.cast(pa.timestamp(column.type.unit)).cast(pa.utf8())
    texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise('"', texts, ending, "")
