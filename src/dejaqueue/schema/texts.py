"""Text columns whose bytes are not all UTF-8: found, and mended or named by row.

    mended(column)         # the same texts, with U+FFFD where bytes are no text
    bad_rows(batch)        # which rows hold such bytes; None = none does

Room: schema. Arrow compute and numpy over whole columns; only texts that are bad are looked at
one by one.
Holds: columns without such bytes come back as they are, not copied; a row keeps its place.
See: arrival checks refuse such rows at the door; this is for what is stored already, and for what
another broker sends. Rule 15.

Arrow reads and computes with such a column as with any other; Python fails on the whole of it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
_ASCII_MAX = 0x7F
_COPIED_BYTES_MAX = 16 << 10
"""Bytes below which a copy is faster than numpy's look at them."""


def is_clean(column: pa.Array) -> bool:
    """True if every text is UTF-8.

    Cost: 3 µs and 0.1 ns a byte as long as all of it is ASCII, and next to nothing if all is null.
    """
    if column.null_count == len(column):
        return True
    content = column.buffers()[2]
    if content is None or content.size == 0 or _is_ascii(content):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_ascii(content: pa.Buffer) -> bool:
    if content.size <= _COPIED_BYTES_MAX:
        return bool(content.to_pybytes().isascii())
    return bool(np.frombuffer(content, dtype=np.uint8).max() <= _ASCII_MAX)


def bad_mask(column: pa.Array) -> Mask | None:
    """Which texts of a utf8 column are not UTF-8, shape (n,); None = all are."""
    if is_clean(column):
        return None
    mask = np.zeros(len(column), dtype=np.bool_)
    for row, content in enumerate(column.view(pa.binary()).to_pylist()):
        mask[row] = content is not None and not _is_text(content)
    return mask


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def mended(column: pa.Array) -> pa.Array:
    """A utf8 column with U+FFFD in place of what is no text; nulls stay."""
    if is_clean(column):
        return column
    contents = column.view(pa.binary()).to_pylist()
    return pa.array(
        [None if content is None else content.decode(errors="replace") for content in contents],
        pa.utf8(),
    )


def mended_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, every text in it mended, in lists and maps too."""
    stored = batch.columns  # new objects each time that they are asked for
    columns = [_mended_nested(column) for column in stored]
    if all(new is old for new, old in zip(columns, stored, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def mended_table(table: pa.Table) -> pa.Table:
    """As `mended_batch`."""
    batches = table.to_batches()
    whole = [mended_batch(batch) for batch in batches]
    if all(new is old for new, old in zip(whole, batches, strict=True)):
        return table
    return pa.Table.from_batches(whole, schema=table.schema)


def _mended_nested(column: pa.Array) -> pa.Array:
    if _bad_nested(column) is None:
        return column
    kind = column.type
    if kind == pa.utf8():
        return mended(column)
    column = pa.concat_arrays([column])  # offsets from 0
    nulls = pa.array(np.asarray(column.is_null()))
    if pa.types.is_map(kind):
        names, values = mended(column.keys), mended(column.items)
        return pa.MapArray.from_arrays(column.offsets, names, values, mask=nulls)
    return pa.ListArray.from_arrays(column.offsets, mended(column.values), mask=nulls)


def bad_rows(batch: pa.RecordBatch) -> Mask | None:
    """Which rows hold a text that is not UTF-8, shape (n,); None = none does."""
    bad_mask: Mask | None = None
    for column in batch.columns:
        bad = _bad_nested(column)
        if bad is not None:
            bad_mask = bad if bad_mask is None else bad_mask | bad
    return bad_mask


def _bad_nested(column: pa.Array) -> Mask | None:
    kind = column.type
    if column.null_count == len(column):
        return None
    if kind == pa.utf8():
        return bad_mask(column)
    if not (pa.types.is_map(kind) or pa.types.is_list(kind)):
        return None
    children = (column.keys, column.items) if pa.types.is_map(kind) else (column.values,)
    masks = [bad_mask(child) for child in children if child.type == pa.utf8()]
    if all(mask is None for mask in masks):
        return None
    offsets = np.asarray(column.offsets)
    bad = np.zeros(len(column), dtype=np.bool_)
    for mask in masks:
        if mask is not None:
            counts = np.concatenate([[0], np.cumsum(mask)])
            bad |= counts[offsets[1:]] > counts[offsets[:-1]]
    return bad
