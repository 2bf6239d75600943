"""A DoPut stream: batches in, replies out, reading ahead while earlier batches become durable.

Room: flight. One thread reads (gRPC's); another writes while there are replies (senders.py).
Holds: as many replies as batches, each with its batch's number; the stream ends after the last
reply.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue.access.quotas import BYTES, Account, Opening
from dejaqueue.broker.requests import ReplyTo
from dejaqueue.broker.writer import Writer
from dejaqueue.errors import BadRequest, ResourceExhausted
from dejaqueue.flight.senders import Lane
from dejaqueue.flight.sharded import ShardedTarget
from dejaqueue.wire import frames
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

log = logging.getLogger("dejaqueue.flight")


class _Replies:
    """The replies of a stream on their way to its client."""

    def __init__(self, writer: flight.FlightMetadataWriter) -> None:
        self._writer = writer
        self._lane: Lane[Reply] = Lane(self._send)
        self._waiting = 0
        self._lock = threading.Lock()
        self._all_answered: threading.Event | None = None
        self._is_broken = False

    def expect(self) -> None:
        """One more batch is being worked on."""
        with self._lock:
            self._waiting += 1

    def put(self, reply: Reply) -> None:
        """Called by the workers; does not block."""
        self._lane.put(reply)

    def finish(self) -> None:
        """Return when every expected reply was sent, or the client is gone."""
        with self._lock:
            self._all_answered = threading.Event()
            if not self._waiting:
                self._all_answered.set()
        self._all_answered.wait()
        self._lane.finish()

    def _send(self) -> bool:
        reply = self._lane.take()
        try:
            if reply is not None and not self._is_broken:
                self._writer.write(pa.py_buffer(frames.encode(reply)))
        except (pa.ArrowException, OSError):
            self._is_broken = True  # the client is gone; its batches are durable all the same
        except Exception:  # our bug: who waits for the end must not wait for ever
            self._is_broken = True
            log.exception("a reply could not be written")
        with self._lock:
            self._waiting -= 1
            if not self._waiting and self._all_answered is not None:
                self._all_answered.set()
        return True


def serve_writer(
    target: Writer | ShardedTarget,
    stream: WriteStream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.FlightMetadataWriter,
    opening: Opening,
    check_caller: Callable[[], None] = lambda: None,
) -> None:
    """Serve one stream until the client is done.

    Args:
        opening: of this stream, of whoever sends.
        check_caller: raises Unauthenticated if the caller's key was revoked; asked for each batch.

    Raises:
        BadRequest: the schema is wrong. Unauthenticated. ResourceExhausted: there is no memory.
    """
    opening.opened()  # the schema may have to be waited for
    target.check_schema(reader.schema)
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
            _submit(target, stream, number, chunk.data, replies, opening.account)
    finally:
        replies.finish()
        opening.closing()


def _submit(
    target: Writer | ShardedTarget,
    stream: WriteStream,
    number: int,
    batch: pa.RecordBatch,
    replies: _Replies,
    account: Account,
) -> None:
    """Have a batch written if its sender's quotas let it."""
    reply_to: ReplyTo = replies.put
    try:
        if stream.op == "enqueue":
            account.take_rows(batch.num_rows)
        if account.limit(BYTES) and stream.acks != "none":
            byte_count = batch.get_total_buffer_size()
            account.hold_bytes(byte_count)
            reply_to = partial(_give_back, account, byte_count, replies.put)
    except ResourceExhausted as full:
        if stream.acks != "none":
            replies.put(Reply(number, batch.num_rows, error=full))
        return
    target.submit(number, batch, reply_to)


def _give_back(account: Account, byte_count: int, reply_to: ReplyTo, reply: Reply) -> None:
    """A batch was answered: its bytes are gone."""
    account.give_bytes(byte_count)
    reply_to(reply)
