"""What a message of the load says: when it was sent, or is due; the rest is random.

Room: bench. Bytes in and out.
Holds: every payload is PAYLOAD_BYTES long, and no two are alike.
"""

from __future__ import annotations

import random
import struct

from bench.load import PAYLOAD_BYTES

WARM_US = 0
"""The time that a message of a connection's first call says: it counts for nothing."""
_HEAD = struct.Struct("<q")
_RANDOM = random.Random(20)


def payload_of(at_us: int) -> bytes:
    """A payload that says a time, in µs since 1970."""
    return _HEAD.pack(at_us) + _RANDOM.randbytes(PAYLOAD_BYTES - _HEAD.size)


def time_of(payload: bytes) -> int:
    """The time that it says, in µs since 1970."""
    return int(_HEAD.unpack_from(payload)[0])
