"""Columns of references to cold payloads: those of one object differ in size and offset alone.

A topic may have tens of millions of them, so they are made and read as columns.

Room: schema. Pure.
Holds: `cold_rows(reference_column(...))` gives what it was made of.
See: references.py, their form; broker/shard/cold_chore.py, which makes them; docs/adr/0085.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.errors import JournalDamaged
from dejaqueue.schema.references import Reference, decode, marked_rows
from dejaqueue.schema.text_columns import text_offsets

Int64s = npt.NDArray[np.int64]

_KIND_AT: Final = 12
_SIZE_AT: Final = 13
_OFFSET_AT: Final = _SIZE_AT + 8 + 32 + 32 + 8
_NAME_AT: Final = _OFFSET_AT + 8
_COLD_KINDS: Final = (3, 4)


class ColdRows(NamedTuple):
    """Rows of a column whose payloads one object has.

    Attributes:
        whole: what refers to the object.
        rows: indices in the column, ascending.
        offsets, sizes: where each payload begins in the object, and its bytes.
    """

    whole: Reference
    rows: Int64s
    offsets: Int64s
    sizes: Int64s


def reference_column(whole: Reference, offsets: Int64s, sizes: Int64s) -> pa.BinaryArray:
    """References to payloads of one object.

    Args:
        whole: refers to the object.
        offsets, sizes: int64 arrays, shape (n,), of the payloads.

    >>> whole = Reference("a/b/c", 10, bytes(32))
    >>> column = reference_column(whole, np.array([0, 4]), np.array([4, 6]))
    >>> decode(column[1].as_py()).offset, cold_rows(column)[0].sizes.tolist()
    (4, [4, 6])
    """
    one = Reference(whole.name, 1, whole.digest, whole.key, whole.byte_count).encode()
    records = np.tile(np.frombuffer(one, dtype=np.uint8), (offsets.size, 1))
    for at, values in ((_SIZE_AT, sizes), (_OFFSET_AT, offsets)):
        records[:, at : at + 8] = values.astype("<u8").view(np.uint8).reshape(-1, 8)
    ends = np.arange(offsets.size + 1, dtype=np.int32) * np.int32(len(one))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(records)]
    return pa.Array.from_buffers(pa.binary(), offsets.size, buffers)


def cold_rows(column: pa.BinaryArray) -> list[ColdRows]:
    """The cold payloads of a column, by object. What is damaged is left out: who reads it is
    told.

    Cost: as `marked_rows`, and for each cold row a copy of its reference.
    """
    marked = marked_rows(column)
    if not marked.size:
        return []
    ends = text_offsets(column).astype(np.int64)
    content = np.frombuffer(column.buffers()[2], dtype=np.uint8)
    lengths = ends[marked + 1] - ends[marked]
    is_cold = lengths > _NAME_AT
    is_cold[is_cold] = np.isin(content[ends[marked[is_cold]] + _KIND_AT], _COLD_KINDS)
    marked, lengths = marked[is_cold], lengths[is_cold]
    found: list[ColdRows] = []
    for length in np.unique(lengths).tolist():
        found += _of_length(content, ends, marked[lengths == length], length)
    return found


def _of_length(
    content: npt.NDArray[np.uint8], ends: Int64s, rows: Int64s, length: int
) -> list[ColdRows]:
    records = content[ends[rows][:, None] + np.arange(length)]
    sizes, offsets = _numbers(records, _SIZE_AT), _numbers(records, _OFFSET_AT)
    spans = ((_KIND_AT, _SIZE_AT), (_SIZE_AT + 8, _OFFSET_AT), (_NAME_AT, length))
    same = np.concatenate([records[:, first:end] for first, end in spans], axis=1)
    objects = np.ascontiguousarray(same).view(f"V{same.shape[1]}").ravel()
    _, firsts, of = np.unique(objects, return_index=True, return_inverse=True)
    found = []
    for place, first in enumerate(firsts.tolist()):
        try:
            one = decode(records[first].tobytes())
        except JournalDamaged:
            continue
        if isinstance(one, Reference):
            own = np.flatnonzero(of == place)
            found.append(ColdRows(one.whole, rows[own], offsets[own], sizes[own]))
    return found


def _numbers(records: npt.NDArray[np.uint8], at: int) -> Int64s:
    words = np.ascontiguousarray(records[:, at : at + 8]).view("<u8").ravel()
    return words.astype(np.int64)


def payload_column(content: bytes, offsets: Int64s, sizes: Int64s) -> pa.BinaryArray:
    """Payloads of an object, in the order asked.

    Args:
        content: of all its payloads, less than 2 GiB.
        offsets, sizes: of those that are wanted, each once.

    Raises:
        JournalDamaged: one is not within it.

    >>> payload_column(b"abcdef", np.array([4, 0]), np.array([2, 3])).to_pylist()
    [b'ef', b'abc']
    """
    order = offsets.argsort(kind="stable")
    starts, stops = offsets[order], offsets[order] + sizes[order]
    if order.size and (int(stops[-1]) > len(content) or (starts[1:] < stops[:-1]).any()):
        raise JournalDamaged("references to payloads that are not in their object")
    # The payloads and the gaps between them are one column over the content; taking every second
    # row of it copies the payloads, and nothing is done for each.
    ends = np.stack([starts, stops], axis=1).ravel().astype(np.int32)
    if not order.size:
        return pa.array([], pa.binary())
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(content)]
    both = pa.Array.from_buffers(pa.binary(), ends.size - 1, buffers)
    places = np.empty(order.size, dtype=np.int64)
    places[order] = np.arange(order.size) * 2
    return both.take(pa.array(places))
