"""A consumer's lane: its deliveries and settles over a plain stream instead of Flight.

Room: client. One connection for each consumer, so that none waits for another that is slow.
Holds: one thread reads; whoever settles writes; a future of a broken lane ends with Unavailable;
`close` twice is fine.
See: lane.py for the connection; http/lane_consumer.py for the other side; flight_transport.py.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pyarrow as pa

from dejaqueue.client.flight_errors import as_seen
from dejaqueue.client.lane import PlainConnection, frames_of, how_it_ended
from dejaqueue.client.replies import CLOCK, Replies, fail
from dejaqueue.client.transport import Delivery
from dejaqueue.errors import BadRequest, DejaQError, InternalError, Unavailable
from dejaqueue.schema.arrival import is_layout_of_texts
from dejaqueue.wire import frames, lane
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import DeliveryHead, Ping, Pong, Reply, Settle, StreamError


class LaneConsumeChannel(Replies):
    """An open consumer.

    Args:
        connection: that has become a lane.
        rest: what came of it already.
    """

    def __init__(
        self,
        connection: PlainConnection,
        rest: bytes,
        stream: ConsumeStream,
        on_delivery: Callable[[Delivery], None],
        on_pong: Callable[[Pong], None],
        on_end: Callable[[DejaQError | None], None],
    ) -> None:
        super().__init__()
        self._connection, self._held = connection, rest
        self._on_delivery, self._on_pong, self._on_end = on_delivery, on_pong, on_end
        self._schema: pa.Schema | None = None
        self._is_quiet = False  # the broker closed the lane, and said nothing against it
        self._write(lane.encode_open(stream))
        self.start(f"deliveries-{stream.topic}", self._read)

    def _write(self, content: bytes) -> bool:
        """Write a frame; False if the lane is over. Call under the mutex."""
        if self.end is not None or self.closing:
            return False
        try:
            self._connection.send(content)
        except (OSError, ValueError):
            self._connection.shut()  # the reading thread tells what it was
            return False
        return True

    def _say(self, frame: frames.Frame) -> bool:
        return self._write(lane.with_length(frames.encode(frame)))

    def credit(self, rows: int) -> None:
        """Take this many rows more."""
        with self.mutex:
            self._say(frames.Credit(rows))

    def settle(self, settle: Settle) -> Future[Reply]:
        """ack, nack or extend; number 0 = no reply, the future is done at once."""
        reply: Future[Reply] = Future()
        with self.mutex:
            if settle.number:
                reply = self.register(settle.number)
            written = self._say(settle)
            if not written:
                self.pending.pop(settle.number, None)
        if not written:
            fail(reply, self.end or Unavailable("the stream broke"))
        elif not settle.number:
            reply.set_result(Reply(0))
        return reply

    def ping(self, ping: Ping) -> None:
        """Measure the clock offset; the answer goes to `on_pong`."""
        with self.mutex:
            self._say(ping)

    def _read(self) -> None:
        error: DejaQError | None = how_it_ended(self._hear)
        self._connection.shut()  # first: a thread that cannot write holds the mutex
        with self.mutex:  # nobody writes any more; the broker may answer `close` before it returns
            closed = self.closing
        self.is_whole = closed and self._is_quiet
        self.ended(error)
        with self.mutex:
            self._connection.close()
        self._on_end(None if closed else error)

    def _hear(self) -> None:
        for content in frames_of(self._connection, self._held):
            self.heard_us = CLOCK.now_us()
            if self._schema is None and lane.kind_of(content) == lane.OPENED:
                self._schema = lane.decode_opened(content)
                continue
            frame = lane.decode_reply(content)
            match frame:
                case DeliveryHead():
                    self._on_delivery(self._delivery(frame, content))
                case Reply():
                    self.answer(frame)
                case Pong():
                    self._on_pong(frame)
                case StreamError():
                    raise as_seen(frame.error)
                case frames.Close():
                    break
                case _:
                    raise InternalError(f"a consumer's lane got a {type(frame).__name__}")
        self._is_quiet = True

    def _delivery(self, head: DeliveryHead, content: bytes) -> Delivery:
        if self._schema is None:
            raise InternalError("a lane got rows before their schema")
        try:
            rows = lane.decode_rows(content, self._schema)
            return Delivery(head, rows, is_layout_of_texts(rows))
        except BadRequest as malformed:
            # What broke them may pass.
            raise Unavailable(
                f"the broker sent rows that are no valid Arrow: {malformed}"
            ) from None

    def abandon(self) -> None:
        """End as if the connection broke: leases go on to their end."""
        with self.mutex:
            self.closing = True
        self._connection.shut()

    def break_off(self, error: DejaQError) -> None:
        """The broker gives no sign of life: end as if the connection broke."""
        self._connection.shut()  # first: a thread that cannot write holds the mutex
        self.ended(error)

    def close(self) -> bool:
        """End; leases still held end at once. Twice is fine. See ConsumeChannel.close."""
        with self.mutex:
            if not self.closing and self.end is None:
                self._say(frames.Close())
            self.closing = True
        if not self.join():
            self._connection.shut()
            self.join()
            return False
        return self.is_whole
