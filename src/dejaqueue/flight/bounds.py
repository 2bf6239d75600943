"""How many streams are open at once, and how much a call may hold.

Room: flight.
Holds: a stream beyond the bound is refused at once, and those that are open go on.
See: generations.py, which waits at a stop for those that owe their client something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.errors import BadRequest, ResourceExhausted

RETRY_MS = 1_000


class OpenStream:
    """A stream that is open.

    Attributes:
        owes: True while its client waits for something that is on its way; False while the stream
            waits for its client.
    """

    def __init__(self) -> None:
        self.owes: Callable[[], bool] = lambda: False


class OpenStreams:
    """Knows the streams that are open.

    Args:
        count_max: streams at once.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._mutex = threading.Lock()
        self._open: set[OpenStream] = set()

    @property
    def count(self) -> int:
        """Streams that are open."""
        return len(self._open)

    @contextmanager
    def opened(self) -> Iterator[OpenStream]:
        """A stream, while it is open. Raises ResourceExhausted."""
        stream = OpenStream()
        with self._mutex:
            if self.count >= self._count_max:
                raise ResourceExhausted(
                    f"{self._count_max} streams are open, the limit of this broker", RETRY_MS
                )
            self._open.add(stream)
        try:
            yield stream
        finally:
            with self._mutex:
                self._open.discard(stream)

    def idle_count(self) -> int:
        """How many of them owe their clients nothing."""
        with self._mutex:
            streams = list(self._open)
        return sum(not stream.owes() for stream in streams)


def bounded(content: pa.Buffer | None, field: str) -> bytes:
    """The bytes, if they are not too many: parsing takes many times their size."""
    if content is None:
        return b""
    if content.size > limits.ACTION_BYTES_MAX:
        raise BadRequest(field, f"at most {limits.ACTION_BYTES_MAX} bytes", content.size)
    return bytes(content.to_pybytes())
