"""Nested columns as flat texts: tags and headers, packed for the journal.

    tags       tag US tag …                        "red␟urgent"
    headers    name US value RS name US value …

Room: schema. Arrow compute over whole columns; no loop over rows.
Holds: unpack(pack(x)) == x for every column that `checks.py` lets through; a row without tags or
headers packs to the empty text.
See: docs/adr/0004; docs/reference/journal-format.md.

The journal gathers rows of a thousand entries in one step, which it can do for flat columns only.
US (U+001F) and RS (U+001E) are ASCII's own separators; they are refused inside names and values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.messages import HEADERS, TAGS

UNIT = "\x1f"
RECORD = "\x1e"
SEPARATORS = (UNIT + RECORD).encode()


def list_bounds(column: pa.ListArray | pa.MapArray) -> tuple[npt.NDArray[np.int32], int, int]:
    """Offsets from 0, and the first and last place of the children, of a list or map column."""
    offsets = np.asarray(column.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    return (offsets - np.int32(first)).astype(np.int32), first, last


def pack_tags(column: pa.ListArray) -> pa.StringArray:
    """One text per row of a list<utf8> column."""
    offsets, first, last = list_bounds(column)
    values = column.values.slice(first, last - first)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), values), UNIT)


def pack_headers(headers: pa.MapArray) -> pa.StringArray:
    """One text per row of a map<utf8, utf8> column."""
    offsets, first, last = list_bounds(headers)
    names = headers.keys.slice(first, last - first)
    values = headers.items.slice(first, last - first)
    joined = pc.binary_join_element_wise(names, values, UNIT)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), joined), RECORD)


def _split(column: pa.StringArray, separator: str) -> tuple[npt.NDArray[np.int32], pa.StringArray]:
    """Offsets per row and all parts; an empty text has no parts."""
    lists = pc.split_pattern(column, separator)
    offsets, first, last = list_bounds(lists)
    parts = lists.values.slice(first, last - first)
    empty_mask = np.asarray(pc.equal(column, "").cast(pa.uint8())) == 1
    if not empty_mask.any():
        return offsets, parts
    keep = np.ones(len(parts), dtype=bool)
    keep[offsets[:-1][empty_mask]] = False
    shrink = np.zeros(len(offsets), dtype=np.int32)
    np.cumsum(empty_mask, out=shrink[1:])
    return offsets - shrink, parts.filter(pa.array(keep))


def is_empty(column: pa.Array) -> bool:
    """True if every row of a packed column is empty."""
    return column.null_count == len(column) or not pc.any(pc.not_equal(column, "")).as_py()


def unpack_tags(column: pa.StringArray) -> pa.ListArray:
    """The list<utf8> column of packed texts; nulls where a row has no tags."""
    if is_empty(column):
        return pa.nulls(len(column), TAGS)
    offsets, parts = _split(column.fill_null(""), UNIT)
    return pa.ListArray.from_arrays(pa.array(offsets), parts)


def unpack_headers(column: pa.StringArray) -> pa.MapArray:
    """The map<utf8, utf8> column of packed texts; nulls where a row has no headers."""
    if is_empty(column):
        return pa.nulls(len(column), HEADERS)
    offsets, parts = _split(column.fill_null(""), RECORD)
    pairs = pc.split_pattern(parts, UNIT, max_splits=1).values
    names, values = (
        pairs.take(pa.array(np.arange(0, len(pairs), 2))),
        pairs.take(pa.array(np.arange(1, len(pairs), 2))),
    )
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)
