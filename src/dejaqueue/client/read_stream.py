"""A stream of rows that a broker answers with (DoGet), which is left when the broker is silent.

Nothing says of such a stream how long its next batch may take: a scan looks through as much as it
has to. So whoever waits for one is watched, and its opening, which cannot be broken off, is a call
that may be left (call_threads.py).

Room: client. Knows Flight's reader; not what rows are.
Holds: what was left is broken off, however late it opens; a stream that ended, or that nobody reads
any more, is cancelled; it waits only while it is read.
See: flight_transport.py and flight/owner_calls.py, which open them; silence_watch.py.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyarrow import flight

from dejaqueue.client.flight_errors import error_of
from dejaqueue.client.replies import CLOCK
from dejaqueue.errors import DejaQError, Unavailable

Batch = TypeVar("Batch")


class ReadStream(Generic[Batch]):
    """An open stream of rows. Returns when its schema has come.

    Args:
        get: opens it; may wait for the broker.
        shape: what becomes of the rows of each batch.
        call: makes a call on a thread that may wait for it; raises what that one raises, or
            Unavailable when the broker gives no sign of life.
        begin: has whoever watches look at this one, each time that it waits.

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
        call: Callable[[Callable[[], None]], object],
        begin: Callable[[ReadStream[Any]], object],
    ) -> None:
        self._shape, self._begin = shape, begin
        self._mutex = threading.Lock()
        self._reader: flight.FlightStreamReader | None = None
        self._is_left = False
        self._since_us: int | None = None
        self._end: DejaQError | None = None
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

    def waits_since_us(self) -> int | None:
        """Since when a batch is waited for; see silence_watch.py."""
        return self._since_us

    def ended(self, error: DejaQError | None) -> None:
        """Nothing comes any more: whoever waits gets this error."""
        self._end = error or Unavailable("the stream was given up")
        self.cancel()

    def batches(self) -> Iterator[Batch]:
        """All of it, once. Raises what the broker says, and what ended it."""
        try:
            while (chunk := self._next()) is not None:
                yield self._shape(chunk.data)
        finally:
            self.cancel()

    def _next(self) -> flight.FlightStreamChunk | None:
        """The next batch; None = there are no more."""
        assert self._reader is not None
        self._since_us = CLOCK.now_us()
        self._begin(self)
        try:
            return self._reader.read_chunk()
        except StopIteration:
            if self._end is not None:
                raise self._end from None
            return None
        except Exception as wrong:  # noqa: BLE001 - whatever it is, the stream is over
            raise self._end or error_of(wrong) from None
        finally:
            self._since_us = None

    def cancel(self) -> None:
        """Read no more of it. Twice is fine."""
        with self._mutex:
            self._is_left = True
            reader = self._reader
        if reader is not None:
            reader.cancel()


class ReadStreams:
    """The streams of rows of one connection, for whoever watches it.

    Args:
        sent: tells that one that watches to look.
    """

    def __init__(self, sent: Callable[[], None]) -> None:
        self._sent = sent
        self._mutex = threading.Lock()
        self._open: weakref.WeakSet[ReadStream[Any]] = weakref.WeakSet()

    def open(
        self,
        get: Callable[[], flight.FlightStreamReader],
        shape: Callable[[Any], Batch],
        call: Callable[[Callable[[], None]], object],
    ) -> ReadStream[Batch]:
        """Open one; see ReadStream."""
        return ReadStream(get, shape, call, self._begin)

    def _begin(self, stream: ReadStream[Any]) -> None:
        with self._mutex:
            self._open.add(stream)
        self._sent()

    def are_open(self) -> list[ReadStream[Any]]:
        """Those that somebody has, and has read of."""
        with self._mutex:
            return list(self._open)
