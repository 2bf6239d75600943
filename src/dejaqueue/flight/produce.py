"""A DoPut stream: batches in, replies out, reading ahead while earlier batches become durable.

Room: flight. One thread reads (gRPC's), one writes replies.
Holds: as many replies as batches, each with its batch's number; the stream ends after the last
reply. A batch that is no valid Arrow is answered, and ends the stream: nobody sends such by mistake
twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue import limits
from dejaqueue.broker.writer import Writer
from dejaqueue.errors import BadRequest, DejaQError, InternalError, ResourceExhausted
from dejaqueue.flight.sharded import ShardedTarget
from dejaqueue.schema.arrival import check_arrival
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
            done = self._waiting <= 0
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
                if self._ended and self._waiting <= 0:
                    return


def unreadable(wrong: Exception) -> DejaQError:
    """What is said of a batch that Arrow could not read. If its client is gone, nobody hears it."""
    if isinstance(wrong, MemoryError):
        text = (
            "no memory to read the batch (server.memory_bytes_max), or a compressed column of it "
            f"unpacks to more than {limits.UNPACKED_BYTES_MAX} bytes; send smaller ones"
        )
        return ResourceExhausted(text, 1_000)
    return BadRequest("batch", "a valid Arrow record batch", str(wrong))


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
        BadRequest: the schema is wrong, or what came is no valid Arrow. Unauthenticated.
        ResourceExhausted: there is no memory.
    """
    try:
        schema = reader.schema
    except (pa.ArrowException, OSError) as wrong:
        raise unreadable(wrong) from None
    target.check_schema(schema)
    replies = _Replies(writer)
    wants_replies = stream.acks != "none"
    counted = 0
    try:
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                break
            except (pa.ArrowException, OSError) as wrong:
                raise unreadable(wrong) from None
            check_caller()
            counted += 1
            if chunk.data is None:
                raise BadRequest("batch", "a record batch", "metadata alone")
            number = counted if chunk.app_metadata is None else number_of(chunk.app_metadata)
            if wants_replies:
                replies.expect()
            try:
                target.submit(number, check_arrival(chunk.data), replies.put)
            except Exception as wrong:
                # Without a reply, `finish` and the client would wait for it for ever.
                if wants_replies:
                    bug = InternalError(f"{type(wrong).__name__}: {wrong}")
                    error = wrong if isinstance(wrong, DejaQError) else bug
                    replies.put(Reply(number, chunk.data.num_rows, error=error))
                raise
    finally:
        replies.finish()


def number_of(metadata: pa.Buffer) -> int:
    """The number that the client gave a batch. Raises BadRequest."""
    if len(metadata) != 4:
        limit = "a batch number in 4 bytes, little-endian"
        raise BadRequest("app_metadata", limit, bytes(metadata))
    return int.from_bytes(metadata, "little")
