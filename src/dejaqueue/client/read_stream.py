"""A stream of rows that a broker answers with (DoGet), which is left when the broker is silent.

Nothing says of such a stream how long its next batch may take: a scan looks through as much as it
has to. So each step of it, the opening too, is a call that may be left (call_threads.py).

Room: client. Knows Flight's reader; not what rows are.
Holds: what was left is broken off, however late it opens; a stream that ended, or that nobody reads
any more, is cancelled.
See: flight_transport.py and flight/forwarding.py, which open them; silence_watch.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyarrow import flight

Batch = TypeVar("Batch")


class ReadStream(Generic[Batch]):
    """An open stream of rows. Returns when its schema has come.

    Args:
        get: opens it; may wait for the broker.
        shape: what becomes of the rows of each batch.
        call: makes one step on a thread that may wait for it; raises what the step raises, or
            Unavailable when the broker gives no sign of life.

    Attributes:
        schema: of all batches.

    Raises:
        What `call` raises.
    """

    schema: pa.Schema

    def __init__(
        self,
        get: Callable[[], flight.FlightStreamReader],
        shape: Callable[[Any], Batch],
        call: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self._shape, self._call = shape, call
        self._mutex = threading.Lock()
        self._reader: flight.FlightStreamReader | None = None
        self._is_left = False
        try:
            call(lambda: self._open(get))
        except BaseException:
            self.cancel()
            raise

    def _open(self, get: Callable[[], flight.FlightStreamReader]) -> None:
        reader = get()
        schema = reader.schema
        with self._mutex:
            self._reader, self.schema = reader, schema
            is_left = self._is_left
        if is_left:
            reader.cancel()

    def _next(self) -> tuple[Batch] | None:
        """The next batch; None = there are no more."""
        assert self._reader is not None
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return None
        return (self._shape(chunk.data),)

    def batches(self) -> Iterator[Batch]:
        """All of it, once. Raises what `call` raises."""
        try:
            while (found := self._call(self._next)) is not None:
                yield found[0]
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Read no more of it. Twice is fine."""
        with self._mutex:
            self._is_left = True
            reader = self._reader
        if reader is not None:
            reader.cancel()
