"""The lane: messages over a plain stream, which an HTTP connection becomes by an upgrade.

Room: http. On the event loop alone; answers come from workers' threads, with one wake for all that
come meanwhile.
Holds: every SEND gets one reply, when it is durable; what one connection makes the broker keep is
bounded: a frame that does not come to its end, frames that are not answered, replies that are not
read (protocol.py looks at all three); what came in one turn of the loop is handed over together.
See: docs/wire.md, "The express lane"; wire/lane.py for the frames; lane_consumer.py for a lane that
a consumer opened; ADR 43.

Who may do what, and how much of it, is decided where a Flight stream asks, too: the gate, the
quotas, `rules.require_write`, and the writer behind.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from dejaqueue import limits
from dejaqueue.access import audit, rules
from dejaqueue.access.gate import Gate, only_bearer_of
from dejaqueue.access.near_names import telling_near_names
from dejaqueue.access.quotas import BYTES, Account
from dejaqueue.access.roles import Principal
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import ReplyTo, Writer
from dejaqueue.errors import BadRequest, DejaQError, Forbidden, InternalError, Refused, Unavailable
from dejaqueue.flight.topic_writers import TopicWriters
from dejaqueue.http.bounds import Bounds
from dejaqueue.http.gather import call_soon
from dejaqueue.http.lane_consumer import Content, LaneConsumer
from dejaqueue.wire import frames, lane
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply, StreamError

log = logging.getLogger("dejaqueue.http")

NUMBER_BYTES = 4
_OF_PAGES = frozenset({b"origin", b"referer", b"sec-fetch-site"})
"""Headers that browsers send for pages."""
_NAME = lane.NAME.encode()
SWITCHING = (
    f"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: {lane.PROTOCOL}\r\n\r\n"
).encode()


class Transport(Protocol):
    """What a lane needs of a connection."""

    def write(self, content: Content, /) -> None: ...  # noqa: D102
    def writelines(self, contents: Sequence[Content], /) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def is_closing(self) -> bool: ...  # noqa: D102
    def pause_reading(self) -> None: ...  # noqa: D102
    def resume_reading(self) -> None: ...  # noqa: D102


class Lanes:
    """What the lanes of a server share.

    Attributes:
        name: whose they are; see wire.lane.LaneAddress.
        open: those that are open.
        held_bytes: of frames that are not whole yet.
    """

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self.broker = broker
        self.gate = gate
        self.name = secrets.token_hex(16)
        self.open: set[Lane] = set()
        self.held_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._came: list[tuple[Lane, lane.Send]] = []
        self._answers: deque[tuple[Lane, int, Reply]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._is_planned = False

    # --- who comes in -------------------------------------------------------------------------

    def admitted(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        certificate: str,
        client: tuple[str, int],
    ) -> tuple[Principal, Account]:
        """Who opens a lane, and for whose quotas it counts.

        Raises:
            Unauthenticated, Forbidden. Refused: it is another broker's lane that is wanted.
        """
        authorizations, names = [], []
        try:
            for name, value in headers:
                if name in _OF_PAGES:  # no script may ask for this upgrade; and none shall
                    raise Forbidden("the lane is for programs, not for pages")
                if name == b"authorization":
                    authorizations.append(value.decode("latin-1"))
                elif name == _NAME:
                    names.append(value)
            if names != [self.name.encode()]:
                raise Refused("this is another broker than the one whose lane is asked for")
            caller = self.gate.principal(only_bearer_of(authorizations), certificate)
        except DejaQError as refused:
            audit.refused(audit.NOBODY, shown(client), "lane", "", refused)
            raise
        return caller, self.broker.quotas.of(caller, client[0])

    # --- what comes in one turn of the loop ---------------------------------------------------

    def came(self, sender: Lane, send: lane.Send) -> None:
        """Hand this over with whatever else comes in this turn."""
        if not self._came:
            self.begin().call_soon(self._hand_over)
        self._came.append((sender, send))

    def begin(self) -> asyncio.AbstractEventLoop:
        """Called on the loop before anything is answered: the loop."""
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _hand_over(self) -> None:
        came, self._came = self._came, []
        for sender, send in came:
            sender.submit(send)

    # --- answers ------------------------------------------------------------------------------

    def answered(self, sender: Lane, number: int, reply: Reply) -> None:
        """On any thread: have the reply written under this number, with whatever else is answered
        now."""
        self._answers.append((sender, number, reply))
        self._plan()

    def call(self, function: Callable[[], None]) -> None:
        """On any thread: have it called on the loop, behind the answers."""
        self._calls.append(function)
        self._plan()

    def _plan(self) -> None:
        # To wake the loop takes longer than to say what for: once for all that comes meanwhile.
        if not self._is_planned:
            self._is_planned = True
            assert self._loop is not None
            call_soon(self._loop, self._write)

    def _write(self) -> None:
        self._is_planned = False  # first: what comes from here on is written now, or planned anew
        written: dict[Lane, list[bytes]] = {}
        for _ in range(len(self._answers)):
            to, number, reply = self._answers.popleft()
            written.setdefault(to, []).append(lane.encode_reply(reply, number))
        for to, replies in written.items():
            to.tell(replies, len(replies))
        for _ in range(len(self._calls)):
            try:
                self._calls.popleft()()
            except Exception:  # our bug: it ends what it was about, and nothing of other lanes
                log.exception("a call of a lane failed")


class Lane:
    """One connection.

    Args:
        client: its address and port.
        frame_bytes_max: of one frame; more may not come, whatever its length says.
        held_bytes_max: of all lanes together.
    """

    def __init__(
        self,
        lanes: Lanes,
        transport: Transport,
        who: tuple[Principal, Account],
        client: tuple[str, int],
        *,
        frame_bytes_max: int,
        held_bytes_max: int,
    ) -> None:
        self._lanes = lanes
        self._transport = transport
        self._caller, self._account = who
        self._peer = shown(client)
        self._frame_bytes_max = frame_bytes_max
        self._held_bytes_max = held_bytes_max
        self._held = bytearray()
        self._waiting = 0
        self._taken = 0
        self._seen = 0, 0.0
        self._is_slow = False
        self._is_late = False
        self._is_ending = False
        self._is_paused = False
        self._consumer: LaneConsumer | None = None
        self._writers = TopicWriters(
            WriteStream("", "enqueue"), self._open_writer, lanes.broker.is_served_by
        )
        lanes.open.add(self)

    def _open_writer(self, stream: WriteStream) -> Writer:
        caller = self._caller
        with audit.recorded(caller.name, self._peer, stream.op, stream.topic):
            sender = rules.require_write(caller, stream)
        with telling_near_names(self._lanes.broker.topics, caller.sees):
            return self._lanes.broker.open_write(stream, sender, self._account)

    # --- what comes ---------------------------------------------------------------------------

    def received(self, content: bytes) -> None:
        """Bytes came."""
        if self._is_ending:
            return
        lanes, held = self._lanes, self._held
        if held or self._is_late:
            held += content
            lanes.held_bytes += len(content)
            if not self._is_late:
                self._read_held()
        else:
            at = self._read(content)
            if at < len(content) and not self._is_ending:
                held += content[at:]
                lanes.held_bytes += len(held)
        if lanes.held_bytes > self._held_bytes_max and self._held and not self._is_ending:
            limit = f"at most {self._held_bytes_max} bytes at once"
            self.end(Unavailable(f"frames that are not whole: {limit}", 1_000))

    def _read_held(self) -> None:
        # Looked at again only when a whole frame may be there.
        held = self._held
        if len(held) < lane.LENGTH_BYTES:
            return
        length = lane.length_of(held, 0)
        if length <= self._frame_bytes_max and len(held) < lane.LENGTH_BYTES + length:
            return
        at = self._read(bytes(held))
        if held:  # else it was ended on the way
            del held[:at]
            self._lanes.held_bytes -= at

    def _read(self, content: bytes) -> int:
        """Take the frames in these bytes; how many of them are done with."""
        at, end = 0, len(content)
        while end - at >= lane.LENGTH_BYTES and not (self._is_late or self._is_ending):
            length = lane.length_of(content, at)
            if length > self._frame_bytes_max:
                limit = f"at most {self._frame_bytes_max} bytes"
                self.end(BadRequest("frame", limit, length))
                break
            begin = at + lane.LENGTH_BYTES
            if end - begin < length:
                break
            at = begin + length
            self._take(content[begin:at])
        return at

    def _take(self, frame: bytes) -> None:
        """One frame."""
        if self._consumer is not None:
            self._taken += 1
            self._consumer.take(frame)
            return
        if not self._taken and lane.kind_of(frame) == lane.OPEN:
            self._taken = 1
            self._open_consumer(frame)
            return
        try:
            send = lane.decode_send(frame)
        except BadRequest as malformed:
            self.end(malformed)
            return
        self._taken += 1
        self.asks()
        wait_ms = 0
        try:
            self._lanes.gate.check(self._caller)
            if self._account.is_bounded:
                wait_ms = self._account.reserve_sent(len(send.payloads), len(frame))
        except DejaQError as refused:
            self._refuse(send, refused)
            return
        if wait_ms:
            self._is_late = True
            self._pause_or_not()
            asyncio.get_running_loop().call_later(wait_ms / 1_000, self._go_on, send)
            return
        self._lanes.came(self, send)

    def _open_consumer(self, frame: bytes) -> None:
        """It is a consumer's lane from here on."""
        lanes, who = self._lanes, (self._caller, self._peer)
        lanes.begin()
        try:
            options = lane.decode_open(frame)
            with telling_near_names(lanes.broker.topics, self._caller.sees):
                self._consumer = LaneConsumer(
                    self, lanes.broker, lanes.gate, who, options, lanes.call
                )
        except DejaQError as refused:
            self.end(refused)

    def asks(self) -> None:
        """One frame more is to be answered."""
        self._waiting += 1
        if self._waiting >= limits.LANE_WAITING_MAX:
            self._pause_or_not()

    def _go_on(self, send: lane.Send) -> None:
        """The quota of its sender lets this in now."""
        self._is_late = False
        if self not in self._lanes.open:
            return
        self._lanes.came(self, send)
        self._pause_or_not()
        self._read_held()

    def submit(self, send: lane.Send) -> None:
        """Have it written, and answered when it is durable."""
        account = self._account
        reply_to: ReplyTo = partial(self._lanes.answered, self, send.number)
        own_number = int.from_bytes(send.address[:NUMBER_BYTES], "little")
        try:
            if len(send.address) <= NUMBER_BYTES:
                raise BadRequest("address", "a number, a producer and a topic", send.address)
            if account.is_bounded and account.limit(BYTES):
                byte_count = sum(map(len, send.payloads))
                account.hold_bytes(byte_count, wait=False)
                reply_to = partial(_give_back, account, byte_count, reply_to)
            writer = self._writers.writer(send.address)
        except DejaQError as error:
            reply_to(Reply(own_number, len(send.payloads), error=error))
            return
        except Exception as wrong:  # noqa: BLE001 - our bug, and somebody waits
            reply_to(Reply(own_number, len(send.payloads), error=_bug(wrong)))
            return
        try:
            writer.submit_rows(send, own_number, reply_to)
        except Exception as wrong:  # noqa: BLE001 - our bug, and somebody waits
            reply_to(Reply(own_number, len(send.payloads), error=_bug(wrong)))

    # --- what goes ----------------------------------------------------------------------------

    def _refuse(self, send: lane.Send, error: DejaQError) -> None:
        reply = Reply(send.number, len(send.payloads), error=error)
        self.tell([lane.encode_reply(reply, send.number)], 1)

    def tell(self, contents: Sequence[Content], answers: int) -> None:
        """Write these; so many of them answer a frame."""
        self._waiting -= answers
        if not self._transport.is_closing():
            if len(contents) == 1:
                self._transport.write(contents[0])
            else:
                self._transport.writelines(contents)
            if self._is_ending and not self._waiting:
                self._transport.close()
            elif self._is_paused:
                self._pause_or_not()

    def slow(self, *, is_slow: bool) -> None:
        """The client does not read its replies, or does again."""
        self._is_slow = is_slow
        self._pause_or_not()
        if self._consumer is not None:
            self._consumer.slow(is_slow=is_slow)

    def _pause_or_not(self) -> None:
        """Read no more while too much waits."""
        if self._transport.is_closing():
            return
        most = limits.LANE_WAITING_MAX // 2 if self._is_paused else limits.LANE_WAITING_MAX
        is_paused = self._is_slow or self._is_late or self._waiting >= most
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # --- the end ------------------------------------------------------------------------------

    def look(self, now: float, bounds: Bounds) -> bool:
        """End it if a frame is on its way for too long; True if so. Called about every second."""
        taken, since = self._seen
        if not self._held or self._is_paused or taken != self._taken:
            self._seen = self._taken, now
            return False
        seconds = bounds.body_seconds + len(self._held) / bounds.body_bytes_per_second
        if now - since <= seconds:
            return False
        limit = f"at least {bounds.body_bytes_per_second} bytes in a second"
        self.end(BadRequest("frame", limit, len(self._held)))
        return True

    def end(self, error: DejaQError) -> None:
        """Say why it is over; what was taken before is answered first."""
        if self._is_ending:
            return
        self._forget()
        if not self._transport.is_closing():
            self._transport.write(lane.with_length(frames.encode(StreamError(error))))
        self.finish()

    def finish(self) -> None:
        """Take nothing more; close when all is answered."""
        self._is_ending = True
        if not self._waiting:
            self._transport.close()

    def stop(self) -> None:
        """The server stops."""
        if self._consumer is None:
            self.finish()
        else:
            self._consumer.stop()

    def lost(self) -> None:
        """The connection is closed; what was taken stays durable."""
        self._is_ending = True
        if self._consumer is not None:
            self._consumer.close()
        self._forget()
        self._lanes.open.discard(self)
        self._account.leave_stream()

    def _forget(self) -> None:
        self._lanes.held_bytes -= len(self._held)
        self._held.clear()


def shown(client: tuple[str, int]) -> str:
    """A client as logs have it.

    >>> shown(("10.0.0.1", 5000))
    '10.0.0.1:5000'
    """
    return f"{client[0]}:{client[1]}"


def _bug(wrong: Exception) -> DejaQError:
    bug = InternalError(f"{type(wrong).__name__}: {wrong}")
    bug.__cause__ = wrong  # for the log
    return bug


def _give_back(account: Account, byte_count: int, reply_to: ReplyTo, reply: Reply) -> None:
    """It was answered: its bytes are gone."""
    account.give_bytes(byte_count)
    reply_to(reply)
