"""Texts and payloads as columns: where each begins, how long all are, which bytes are in them.

Room: schema. Pure; no loop over rows.
Holds: what is counted is of the column's own rows, also where it is a slice of a longer one.
See: checks.py and references.py, which go by it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def text_bytes(column: pa.Array) -> int:
    """Bytes of all texts of a binary or utf8 column together."""
    offsets = text_offsets(column)
    return int(offsets[-1] - offsets[0])


def text_offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    """The int32 offsets of a binary or utf8 column, shape (n + 1,), as they lie (not from 0)."""
    buffers = column.buffers()
    if buffers[1] is None or len(column) == 0:
        return np.zeros(len(column) + 1, dtype=np.int32)
    first, end = column.offset, column.offset + len(column) + 1
    # Only as many as there are rows: a buffer from outside may end within a number.
    return np.frombuffer(buffers[1], dtype=np.int32, count=end)[first:]


def has_byte(column: pa.Array, wanted: bytes) -> bool:
    """Whether one of these bytes is in any text of a binary or utf8 column.

    >>> texts = pa.array(["y\x1es", "no"])
    >>> has_byte(texts, b"\x1e"), has_byte(texts[1:], b"\x1e")
    (True, False)
    """
    offsets, content = text_offsets(column), column.buffers()[2]
    if content is None:
        return False
    found = bytes(memoryview(content)[int(offsets[0]) : int(offsets[-1])])
    return any(one in found for one in wanted)
