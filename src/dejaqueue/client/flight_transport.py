"""The client's connection to a broker over Arrow Flight.

Room: client. Knows Flight and frames; not what topics or leases are.
Holds: each open stream has one reading thread, and a mutex around its writer (a Flight writer is
for one thread at a time); a future of a broken stream ends with Unavailable; `close` twice is fine.
See: docs/wire.md; transport.py for the contract.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from dejaqueue.client.call_threads import CallThreads
from dejaqueue.client.credentials import Tls, headers_of
from dejaqueue.client.flight_errors import as_seen, error_of
from dejaqueue.client.lane import Lane, LaneChannel, PlainConnection
from dejaqueue.client.lane import connect as connect_lane
from dejaqueue.client.lane_consume import LaneConsumeChannel
from dejaqueue.client.read_stream import ReadStreams
from dejaqueue.client.replies import CLOCK, Replies, fail
from dejaqueue.client.shared_streams import SharedStreams, SharedWriteChannel
from dejaqueue.client.silence_watch import SilenceWatch, Waiting, WaitingConsumer
from dejaqueue.client.transport import Delivery
from dejaqueue.errors import BadRequest, DejaQError, InternalError, Unavailable
from dejaqueue.schema.arrival import Rows, is_layout_of_texts
from dejaqueue.schema.texts import mended_batch, mended_table
from dejaqueue.wire import descriptors, frames
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import DeliveryHead, Ping, Pong, Reply, Settle, StreamError
from dejaqueue.wire.lane import LaneAddress

PORT_DEFAULT = 7464
FOLLOWS = "x-dejaq-follows"
"""The header of a client that goes to other brokers itself when it is told where (Elsewhere)."""
CALL_SECONDS_MAX = 60.0
"""An action or a page of rows that takes longer has failed."""
LANE_RETRY_US = 60_000_000
"""A broker that had no lane, or whose lane could not be reached, is asked again after this."""
LANE_SECONDS_MAX = 5.0
"""To say where it is."""
LANE_ROWS_MAX = 1_000
"""A consumer that takes larger deliveries has them by Flight, which is made for them (ADR 43)."""

FLIGHT_OPTIONS = [
    # Half-open connections are noticed while streams are open. A server takes pings without data
    # only every five minutes by default, and breaks the connection of a client that sends more.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Each client object has its own connection, so that a bulk write on one does not stand before
    # deliveries on the other.
    ("grpc.use_local_subchannel_pool", 1),
    # A broker that restarts is found again at once; backing off is link.py's part. The minimum is
    # also how long one attempt may take: on a loaded machine a handshake is not quick.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A broker in a container comes back under its name with another address, for which gRPC would
    # ask every 30 s at most.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
]

# gRPC writes lines of its own to standard error, about each failed handshake for example. Every one
# of them comes back as an error of ours; whoever wants them sets the variable.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

Answer = TypeVar("Answer")


def flight_location(url: str) -> str:
    """The Flight location of a `dejaq://host:port` URL; BadRequest if it is none.

    >>> flight_location("dejaq://localhost")
    'grpc://localhost:7464'
    """
    form = "dejaq://host:port or dejaqs://host:port"
    try:
        parts = urlsplit(url)
        port = parts.port or PORT_DEFAULT
    except ValueError:
        raise BadRequest("url", form, url) from None
    if parts.scheme not in {"dejaq", "dejaqs"} or not parts.hostname:
        raise BadRequest("url", form, url)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{'grpc' if parts.scheme == 'dejaq' else 'grpc+tls'}://{host}:{port}"


def _believed(rows: Rows | None) -> Rows:
    """What a broker sent, if it can be read. Raises Unavailable: what broke it may pass."""
    rows, _ = _judged(rows)
    return rows


def _judged(rows: Rows | None) -> tuple[Rows, bool]:
    """As `_believed`, and whether all texts are UTF-8."""
    if rows is None:
        raise Unavailable("the broker sent no rows where they belong")
    try:
        return rows, is_layout_of_texts(rows)
    except BadRequest as malformed:
        raise Unavailable(f"the broker sent rows that are no valid Arrow: {malformed}") from None


class FlightWriteChannel(Replies):
    """An open DoPut stream. It opens with the first batch, whose schema is the stream's."""

    def __init__(
        self,
        client: flight.FlightClient,
        stream: WriteStream,
        options: flight.FlightCallOptions,
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._client = client
        self._sent = sent
        self._options = options
        self._stream = stream
        self._silent = stream.acks == "none"
        self._schema: pa.Schema | None = None
        self._writer: flight.FlightStreamWriter | None = None
        self._reader: flight.FlightMetadataReader | None = None

    @property
    def is_over(self) -> bool:
        """Nothing can be sent any more."""
        return self.closing or self.end is not None

    @property
    def is_idle(self) -> bool:
        """No reply is waited for."""
        return not self.pending

    def send(self, number: int, batch: pa.RecordBatch, address: bytes = b"") -> Future[Reply]:
        """Send a batch; its reply, or Unavailable if the stream breaks first.

        Args:
            address: on a stream without a topic, where the batch goes (descriptors.Address).
        """
        with self.mutex:
            reply = self.register(number)
            if reply.done() or self.closing:
                self.pending.pop(number, None)
                fail(reply, Unavailable("the stream is closed"))
                return reply
            try:
                if self._writer is None:
                    self._open(batch.schema)
                elif not batch.schema.equals(self._schema):
                    self.pending.pop(number, None)
                    reply.set_exception(
                        BadRequest("batch", "the schema that the stream began with", batch.schema)
                    )
                    return reply
                self._writer.write_with_metadata(  # type: ignore[union-attr]
                    batch, number.to_bytes(4, "little") + address
                )
            except Exception as wrong:  # noqa: BLE001 - every failure is the future's
                self._write_failed(number, error_of(wrong))
                return reply
            if self._silent:
                self.pending.pop(number, None)
            else:
                self._sent()
        if self._silent and not reply.done():
            reply.set_result(Reply(number, batch.num_rows))
        return reply

    def _open(self, schema: pa.Schema) -> None:
        command = flight.FlightDescriptor.for_command(descriptors.encode(self._stream))
        self._schema = schema
        self._writer, self._reader = self._client.do_put(command, schema, self._options)
        self.start(f"replies-{self._stream.topic or self._stream.op}", self._read)

    def _write_failed(self, number: int, error: DejaQError) -> None:
        """Under the mutex: the stream is dead, and fails all with its final status.

        Its reading thread does that, which ends now; without one the stream never was.
        """
        if self._writer is not None:
            return
        self.end = error
        reply = self.pending.pop(number, None)
        if reply is not None:
            fail(reply, error)

    def _read(self) -> None:
        assert self._reader is not None
        error: DejaQError | None = None
        try:
            while (content := self._reader.read()) is not None:
                frame = frames.decode(content)
                if not isinstance(frame, Reply):
                    raise InternalError(f"a write stream got a {type(frame).__name__}")
                self.answer(frame)
        except Exception as wrong:  # noqa: BLE001 - whatever it is, the stream is over
            error = error_of(wrong)
        error = self._finish() or error
        self.ended(error)

    def _finish(self) -> DejaQError | None:
        """The final status of the stream: why it ended, None if nothing was wrong."""
        assert self._writer is not None
        # Writers see a dead stream and leave the mutex; a living one is half-closed by now.
        with self.mutex:
            try:
                self._writer.close()
            except Exception as wrong:  # noqa: BLE001
                return error_of(wrong)
        return None

    def close(self) -> None:
        """Wait for replies of what was sent, then close. Twice is fine."""
        with self.mutex:
            first, self.closing = not self.closing, True
            if self._writer is None:
                self.end = self.end or Unavailable("the stream is closed")
                return
            if first and self.end is None:
                try:
                    self._writer.done_writing()
                except Exception as wrong:  # noqa: BLE001 - the reader tells what it was
                    error_of(wrong)
        if not self.join():
            self.ended(Unavailable("the broker did not end the stream in time"))


class FlightConsumeChannel(Replies):
    """An open DoExchange stream."""

    def __init__(
        self,
        client: flight.FlightClient,
        stream: ConsumeStream,
        options: flight.FlightCallOptions,
        on_delivery: Callable[[Delivery], None],
        on_pong: Callable[[Pong], None],
        on_end: Callable[[DejaQError | None], None],
    ) -> None:
        super().__init__()
        self._on_delivery, self._on_pong, self._on_end = on_delivery, on_pong, on_end
        command = flight.FlightDescriptor.for_command(descriptors.encode(stream))
        try:
            self._writer, self._reader = client.do_exchange(command, options)
        except Exception as wrong:  # noqa: BLE001
            raise error_of(wrong) from None
        self.start(f"deliveries-{stream.topic}", self._read)

    def _write(self, frame: frames.Frame) -> bool:
        """Write a frame; False if the stream is over. Call under the mutex."""
        if self.end is not None or self.closing:
            return False
        try:
            self._writer.write_metadata(frames.encode(frame))
        except Exception as wrong:  # noqa: BLE001 - the reader tells what it was
            error_of(wrong)
            return False
        return True

    def credit(self, rows: int) -> None:
        """Take this many rows more."""
        with self.mutex:
            self._write(frames.Credit(rows))

    def settle(self, settle: Settle) -> Future[Reply]:
        """ack, nack or extend; number 0 = no reply, the future is done at once."""
        with self.mutex:
            if settle.number == 0:
                reply: Future[Reply] = Future()
            else:
                reply = self.register(settle.number)
            written = self._write(settle)
            if not written:
                self.pending.pop(settle.number, None)
        if not written:
            fail(reply, self.end or Unavailable("the stream broke"))
        elif settle.number == 0:
            reply.set_result(Reply(0))
        return reply

    def ping(self, ping: Ping) -> None:
        """Measure the clock offset; the answer goes to `on_pong`."""
        with self.mutex:
            self._write(ping)

    def _read(self) -> None:
        error: DejaQError | None = None
        try:
            while True:
                chunk = self._reader.read_chunk()
                self.heard_us = CLOCK.now_us()
                frame = frames.decode(chunk.app_metadata)
                match frame:
                    case DeliveryHead():
                        self._on_delivery(Delivery(frame, *_judged(chunk.data)))
                    case Reply():
                        self.answer(frame)
                    case Pong():
                        self._on_pong(frame)
                    case StreamError():
                        error = as_seen(frame.error)
                    case frames.Close():
                        break
        except StopIteration:
            pass
        except Exception as wrong:  # noqa: BLE001 - whatever it is, the stream is over
            error = error or error_of(wrong)
        self._reader.cancel()
        with self.mutex:  # the broker may answer `close` before that has noted that it closes
            closed = self.closing
        self.is_whole = closed and error is None
        self.ended(error)
        with self.mutex:
            try:
                self._writer.close()
            except Exception as wrong:  # noqa: BLE001 - `error` has said it, or we cancelled
                error_of(wrong)
        self._on_end(None if closed else error)

    def abandon(self) -> None:
        """End as if the connection broke: leases go on to their end."""
        with self.mutex:
            self.closing = True
        self._reader.cancel()

    def break_off(self, error: DejaQError) -> None:
        """The broker gives no sign of life: end as if the connection broke."""
        self._reader.cancel()  # first: a thread that cannot write holds the mutex
        self.ended(error)

    def close(self) -> bool:
        """End; leases still held end at once. Twice is fine. See ConsumeChannel.close."""
        with self.mutex:
            if not self.closing and self.end is None:
                # Not done_writing: the broker ends the stream, and if the reading thread sees that
                # first, Flight half-closes it there, too; doing that twice aborts the program.
                self._write(frames.Close())
            self.closing = True
        if not self.join():
            self._reader.cancel()
            self.join()
        return self.is_whole


class FlightTransport:
    """A connection to a broker over Arrow Flight.

    Args:
        url: `dejaq://host:port`, or `dejaqs://` for TLS; the port is 7464 if left out.
        api_key: goes with every call and stream; None = none does.
        tls: files for `dejaqs://`; None = the system's certificates are trusted.
        follows: where another broker serves a topic, be told (Elsewhere) instead of having the
            call passed on.
        watches_consumers: end streams of consumers, too, when the broker gives no sign of life;
            for consumers that do not ping by themselves.

    Raises:
        BadRequest: one of these is wrong, or a file cannot be read.
    """

    shares_clock = False

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        tls: Tls | None = None,
        *,
        follows: bool = False,
        watches_consumers: bool = False,
    ) -> None:
        location = flight_location(url)
        if tls is not None and not location.startswith("grpc+tls:"):
            raise BadRequest("url", "dejaqs://host:port with tls", url)
        headers = headers_of(api_key, url)
        if follows:
            headers.append((FOLLOWS.encode(), b"1"))
        secured = {} if tls is None else tls.arguments()
        self._writes = flight.FlightClient(location, generic_options=FLIGHT_OPTIONS, **secured)
        self._consumes = flight.FlightClient(location, generic_options=FLIGHT_OPTIONS, **secured)
        self._headers = headers
        self._follows = follows
        self._watches_consumers = watches_consumers
        self._stream_options = flight.FlightCallOptions(headers=headers)
        self._call_options = flight.FlightCallOptions(timeout=CALL_SECONDS_MAX, headers=headers)
        self._calls = CallThreads()
        self._streams: weakref.WeakSet[
            FlightWriteChannel | FlightConsumeChannel | LaneConsumeChannel
        ] = weakref.WeakSet()
        self._shared = SharedStreams(self._open)
        self._url, self._tls = url, tls
        self._lane: Lane | None = None
        self._laneless_until_us = 0
        self._lane_turn = threading.Lock()
        self._mutex = threading.Lock()
        self._closed = False
        self._silence = SilenceWatch(self._waiting, self._ask, CLOCK, f"the broker at {url}")
        self._reads = ReadStreams(self._silence.sent)

    def _waiting(self) -> list[Waiting]:
        """What ends if the broker gives no sign of life."""
        with self._mutex:
            streams = list(self._streams)
        writes = [one for one in streams if isinstance(one, FlightWriteChannel)]
        others: list[Waiting] = [*self._calls.may_be_left(), *self._reads.are_open()]
        if self._watches_consumers:
            consumers = (one for one in streams if not isinstance(one, FlightWriteChannel))
            others += map(WaitingConsumer, consumers)
        if self._lane is not None:
            others.append(self._lane)
        return [*others, *writes]  # last: ending one may wait for who writes

    def _ask(self, seconds: float) -> None:
        options = flight.FlightCallOptions(timeout=seconds, headers=self._headers)
        try:
            list(self._writes.do_action(flight.Action("clock", b"{}"), options))
        except Exception as wrong:  # noqa: BLE001
            raise error_of(wrong) from None

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the client is closed")

    def open_write(
        self, stream: WriteStream, *, shared: bool = False
    ) -> FlightWriteChannel | SharedWriteChannel:
        """A stream of batches; it connects with its first batch, and errors are its reply's.

        Args:
            shared: with other topics, if the client follows: only a stream of one topic is passed
                on to another broker.
        """
        self._check_open()
        checked = stream.check()
        if shared and self._follows:
            return SharedWriteChannel(self._shared, checked)
        return self._open(checked)

    def open_lane(self, stream: WriteStream, *, has_fields: bool = False) -> LaneChannel | None:
        """A channel for single messages; None = there is none: the broker has no lane, or none for
        messages with fields, it is out of reach, or the client does not follow. May wait for the
        broker."""
        self._check_open()
        if not self._follows:
            return None
        with self._lane_turn:
            lane = self._lane
            if lane is None or lane.is_over:
                opened = self._connect_lane()
                lane = self._lane = None
                if opened is not None:
                    place, connection, rest = opened
                    sent = self._silence.sent
                    lane = self._lane = Lane(connection, rest, sent, has_fields=place.has_fields)
        if lane is None or (has_fields and not lane.has_fields):
            return None
        return LaneChannel(lane, stream.check())

    def _connect_lane(self) -> tuple[LaneAddress, PlainConnection, bytes] | None:
        if CLOCK.now_us() < self._laneless_until_us:
            return None
        options = flight.FlightCallOptions(timeout=LANE_SECONDS_MAX, headers=self._headers)
        try:
            [answer] = self._writes.do_action(flight.Action("lane", b"{}"), options)
            said = json.loads(answer.body.to_pybytes())
            place = None
            if said["port"]:
                has_fields = bool(said.get("fields"))  # an earlier version says nothing of them
                place = LaneAddress(int(said["port"]), str(said["name"]), has_fields)
        except Exception as wrong:  # noqa: BLE001 - by Flight it will be said what is wrong
            if isinstance(error_of(wrong), Unavailable):
                return None  # the broker is away: whoever sends tries again soon
            place = None
        if place is not None:
            opened = connect_lane(self._url, place, self._headers, self._tls)
            if opened is not None:
                return place, *opened
        self._laneless_until_us = CLOCK.now_us() + LANE_RETRY_US
        return None

    def _open(self, stream: WriteStream) -> FlightWriteChannel:
        self._check_open()
        channel = FlightWriteChannel(self._writes, stream, self._stream_options, self._silence.sent)
        with self._mutex:
            self._streams.add(channel)
        return channel

    def open_consume(
        self,
        stream: ConsumeStream,
        on_delivery: Callable[[Delivery], None],
        on_pong: Callable[[Pong], None],
        on_end: Callable[[DejaQError | None], None],
    ) -> FlightConsumeChannel | LaneConsumeChannel:
        """Open a consumer. Raises Unavailable, BadRequest."""
        self._check_open()
        stream = stream.check()
        opened = None
        if self._follows and stream.batch_rows_max <= LANE_ROWS_MAX:
            opened = self._connect_lane()
        channel: FlightConsumeChannel | LaneConsumeChannel
        if opened is None:
            channel = FlightConsumeChannel(
                self._consumes, stream, self._stream_options, on_delivery, on_pong, on_end
            )
        else:
            channel = LaneConsumeChannel(*opened[1:], stream, on_delivery, on_pong, on_end)
        with self._mutex:
            self._streams.add(channel)
        if self._watches_consumers:
            self._silence.sent()
        return channel

    def _call(self, call: Callable[[], Answer], *, may_be_left: bool) -> Future[Answer]:
        def run() -> Answer:
            try:
                return call()
            except Exception as wrong:  # noqa: BLE001
                raise error_of(wrong, self._url) from None

        answer = self._calls.submit(run, may_be_left=may_be_left)
        if may_be_left:
            self._silence.sent()
        return answer

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        """One call and its JSON answer; `content` of its body goes as bytes behind the JSON.

        Args:
            repeats: ends it with Unavailable (`is_silent`) when the broker gives no sign of life.
        """
        content = body.get("content")

        def call() -> dict[str, Any]:
            if content is None:
                sent = json.dumps(body).encode()
            else:
                values = {key: value for key, value in body.items() if key != "content"}
                sent = b"".join((json.dumps(values).encode(), b"\n", content))
            action = flight.Action(name, sent)
            results = list(self._writes.do_action(action, self._call_options))
            answer = json.loads(results[0].body.to_pybytes()) if results else {}
            if not isinstance(answer, dict):
                raise InternalError(f"{name} answered {answer!r:.100}, not a JSON object")
            return answer

        return self._call(call, may_be_left=repeats)

    def rows(self, ticket: dict[str, Any], *, repeats: bool = False) -> Future[pa.Table]:
        """Rows without leasing, by a JSON ticket; `repeats` as in `action`."""

        def call() -> pa.Table:
            asked = flight.Ticket(json.dumps(ticket).encode())
            read = self._writes.do_get(asked, self._call_options).read_all()
            return mended_table(_believed(read))

        return self._call(call, may_be_left=repeats)

    def scan(self, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Messages of a partition, batch by batch, by a JSON ticket of `scan` or `claim`. Raises
        BadRequest and Unavailable (`is_silent`: no sign of life), also on the way."""
        self._check_open()
        asked = flight.Ticket(json.dumps({"op": "scan"} | ticket).encode())
        stream = self._reads.open(
            partial(self._consumes.do_get, asked, self._stream_options),
            lambda rows: mended_batch(_believed(rows)),
            lambda make: self._call(make, may_be_left=True).result(),
        )
        yield from stream.batches()

    def close(self) -> None:
        """Close all streams and the connection. Twice is fine."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        with self._lane_turn:
            if self._lane is not None:
                self._lane.close()
        self._calls.close()
        self._silence.close()  # until here it ends what a broker that hangs does not answer
        self._writes.close()
        self._consumes.close()
