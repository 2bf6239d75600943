"""A DoPut stream: batches in, replies out, reading ahead while earlier batches become durable.

Room: flight. One thread reads (gRPC's), one writes replies.
Holds: as many replies as batches, each with its batch's number; the stream ends after the last
reply.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue.broker.writer import Writer
from dejaqueue.errors import BadRequest, ResourceExhausted
from dejaqueue.flight.sharded import ShardedTarget
from dejaqueue.wire import frames
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply


class _Replies:
    """The replies of a stream on their way to its client."""

    def __init__(self, writer: flight.FlightMetadataWriter) -> None:
        self._writer = writer
        self._queue: SimpleQueue[Reply | None] = SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._all_answered = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="dejaq-replies", daemon=True)
        self._thread.start()

    def expect(self) -> None:
        """One more batch is being worked on."""
        with self._lock:
            self._waiting += 1

    def put(self, reply: Reply) -> None:
        """Called by the workers; does not block."""
        self._queue.put(reply)

    def finish(self) -> None:
        """Return when every expected reply was sent, or the client is gone."""
        with self._lock:
            self._ended = True
            done = self._waiting == 0
        if done:
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        broken = False
        while True:
            reply = self._queue.get()
            if reply is None:
                return
            if not broken:
                try:
                    self._writer.write(pa.py_buffer(frames.encode(reply)))
                except (pa.ArrowException, OSError):
                    broken = True  # the client is gone; its batches are durable all the same
            with self._lock:
                self._waiting -= 1
                if self._ended and self._waiting == 0:
                    return


def serve_writer(
    target: Writer | ShardedTarget,
    stream: WriteStream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.FlightMetadataWriter,
    check_caller: Callable[[], None] = lambda: None,
) -> None:
    """Serve one stream until the client is done.

    Args:
        check_caller: raises Unauthenticated if the caller's key was revoked; asked for each batch.

    Raises:
        BadRequest: the schema is wrong. Unauthenticated. ResourceExhausted: there is no memory.
    """
    target.check_schema(_schema_of(reader))
    replies = _Replies(writer)
    wants_replies = stream.acks != "none"
    counted = 0
    try:
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                break
            except MemoryError:
                text = "no memory to read the batch (server.memory_bytes_max); send smaller ones"
                raise ResourceExhausted(text, 1_000) from None
            except (pa.ArrowException, OSError):
                break  # the client went away in the middle of a batch: it was never sent whole
            check_caller()
            counted += 1
            if chunk.data is None:
                raise BadRequest("batch", "a record batch", "metadata alone")
            number = counted
            if chunk.app_metadata is not None:
                if len(chunk.app_metadata) != 4:
                    limit = "a batch number in 4 bytes, little-endian"
                    raise BadRequest("app_metadata", limit, bytes(chunk.app_metadata))
                number = int.from_bytes(chunk.app_metadata, "little")
            if wants_replies:
                replies.expect()
            target.submit(number, chunk.data, replies.put)
    finally:
        replies.finish()


def _schema_of(reader: flight.MetadataRecordBatchReader) -> pa.Schema:
    try:
        return reader.schema
    except pa.ArrowInvalid as wrong:
        raise BadRequest("schema", "an Arrow schema, first in the stream", str(wrong)) from None
