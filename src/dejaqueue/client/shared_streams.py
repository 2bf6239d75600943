"""Streams that carry batches of any topic: one for each kind of batch to a broker.

    channel = SharedWriteChannel(SharedStreams(open_stream), WriteStream("orders", producer="p"))
    channel.send(1, batch)      # on the stream that the batches of other topics take, too

Room: client. Numbers and addresses; the streams themselves are the transport's.
Holds: a batch keeps the number that its producer gave it, and has another one on the stream, which
finds its reply; what is wrong with one topic is a reply of its batches, and no other channel's.
See: docs/wire.md, "Streams without a topic"; ADR 38.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from dejaqueue.errors import DejaQError
from dejaqueue.wire.descriptors import Address, WriteStream, encode_address
from dejaqueue.wire.frames import Reply

STREAMS_MAX = 16
"""Streams kept open, by kind of batch; of more, the idle one unused for longest is closed."""
CLOSE_SECONDS_MAX = 10.0
"""Closing a channel waits this long for its last replies."""
_NUMBERS = 1 << 32


class Stream(Protocol):
    """An open stream without a topic."""

    @property
    def is_over(self) -> bool:
        """Nothing can be sent any more."""
        ...

    @property
    def is_idle(self) -> bool:
        """No reply is waited for."""
        ...

    def send(self, number: int, batch: pa.RecordBatch, address: bytes) -> Future[Reply]:
        """Send a batch; its reply, or Unavailable if the stream breaks first."""
        ...

    def close(self) -> None:
        """Wait for replies of what was sent, then close."""
        ...


class SharedStreams:
    """The streams to one broker.

    Args:
        open_stream: opens one. Raises Unavailable.
    """

    def __init__(self, open_stream: Callable[[WriteStream], Stream]) -> None:
        self._open = open_stream
        self._mutex = threading.Lock()
        self._streams: OrderedDict[tuple[WriteStream, pa.Schema], Stream] = OrderedDict()
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        """A number that no batch has that is on its way."""
        return next(self._numbers) % _NUMBERS

    def stream(self, kind: WriteStream, schema: pa.Schema) -> Stream:
        """The stream for batches of this kind and schema. Raises Unavailable."""
        key = (kind, schema)
        crowded: list[Stream] = []
        with self._mutex:
            stream = self._streams.get(key)
            if stream is None or stream.is_over:
                stream = self._streams[key] = self._open(kind)
            self._streams.move_to_end(key)
            for old in list(self._streams):
                if len(self._streams) <= STREAMS_MAX:
                    break
                if self._streams[old].is_idle and old != key:
                    crowded.append(self._streams.pop(old))
        for idle in crowded:
            idle.close()  # who is about to send on it opens another one
        return stream


class SharedWriteChannel:
    """Batches of one producer to one topic, on a stream with those of others."""

    def __init__(self, streams: SharedStreams, stream: WriteStream) -> None:
        self._streams = streams
        self._kind = replace(stream, topic="", producer="")
        self._names = encode_address(Address(stream.topic, stream.producer))[4:]
        self._stream: Stream | None = None
        self._on_way: set[Future[Reply]] = set()

    def send(self, number: int, batch: pa.RecordBatch) -> Future[Reply]:
        """Send a batch; its reply, or Unavailable if the stream breaks first (outcome unknown)."""
        stream = self._stream
        if stream is None:
            try:
                stream = self._stream = self._streams.stream(self._kind, batch.schema)
            except DejaQError as wrong:
                refused: Future[Reply] = Future()
                refused.set_exception(wrong)
                return refused
        address = number.to_bytes(4, "little") + self._names
        reply = stream.send(self._streams.next_number(), batch, address)
        self._on_way.add(reply)
        reply.add_done_callback(self._on_way.discard)
        return reply

    def close(self) -> None:
        """Wait for replies of what was sent. Twice is fine."""
        with suppress(TimeoutError):
            for reply in self._on_way.copy():
                reply.exception(CLOSE_SECONDS_MAX)
