"""A consumer on a lane: deliveries out; credit, settles and pings in.

Room: http. On the event loop, but for what the broker calls: `push`, `end` and replies to settles.
Payloads are read from the journal on threads that senders share, as for Flight's consumers; what
is at hand needs no read, and is written at once.
Holds: frames are written in the order they were queued; after Close nothing is delivered; while
the client does not read, no payload is read for it. A settle that cannot be read is answered, and
the lane goes on.
See: lane.py, whose frames these are; flight/consume.py, the same over Flight.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol, TypeAlias

import pyarrow as pa

from dejaqueue.access import audit, rules
from dejaqueue.access.gate import Gate, Permit
from dejaqueue.access.roles import Principal
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import ConsumerSession, Push, is_at_hand, readable_batches
from dejaqueue.errors import BadRequest, DejaQError, Unauthenticated, Unavailable
from dejaqueue.flight.consume import NO_MEMORY_RETRY_MS
from dejaqueue.flight.senders import SENDERS, Senders
from dejaqueue.schema.messages import DELIVERY
from dejaqueue.wire import frames, lane
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

log = logging.getLogger("dejaqueue.http")

Content: TypeAlias = bytes | pa.Buffer
_Queued: TypeAlias = Push | tuple[bytes, int] | None
"""Rows; or a frame, and how many it answers; None = the end."""


_NOTHING: list[Push | None] = []
AT_HAND_MAX = 32
"""Deliveries that are written in one go without a look at whether the client takes them."""


class LanePort(Protocol):
    """What a consumer needs of its lane."""

    def asks(self) -> None:
        """One frame more is to be answered."""
        ...

    def tell(self, contents: Sequence[Content], answers: int) -> None:
        """Write these; so many of them answer a frame."""
        ...

    def end(self, error: DejaQError) -> None:
        """Say why it is over, and close."""
        ...

    def finish(self) -> None:
        """Take nothing more; close when what was asked is answered."""
        ...


class LaneConsumer:
    """One consumer.

    Args:
        options: who consumes, and how.
        call: runs a call on the loop, from any thread.

    Raises:
        Forbidden, TopicUnknown, Elsewhere, ResourceExhausted.
    """

    def __init__(
        self,
        port: LanePort,
        broker: Broker,
        gate: Gate,
        who: tuple[Principal, str],
        options: ConsumeStream,
        call: Callable[[Callable[[], None]], None],
        senders: Senders = SENDERS,
    ) -> None:
        self._port, self._clock = port, broker.clock
        self._call, self._senders = call, senders
        self._queue: deque[_Queued] = deque()
        self._is_planned = False
        self._is_reading = False
        self._is_slow = False
        self._is_over = False
        caller, peer = who
        with audit.recorded(caller.name, peer, "consume", options.topic):
            rules.require_consume(caller, options)
        self._session: ConsumerSession = broker.open_consume(options, self)
        self._open = ExitStack()
        self._permit: Permit = self._open.enter_context(gate.admit(caller, self._key_ends))
        port.tell([lane.encode_opened(DELIVERY)], 0)

    # --- the broker's side, any thread --------------------------------------------------------

    def push(self, push: Push) -> None:
        """Send leased rows."""
        self._put(push)

    def end(self, error: DejaQError) -> None:
        """Say why nothing more comes."""
        self.put(StreamError(error))
        self.put(Close())
        self._put(None)

    def put(self, frame: Frame) -> None:
        """Send a frame that answers none."""
        self._put((lane.with_length(frames.encode(frame)), 0))

    def _reply(self, reply: Reply) -> None:
        self._put((lane.encode_reply(reply, reply.number), 1))

    def _put(self, queued: _Queued) -> None:
        self._queue.append(queued)
        if not self._is_planned:
            self._is_planned = True
            self._call(self._write)

    def _key_ends(self, error: Unauthenticated) -> None:
        try:
            # First: whoever is told hangs up, which gives nothing back.
            self._session.close(release=True)
        finally:
            self.end(error)

    # --- what goes ------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write what waits, up to the next rows, which are read first."""
        self._is_planned = False  # first: what comes from here on is written now, or planned anew
        if self._is_reading or self._is_slow:
            return
        written: list[Content] = []
        now_ms = self._clock.utc_ms()
        answers, at_hand, queue, behind = 0, 0, self._queue, _NOTHING
        while queue:
            queued = queue.popleft()
            if isinstance(queued, tuple):
                written.append(queued[0])
                answers += queued[1]
            elif queued is None or at_hand == AT_HAND_MAX or not is_at_hand(queued, now_ms):
                behind = [queued]
                break
            else:
                at_hand += 1
                written += self._contents([queued])
        if written:
            self._port.tell(written, answers)
        for queued in behind:
            if queued is None:
                self._port.finish()
            else:
                self._read(queued)

    def _read(self, first: Push) -> None:
        """Have these rows read, and those of the same partition that wait right behind."""
        queue, pushes, rows = self._queue, [first], len(first.leased.sequences)
        while queue and isinstance(queue[0], Push) and queue[0].journal is first.journal:
            rows += len(queue[0].leased.sequences)
            if rows > first.rows_max:
                break
            more = queue.popleft()
            assert isinstance(more, Push)
            pushes.append(more)
        self._is_reading = True
        self._senders.run(lambda: self._deliver(pushes))

    def _deliver(self, pushes: list[Push]) -> None:
        """On a thread that senders share."""
        written = self._contents(pushes)
        self._call(lambda: self._was_read(written))

    def _contents(self, pushes: list[Push]) -> list[Content]:
        """Deliveries as they are written. Does not raise."""
        written: list[Content] = []
        try:
            self._permit.check()
            batches = readable_batches(pushes, self._clock.utc_ms())
            for push, batch in zip(pushes, batches, strict=True):
                if batch.num_rows:
                    written += lane.encode_delivery(self._head(push, batch.num_rows), batch)
        except Unauthenticated:
            pass  # the key was revoked: `_key_ends` gives the leases back, and says so
        except MemoryError:
            # What was not sent comes back when its leases end; its credit would not, so the client
            # opens anew.
            self.end(Unavailable("there is no memory to send a delivery", NO_MEMORY_RETRY_MS))
        except Exception as wrong:  # a disk that fails, or our bug: likewise
            log.exception("a delivery could not be read")
            self.end(Unavailable(f"a delivery could not be read: {wrong}", NO_MEMORY_RETRY_MS))
        return written

    def _head(self, push: Push, rows: int) -> DeliveryHead:
        leased = push.leased
        return DeliveryHead(
            push.partition, rows, leased.lease_id, leased.lease_end_ms, self._clock.utc_us()
        )

    def _was_read(self, written: list[Content]) -> None:
        self._is_reading = False
        if written:
            self._port.tell(written, 0)
        if self._queue and not self._is_planned:
            # Later: only then is it known whether the client has taken these.
            self._is_planned = True
            self._call(self._write)

    def slow(self, *, is_slow: bool) -> None:
        """The client does not read, or does again."""
        self._is_slow = is_slow
        if not is_slow:
            self._write()

    # --- what comes -----------------------------------------------------------------------------

    def take(self, content: bytes) -> None:
        """One frame."""
        try:
            self._permit.check()
        except Unauthenticated as ended:
            self._session.close(release=True)  # not later: by then the client has hung up
            self._port.end(ended)
            return
        except DejaQError as unknown:
            self._port.end(unknown)
            return
        try:
            frame = frames.decode(content)
        except BadRequest as wrong:
            number = frames.settle_number(memoryview(content))
            if number is None:
                self._port.end(wrong)
                return
            # One settle is wrong, and changed nothing: the leases of the others stay as they are.
            self._port.asks()
            self._reply(Reply(number, error=wrong))
            return
        match frame:
            case Credit():
                self._session.credit(frame.rows)
            case Settle():
                if frame.number:
                    self._port.asks()
                self._session.settle(frame, self._reply)
            case Ping():
                self.put(self._session.ping(frame))
            case Close():
                moved = self._session.close(release=True)
                if moved is None:
                    self._port.finish()
                else:  # what it has is to be given back there
                    self._port.end(moved)
            case _:
                limit = "credit, settle, ping or close"
                self._port.end(BadRequest("frame.type", limit, frame))

    # --- the end --------------------------------------------------------------------------------

    def stop(self) -> None:
        """The broker stops."""
        self.end(Unavailable("the broker is stopping", 1_000))

    def close(self) -> None:
        """The lane is closed. Twice is fine."""
        if not self._is_over:
            self._is_over = True
            self._open.close()
            self._session.close(release=False)
            self._queue.clear()
