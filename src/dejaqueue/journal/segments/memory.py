"""The maps of segments as memory: one array over all of it, and Arrow buffers of each.

Room: journal. Knows addresses.
Holds: nothing here keeps a map alive but a Memory its own.
See: segment.py, gather.py.
"""

from __future__ import annotations

import mmap
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SLICE_BITS: Final = 30
"""A view array's offset is int32, so larger segments are several Arrow buffers."""
_SLICE_BYTES: Final = (1 << 31) - 1


class AddressSpace:
    """This process's memory as arrays, indexed by address.

    Rows asked together lie in many segments: 1,000 random rows of 100 M messages touch every one of
    170 segments. A numpy call per segment would cost 60 µs each; so the maps of all segments are
    read through one array, and a segment is only a base address. Nothing here keeps a map alive:
    whoever indexes holds the SegmentList.

    Attributes:
        words: int32 array; place k is the word at address 4 k + 4096.
        anywhere: int32 array with a step of one byte: 4 bytes at any address - 4096.
        flags: uint8 array; place k is the byte at address k + 4096.
    """

    def __init__(self) -> None:
        self.words: npt.NDArray[np.int32] = self._array("<i4", _ADDRESSES // 4, 4)
        self.anywhere: npt.NDArray[np.int32] = self._array("<i4", _ADDRESSES, 1)
        self.flags: npt.NDArray[np.uint8] = self._array("|u1", _ADDRESSES, 1)

    @staticmethod
    def _array(kind: str, count: int, step: int) -> npt.NDArray[Any]:
        class Described:
            __array_interface__: ClassVar[dict[str, Any]] = {
                "data": (_FIRST_ADDRESS, True),
                "shape": (count,),
                "strides": (step,),
                "typestr": kind,
                "version": 3,
            }

        return np.asarray(Described())


_FIRST_ADDRESS: Final = 4096
_ADDRESSES: Final = (1 << 48) - 2 * _FIRST_ADDRESS
SPACE: Final = AddressSpace()


def address_of(array: npt.NDArray[Any]) -> int:
    """Place of an array's first byte in SPACE."""
    return int(array.__array_interface__["data"][0]) - _FIRST_ADDRESS


class Memory:
    """The mapped bytes of a segment.

    Attributes:
        view: all of it.
        address: place of its first byte in SPACE, a multiple of 4096.
        buffers: Arrow buffers over the bytes; buffer k starts at k << 30, since the offset in a
            view is int32.
    """

    __slots__ = ("address", "buffers", "view")

    def __init__(self, content: mmap.mmap, byte_count: int) -> None:
        self.view = memoryview(content)[:byte_count]
        self.address = address_of(np.frombuffer(content, np.uint8))
        whole = pa.py_buffer(content)
        starts = range(0, byte_count, 1 << SLICE_BITS)
        self.buffers = [whole.slice(at, min(_SLICE_BYTES, byte_count - at)) for at in starts]
