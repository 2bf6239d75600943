"""A DoExchange stream: deliveries out; credit, settles and pings in.

Room: flight. One thread reads frames (gRPC's); another sends while there is something to send
(senders.py), and reads the payloads from the journal: the partition's worker waits for no disk.
Holds: frames are sent in the order they were queued; after Close nothing is delivered. A settle
that cannot be read is answered, and the stream goes on.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue.access.gate import Permit
from dejaqueue.access.quotas import Opening
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import ConsumerSession, Push, readable_batches
from dejaqueue.errors import BadRequest, DejaQError, Unauthenticated, Unavailable
from dejaqueue.flight.bounds import OpenStream
from dejaqueue.flight.senders import Lane
from dejaqueue.flight.sharded import ShardedBroker
from dejaqueue.flight.sharded_session import ShardedSession
from dejaqueue.schema.messages import DELIVERY
from dejaqueue.wire import frames
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import (
    Close,
    Credit,
    DeliveryHead,
    Frame,
    Ping,
    Reply,
    Settle,
    StreamError,
)

NO_MEMORY_RETRY_MS = 1_000

Stop = Callable[[], None]


class _Outbound:
    """What is on its way to a consumer. `push` and `put` do not block."""

    def __init__(
        self, broker: Broker | ShardedBroker, writer: flight.MetadataRecordBatchWriter
    ) -> None:
        self._broker = broker
        self._writer = writer
        self._lane: Lane[Push | Frame] = Lane(self._send, is_open=False)
        self.permit: Permit | None = None

    def owes(self) -> bool:
        """True while something is on its way to the client."""
        return not self._lane.is_quiet

    def start(self) -> None:
        """Open the stream and send what is queued."""
        self._writer.begin(DELIVERY)
        self._lane.open()

    def push(self, push: Push) -> None:
        """Send leased rows."""
        self._lane.put(push)

    def end(self, error: DejaQError) -> None:
        """Say why nothing more comes."""
        self._lane.put(StreamError(error))
        self._lane.put(Close())

    def put(self, frame: Frame) -> None:
        """Send a frame."""
        self._lane.put(frame)

    def finish(self) -> None:
        """Send what is queued, then end."""
        self._lane.finish()

    def _next(self) -> list[Push] | Frame | None:
        """What is to be sent next: a frame, or all pushes of one partition that wait in a row."""
        queued = self._lane.take()
        if not isinstance(queued, Push):
            return queued
        pushes, rows = [queued], len(queued.leased.sequences)
        rows_max = queued.rows_max
        while (more := self._lane.take()) is not None:
            if isinstance(more, Push) and more.journal is queued.journal:
                rows += len(more.leased.sequences)
                if rows <= rows_max:
                    pushes.append(more)
                    continue
            self._lane.put_back(more)
            break
        return pushes

    def _send(self) -> bool:
        queued = self._next()
        try:
            if isinstance(queued, list):
                self._deliver(queued)
            elif queued is not None:
                self._writer.write_metadata(pa.py_buffer(frames.encode(queued)))
        except MemoryError:
            # Compressed batches may take all that Flight has, for a moment. What was not sent comes
            # back when its leases end; its credit would not, so the client opens anew.
            self.end(Unavailable("there is no memory to send a delivery", NO_MEMORY_RETRY_MS))
        except (pa.ArrowException, OSError):
            return False  # the client is gone; what it was sent comes back when its leases end
        except Unauthenticated:
            pass  # the key was revoked: `key_ends` gives the leases back, and says so
        return True

    def _deliver(self, pushes: list[Push]) -> None:
        if self.permit is not None:
            self.permit.check()
        batches = readable_batches(pushes, self._broker.clock.utc_ms())
        for push, batch in zip(pushes, batches, strict=True):
            if batch.num_rows == 0:
                continue
            leased = push.leased
            head = DeliveryHead(
                push.partition,
                batch.num_rows,
                leased.lease_id,
                leased.lease_end_ms,
                self._broker.clock.utc_us(),
            )
            self._writer.write_with_metadata(batch, pa.py_buffer(frames.encode(head)))


def serve_consumer(
    broker: Broker | ShardedBroker,
    options: ConsumeStream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.MetadataRecordBatchWriter,
    stops: tuple[Callable[[Stop], None], Callable[[Stop], None]],
    admit: Callable[[Callable[[Unauthenticated], None]], Permit],
    opening: Opening,
    open_stream: OpenStream,
) -> None:
    """Serve one consumer until either side is done.

    Args:
        stops: have a function called when the server stops, and not any more.
        admit: Gate.admit of the caller.
        opening: of this stream.
        open_stream: is told how to find out whether the consumer waits for something.
    """
    register, unregister = stops
    outbound = _Outbound(broker, writer)
    open_stream.owes = outbound.owes
    session = broker.open_consume(options, outbound)

    def broker_stops() -> None:
        outbound.end(Unavailable("the broker is stopping", 1_000))

    def key_ends(error: Unauthenticated) -> None:
        try:
            session.close(release=True)  # first: whoever is told hangs up, which gives nothing back
        finally:
            outbound.end(error)

    release = False
    try:
        opening.opened()  # what follows may have to wait for the client
        outbound.start()
        register(broker_stops)
        with admit(key_ends) as permit:
            outbound.permit = permit
            release = _read_frames(session, outbound, reader, permit)
            opening.closing()
    finally:
        unregister(broker_stops)
        moved = session.close(release=release)
        if moved is not None:
            outbound.end(moved)  # what it has is to be given back there
        opening.closed()  # what is still to be sent may have to wait for the client
        outbound.finish()


def _read_frames(
    session: ConsumerSession | ShardedSession,
    outbound: _Outbound,
    reader: flight.MetadataRecordBatchReader,
    permit: Permit,
) -> bool:
    """Read until the client is done; True if it said so."""
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return False
        except (pa.ArrowException, OSError):
            return False
        try:
            permit.check()
        except Unauthenticated as ended:
            outbound.end(ended)
            return True
        if chunk.app_metadata is None:
            outbound.put(StreamError(BadRequest("frame", "a frame in app_metadata", "none")))
            return False
        content = memoryview(chunk.app_metadata)
        try:
            frame = frames.decode(content)
        except BadRequest as wrong:
            number = frames.settle_number(content)
            if number is None:
                outbound.put(StreamError(wrong))
                return False
            # One settle is wrong, and changed nothing: the leases of the others stay as they are.
            outbound.put(Reply(number, error=wrong))
            continue
        match frame:
            case Credit():
                session.credit(frame.rows)
            case Settle():
                session.settle(frame, outbound.put)
            case Ping():
                outbound.put(session.ping(frame))
            case Close():
                return True
            case _:
                limit = "credit, settle, ping or close"
                outbound.put(StreamError(BadRequest("frame.type", limit, frame)))
                return False
