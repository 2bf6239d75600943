"""A DoPut stream: batches in, replies out, reading ahead while earlier batches become durable.

Room: flight. One thread reads (gRPC's); another writes while there are replies (senders.py).
Holds: as many replies as batches, each with its batch's number; the stream ends after the last
reply. A batch that is no valid Arrow is answered, and ends the stream: nobody sends such by mistake
twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue import limits
from dejaqueue.access.quotas import BYTES, Account, Opening
from dejaqueue.broker.streams import ReplyTo, Writer
from dejaqueue.errors import BadRequest, DejaQError, InternalError, ResourceExhausted
from dejaqueue.flight.bounds import OpenStream
from dejaqueue.flight.senders import Lane
from dejaqueue.flight.sharded import ShardedTarget
from dejaqueue.flight.topic_writers import Submit, TopicWriters
from dejaqueue.schema.arrival import check_arrival
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

    def owes(self) -> bool:
        """True while a batch that was read has no reply yet."""
        return self._waiting > 0

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
            self._is_broken = True  # the client is gone; its batches stay durable
        except Exception:  # our bug: `finish` must not wait for ever
            self._is_broken = True
            log.exception("a reply could not be written")
        with self._lock:
            self._waiting -= 1
            if not self._waiting and self._all_answered is not None:
                self._all_answered.set()
        return True


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
    target: Writer | ShardedTarget | TopicWriters,
    stream: WriteStream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.FlightMetadataWriter,
    opening: Opening,
    open_stream: OpenStream,
    check_caller: Callable[[], None] = lambda: None,
) -> None:
    """Serve one stream until the client is done.

    Args:
        opening: of this stream, of whoever sends.
        open_stream: is told how to find out whether the client waits for something.
        check_caller: raises Unauthenticated if the caller's key was revoked; asked for each batch.

    Raises:
        BadRequest: the schema is wrong, or what came is no valid Arrow. Unauthenticated.
        ResourceExhausted: there is no memory.
    """
    opening.opened()  # the schema may have to be waited for
    try:
        schema = reader.schema
    except (pa.ArrowException, OSError) as wrong:
        raise unreadable(wrong) from None
    target.check_schema(schema)
    replies = _Replies(writer)
    open_stream.owes = replies.owes
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
            number = counted
            submit: Submit
            if isinstance(target, TopicWriters):
                number, submit = target.addressed(chunk.app_metadata)
            else:
                submit = target.submit
                if chunk.app_metadata is not None:
                    number = number_of(chunk.app_metadata)
            if wants_replies:
                replies.expect()
            _submit(submit, stream, number, chunk.data, replies, opening.account)
    finally:
        replies.finish()
        opening.closing()


def number_of(metadata: pa.Buffer) -> int:
    """The number that the client gave a batch. Raises BadRequest."""
    if len(metadata) != 4:
        limit = "a batch number in 4 bytes, little-endian"
        raise BadRequest("app_metadata", limit, bytes(metadata))
    return int.from_bytes(metadata, "little")


def _submit(
    submit: Submit,
    stream: WriteStream,
    number: int,
    batch: pa.RecordBatch,
    replies: _Replies,
    account: Account,
) -> None:
    """Have a batch written if it is valid Arrow and its sender's quotas let it."""
    reply_to: ReplyTo = replies.put
    wants_replies = stream.acks != "none"
    try:
        check_arrival(batch)
        byte_count = batch.get_total_buffer_size() if account.is_bounded else 0
        account.take_sent(batch.num_rows if stream.op == "enqueue" else 0, byte_count)
        if account.limit(BYTES) and wants_replies:
            account.hold_bytes(byte_count)
            reply_to = partial(_give_back, account, byte_count, replies.put)
    except ResourceExhausted as full:
        if wants_replies:
            replies.put(Reply(number, batch.num_rows, error=full))
        return
    except BadRequest as malformed:
        if wants_replies:
            replies.put(Reply(number, batch.num_rows, error=malformed))
        if not stream.topic:
            return  # of a stream with many topics, the others go on
        raise
    except Exception as wrong:
        if wants_replies:
            replies.put(_reply_to_bug(number, batch, wrong))
        raise
    try:
        submit(number, batch, reply_to)
    except Exception as wrong:
        if wants_replies:
            reply_to(_reply_to_bug(number, batch, wrong))
        raise


def _reply_to_bug(number: int, batch: pa.RecordBatch, wrong: Exception) -> Reply:
    """Without a reply, `finish` and the client would wait for it for ever."""
    bug = InternalError(f"{type(wrong).__name__}: {wrong}")
    error = wrong if isinstance(wrong, DejaQError) else bug
    return Reply(number, batch.num_rows, error=error)


def _give_back(account: Account, byte_count: int, reply_to: ReplyTo, reply: Reply) -> None:
    """A batch was answered: its bytes are gone."""
    account.give_bytes(byte_count)
    reply_to(reply)
