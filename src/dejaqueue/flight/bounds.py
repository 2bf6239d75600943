"""How many streams are open at once, and how much a call may hold.

Room: flight.
Holds: a stream beyond the bound is refused at once, and those that are open go on.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import BadRequest, ResourceExhausted

RETRY_MS = 1_000


class OpenStreams:
    """Counts streams; each is a `with` block.

    Args:
        count_max: streams at once.

    Attributes:
        count: streams that are open.
    """

    def __init__(self, count_max: int) -> None:
        self.count = 0
        self._count_max = count_max
        self._mutex = threading.Lock()

    def __enter__(self) -> None:
        """Raises ResourceExhausted."""
        with self._mutex:
            if self.count >= self._count_max:
                raise ResourceExhausted(
                    f"{self._count_max} streams are open, the limit of this broker", RETRY_MS
                )
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self.count -= 1


def bounded(content: pa.Buffer | None, field: str) -> bytes:
    """The bytes, if they are not too many: parsing takes many times their size."""
    if content is None:
        return b""
    if content.size > limits.ACTION_BYTES_MAX:
        raise BadRequest(field, f"at most {limits.ACTION_BYTES_MAX} bytes", content.size)
    return bytes(content.to_pybytes())
