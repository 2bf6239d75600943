"""Which bytes of a payload a request asks for, and in which parts they are.

Room: http. Pure.
Holds: a range is one stretch; what asks for several, or in other units, gets the whole, as RFC 9110
lets a server do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dejaqueue.schema.payload_parts import PartList

_RANGE = re.compile(r"bytes=(\d{0,12})-(\d{0,12})", re.ASCII)


def asked_range(header: str, byte_count: int) -> tuple[int, int]:
    """The first byte, and that behind the last one; they are not in order if there are none.

    >>> asked_range("bytes=2-4", 10), asked_range("bytes=-3", 10), asked_range("", 10)
    ((2, 5), (7, 10), (0, 10))
    """
    found = _RANGE.fullmatch(header.strip())
    if found is None or found.group(1, 2) == ("", ""):
        return 0, byte_count
    first, last = found.group(1, 2)
    if not first:
        return max(0, byte_count - int(last)), byte_count
    end = byte_count if not last else min(byte_count, int(last) + 1)
    return int(first), end


def slices_of(parts: PartList, first: int, end: int) -> Iterator[tuple[int, slice]]:
    """Yield (part, what of it) for bytes from `first` to before `end`."""
    for index in range(first // parts.part_bytes, -(-end // parts.part_bytes)):
        begins = index * parts.part_bytes
        yield index, slice(max(0, first - begins), min(parts.part_bytes, end - begins))
