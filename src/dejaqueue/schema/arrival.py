"""Checks a batch from outside before anything reads a column: its layout, texts and size.

    check_arrival(batch)        # raises BadRequest; afterwards every offset is inside its buffer
    check_unpacked(batch)       # raises BadRequest if casting its columns took too much memory

Room: schema. Arrow's own full validation and numpy over whole columns; no clock.
Holds: in a batch that passes, offsets rise and stay inside their buffers, texts are UTF-8, places
in dictionaries exist, counts of nulls are true, in children and dictionaries too. Nothing is
unpacked to learn its size. Every way in calls this once: Flight's streams, HTTP's bodies, what is
passed on, what clients read.
See: checks.py for what the values may be; tests/hostile/ for the fuzzer.

Arrow reads a message without looking into it: an offset beyond its buffer names the memory that
lies behind it. `RecordBatch.validate(full=True)` looks at every offset, text and place, and was
found to miss nothing of these (each has a test); what it does not judge is size.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import BadRequest

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)
_OFFSET_BYTES = 4
"""Bytes that even an empty row takes once it is unpacked."""
_PACKED = {
    kind.id
    for kind in (pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.utf8()), pa.null())
}
_VIEW_LENGTHS = 4
"""int32 numbers of a view; the first of them is its length."""


def check_arrival(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch if it may be read.

    Raises:
        BadRequest: names the column and what is wrong with it.

    Cost: 2 to 6 ns a row of a payload and a due time.
    """
    _check_names(batch.schema)
    try:
        batch.validate(full=True)
    except pa.ArrowException as wrong:
        raise _refusal(batch, wrong) from None
    return batch


def check_layout(rows: Rows) -> Rows:
    """`check_arrival` for readers of what a broker sends; whether texts are UTF-8 is not judged.

    A text that is none is the fault of its row and spoils no other one; who decodes a row says so.

    Raises:
        BadRequest: names the column and what is wrong with it.
    """
    is_layout_of_texts(rows)
    return rows


def is_layout_of_texts(rows: pa.RecordBatch | pa.Table) -> bool:
    """True if every text is UTF-8. Raises as `check_layout`."""
    _check_names(rows.schema)
    try:
        rows.validate(full=True)
    except pa.ArrowException:
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            _check_column(name, column)
        return False
    return True


def _check_names(schema: pa.Schema) -> None:
    try:
        list(schema.names)
    except UnicodeDecodeError as wrong:
        raise BadRequest("schema", "names in UTF-8", str(wrong)) from None


def _refusal(batch: pa.RecordBatch, wrong: pa.ArrowException) -> BadRequest:
    """Name the first column that is wrong by itself."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as found:
            return BadRequest(f"column {name}", "valid Arrow", str(found))
    return BadRequest("batch", "a valid Arrow record batch", str(wrong))


def _check_column(name: str, column: pa.Array | pa.ChunkedArray) -> None:
    if _has_null_keys(column.type):
        raise BadRequest(f"column {name}", "valid Arrow", "a map whose keys are nulls")
    for part in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
        try:
            part.view(_without_utf8(part.type)).validate(full=True)
        except pa.ArrowException as wrong:
            raise BadRequest(f"column {name}", "valid Arrow", str(wrong)) from None


def _has_null_keys(kind: pa.DataType) -> bool:
    """True for a map of nulls, which one byte that flipped on the way makes of another map, and for
    what holds one. pyarrow ends the process that asks for a view of it."""
    if pa.types.is_map(kind) and pa.types.is_null(kind.key_type):
        return True
    return any(_has_null_keys(kind.field(place).type) for place in range(kind.num_fields))


def _without_utf8(kind: pa.DataType) -> pa.DataType:
    """The type of the same bytes, of which no text must be UTF-8."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_without_utf8(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_without_utf8(kind.key_type), _without_utf8(kind.item_type))
    return kind


# --- how large it becomes -----------------------------------------------------------------------


def check_unpacked(batch: pa.RecordBatch) -> None:
    """Refuse a batch that is small only because it refers to its texts; nothing is unpacked.

    Args:
        batch: has passed `check_arrival`.

    Raises:
        BadRequest: once dictionaries and views are unpacked it is larger than a batch may be.
    """
    if not any(map(_is_packed, batch.schema.types)):
        return
    unpacked = sum(_unpacked_bytes(column) for column in batch.columns if _is_packed(column.type))
    if unpacked > limits.BATCH_BYTES_MAX:
        limit = f"at most {limits.BATCH_BYTES_MAX} bytes once dictionaries and views are unpacked"
        raise BadRequest("batch", limit, unpacked)


def _is_packed(kind: pa.DataType) -> bool:
    """True if a column of this type can be larger unpacked than its buffers are."""
    if kind.id in _PACKED:
        return True
    return kind.num_fields > 0 and any(
        _is_packed(kind.field(place).type) for place in range(kind.num_fields)
    )


def _unpacked_bytes(column: pa.Array) -> int:
    """Bytes of a column's texts once it is cast to plain ones, at least; nothing is unpacked."""
    kind = column.type
    if pa.types.is_null(kind):
        return len(column) * _OFFSET_BYTES
    if pa.types.is_dictionary(kind):
        counts = np.bincount(_places(column), minlength=len(column.dictionary))
        # Whole numbers of Python: a count times a length can be more than 63 bits hold.
        return _dot(counts, _row_bytes(column.dictionary))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return int(_row_bytes(column).sum())
    if pa.types.is_map(kind):
        return _unpacked_bytes(column.keys) + _unpacked_bytes(column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _unpacked_bytes(column.values)
    return int(column.nbytes)


def _places(column: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """The places of a dictionary column that are not null."""
    places = column.indices.drop_null() if column.indices.null_count else column.indices
    # Validated: each is a place of the dictionary, so none is beyond an int64.
    indices: npt.NDArray[np.int64] = places.to_numpy().astype(np.int64, copy=False)
    return indices


def _dot(counts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> int:
    used = np.flatnonzero(counts)
    if not len(used):
        return 0
    total = float(np.dot(counts[used].astype(np.float64), lengths[used].astype(np.float64)))
    return int(np.dot(counts[used], lengths[used])) if total < 2.0**62 else int(total)


def _row_bytes(values: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each row of a column once it is unpacked, int64 array, shape (n,), at least."""
    kind, count = values.type, len(values)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        end = values.offset + count
        if not count:
            return np.zeros(0, dtype=np.int64)
        views = np.frombuffer(values.buffers()[1], dtype="<i4", count=_VIEW_LENGTHS * end)
        lengths = views[::_VIEW_LENGTHS][values.offset :].astype(np.int64)
        if values.null_count:  # what lies beneath a null was not looked at
            lengths[np.asarray(values.is_null())] = 0
        return lengths
    is_narrow = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if is_narrow or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        offsets = values.buffers()[1]
        if offsets is None or not count:
            return np.zeros(count, dtype=np.int64)
        width = "<i4" if is_narrow else "<i8"
        found = np.frombuffer(offsets, dtype=width, count=values.offset + count + 1)
        ends = found[values.offset :].astype(np.int64)
        return ends[1:] - ends[:-1]
    # Numbers are small. What else there is, nobody casts to a text: each row may be all of it.
    each = 8 if pa.types.is_primitive(kind) else _unpacked_bytes(values)
    return np.full(count, each, dtype=np.int64)
