"""Arrow columns of plain values, made from their bytes.

Room: schema.
Holds: the columns are those that `pa.array` makes, without nulls.

`pa.array` looks for pandas when it is first called, and imports it where it is installed: half a
second that the first message of a process would wait for. What is made from buffers does not.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FEW = 64
"""Offsets of fewer values are added up faster in Python: 1.4 µs for one, where numpy takes 5.3."""


def int64_column(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    """A column over the memory of the array, shape (n,)."""
    buffer = pa.py_buffer(np.ascontiguousarray(values, dtype=np.int64))
    return pa.Array.from_buffers(pa.int64(), len(values), [None, buffer])


def uint16_column(values: Sequence[int]) -> pa.UInt16Array:
    """A column of whole numbers from 0 to 65535. Raises OverflowError for any other."""
    buffer = pa.py_buffer(np.array(values, dtype=np.uint16))
    return pa.Array.from_buffers(pa.uint16(), len(values), [None, buffer])


def optional_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column in which None is null; made from its bytes where it is all null, or full texts."""
    missing = values.count(None)
    if missing == len(values):
        return pa.nulls(len(values), kind)
    if kind == pa.utf8() and not missing:
        return text_column(values)
    return pa.array(values, kind)


def binary_column(values: Sequence[bytes]) -> pa.BinaryArray:
    """A column of these bytes, which are copied once."""
    offsets: array[int] | npt.NDArray[np.int32]
    if len(values) < FEW:
        offsets = array("i", accumulate(map(len, values), initial=0))
    else:
        offsets = np.zeros(len(values) + 1, dtype=np.int32)
        np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def text_column(values: Sequence[str]) -> pa.StringArray:
    """A column of these texts."""
    return utf8_column([value.encode() for value in values])


def utf8_column(values: Sequence[bytes]) -> pa.StringArray:
    """A column of texts that are UTF-8 already; whether they are is not looked at."""
    column = binary_column(values)
    return pa.Array.from_buffers(pa.utf8(), len(values), column.buffers())
