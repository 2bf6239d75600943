"""Calls that another broker answers: passed on with the caller's own key, bytes in, bytes out.

    forwarding = Forwarding()
    forwarding.put(Onward(url, bearer), descriptor, reader, writer)     # instead of serve_writer

Room: flight. Knows no topic and no owner: who calls says where it goes.
Holds: a stream is passed on as it comes, chunk by chunk; what waits is bounded by gRPC's windows.
A call is passed on once: the broker that gets it answers, or refuses. What the other broker says
reaches the caller in its own words; where it falls silent or breaks, streams end with Unavailable,
and everything unanswered in them with it, and so do calls that may be made twice.
See: server.py; owner_calls.py; docs/wire.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue.client.credentials import Tls
from dejaqueue.client.flight_errors import error_of
from dejaqueue.client.flight_transport import CALL_SECONDS_MAX, FLIGHT_OPTIONS, flight_location
from dejaqueue.errors import BadRequest, DejaQError, Unavailable
from dejaqueue.flight.owner_calls import OwnerCalls
from dejaqueue.flight.produce import number_of, unreadable
from dejaqueue.flight.silence import Silence
from dejaqueue.schema.arrival import check_arrival, check_layout
from dejaqueue.wire import frames
from dejaqueue.wire.frames import Close, Reply, StreamError

FORWARDED = "x-dejaq-forwarded"
"""The header of a call that was passed on: the broker that gets it does not pass it on again."""
JOIN_SECONDS = 0.2
_STOPPING_RETRY_MS = 1_000

_Stream = TypeVar("_Stream", "_Writing", "_Consuming")
Ends = tuple[Callable[[Callable[[], None]], None], Callable[[Callable[[], None]], None]]


@dataclass(frozen=True, slots=True)
class Onward:
    """Where a call goes, and for whom.

    Attributes:
        url: the other broker's, `dejaq://host:port`.
        bearer: the caller's API key; None = the call came without one.
    """

    url: str
    bearer: str | None = field(default=None, repr=False)

    def options(self, timeout_seconds: float | None = None) -> flight.FlightCallOptions:
        """Of the call to the other broker."""
        headers = [(FORWARDED.encode(), b"1")]
        if self.bearer is not None:
            headers.append((b"authorization", f"Bearer {self.bearer}".encode()))
        return flight.FlightCallOptions(headers=headers, timeout=timeout_seconds)


class Forwarding:
    """Connections to other brokers, made when they are needed. Any thread may call.

    Args:
        tls: kept; for brokers at `dejaqs://`, None = the system's certificates are trusted.

    Attributes:
        silence: which brokers did not answer, when all were asked.
    """

    def __init__(self, tls: Tls | None = None) -> None:
        self.tls = tls
        self.silence = Silence()
        self._lock = threading.Lock()
        # Deliveries have a connection of their own: a bulk write must not stand before them.
        self._clients: dict[tuple[str, bool], flight.FlightClient] = {}
        self._streams: set[_Writing | _Consuming] = set()
        self._owners: dict[str, OwnerCalls] = {}

    def put(
        self,
        onward: Onward,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
        *,
        wants_replies: bool,
    ) -> None:
        """Pass a DoPut stream on until the caller is done. Raises what the other broker says."""
        client = self._client(onward.url)
        try:
            sink, answers = client.do_put(descriptor, reader.schema, onward.options())
        except Exception as wrong:  # noqa: BLE001 - whatever it is, there is no stream
            raise error_of(wrong) from None
        with self._open(_Writing(onward.url, sink, answers, writer, wants_replies)) as writing:
            writing.run(reader)

    def exchange(
        self,
        onward: Onward,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
        ends: Ends,
    ) -> None:
        """Pass a DoExchange stream on until either side is done.

        Args:
            ends: have a function called when this server stops, and not any more.

        Raises:
            What the other broker says before the stream begins.
        """
        client = self._client(onward.url, deliveries=True)
        try:
            sink, source = client.do_exchange(descriptor, onward.options())
        except Exception as wrong:  # noqa: BLE001
            raise error_of(wrong) from None
        register, unregister = ends
        with self._open(_Consuming(onward.url, sink, source, writer)) as consuming:
            try:
                consuming.begin()
                register(consuming.stop)
                consuming.run(reader)
            finally:
                unregister(consuming.stop)
                consuming.end()

    def action(
        self, onward: Onward, action: flight.Action, seconds: float = CALL_SECONDS_MAX
    ) -> list[flight.Result]:
        """Pass an action on; its answer. Raises what the other broker says."""
        try:
            return list(self._client(onward.url).do_action(action, onward.options(seconds)))
        except Exception as wrong:  # noqa: BLE001
            raise error_of(wrong) from None

    def repeated(self, onward: Onward, action: flight.Action) -> list[flight.Result]:
        """The same of an action that may be made twice. Raises Unavailable, too, where the other
        broker gives no sign of life."""
        return self._owner(onward.url).make(lambda: self.action(onward, action), onward.bearer)

    def get(
        self, onward: Onward, ticket: flight.Ticket
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Pass a DoGet on, batch by batch. Raises what the other broker says, and Unavailable where
        it gives no sign of life, also on the way."""

        def get() -> flight.FlightStreamReader:
            return self._client(onward.url).do_get(ticket, onward.options())

        try:
            stream = self._owner(onward.url).read(get, check_layout, onward.bearer)
        except Exception as wrong:  # noqa: BLE001
            raise error_of(wrong) from None
        return stream.schema, stream.batches()

    def _owner(self, url: str) -> OwnerCalls:
        clock = flight.Action("clock", b"{}")
        with self._lock:
            owner = self._owners.get(url)
            if owner is None:
                owner = self._owners[url] = OwnerCalls(
                    url, lambda seconds, bearer: self.action(Onward(url, bearer), clock, seconds)
                )
            return owner

    def drop(self, url: str) -> None:
        """A broker is gone, or stands still: streams to it end with Unavailable, now, and so do
        calls that may be made twice."""
        location = flight_location(url)
        with self._lock:
            streams = [stream for stream in self._streams if stream.url == url]
            for key in [key for key in self._clients if key[0] == location]:
                del self._clients[key]  # closed when its last stream lets go of it
            owner = self._owners.get(url)
        for stream in streams:
            stream.drop()
        if owner is not None:
            owner.drop(_gone())

    def owes(self) -> bool:
        """True while somebody waits for replies that are on their way."""
        with self._lock:
            streams = list(self._streams)
        return any(stream.owes() for stream in streams)

    def renew(self) -> None:
        """Connect with the files as they are now; streams that are open keep their connection."""
        with self._lock:
            self._clients.clear()

    def close(self) -> None:
        """Forget all connections. Streams end with the server whose they are."""
        self.renew()
        with self._lock:
            owners = list(self._owners.values())
            self._owners.clear()
        for owner in owners:
            owner.close()

    @contextmanager
    def _open(self, stream: _Stream) -> Iterator[_Stream]:
        with self._lock:
            self._streams.add(stream)
        try:
            yield stream
        finally:
            with self._lock:
                self._streams.discard(stream)

    def _client(self, url: str, *, deliveries: bool = False) -> flight.FlightClient:
        location = flight_location(url)
        with self._lock:
            client = self._clients.get((location, deliveries))
            if client is None:
                secured: dict[str, Any] = {}
                if self.tls is not None and location.startswith("grpc+tls:"):
                    secured = self.tls.arguments()
                client = flight.FlightClient(location, generic_options=FLIGHT_OPTIONS, **secured)
                self._clients[location, deliveries] = client
            return client


class _Writing:
    """A DoPut stream on its way through: batches there, replies back."""

    def __init__(
        self,
        url: str,
        sink: flight.FlightStreamWriter,
        answers: flight.FlightMetadataReader,
        writer: flight.FlightMetadataWriter,
        wants_replies: bool,
    ) -> None:
        self.url = url
        self._wants_replies = wants_replies
        self._sink, self._answers, self._writer = sink, answers, writer
        # A Flight writer is for one thread at a time, and not after its call.
        self._back = threading.Lock()
        self._caller_is_there = True
        self._unanswered: dict[int, int] = {}
        """Number -> rows of the batches that have no reply yet."""
        self._broke: DejaQError | None = None
        self._dropped = False
        self._thread = threading.Thread(target=self._answer, name="dejaq-onward", daemon=True)

    def run(self, reader: flight.MetadataRecordBatchReader) -> None:
        """Pass batches on until the caller is done; then end with the other broker's status."""
        self._thread.start()
        refused: DejaQError | None = None
        try:
            self._pass_on(reader)
        except DejaQError as error:
            refused = error
        if not self._dropped:
            refused = self._finish() or refused
        with self._back:
            self._caller_is_there = False
        if refused is not None:
            raise refused

    def owes(self) -> bool:
        """True while a batch has no reply yet."""
        return bool(self._unanswered)

    def drop(self) -> None:
        """Nothing comes from the other broker any more."""
        self._dropped = True
        self._break(_gone())

    def _finish(self) -> DejaQError | None:
        """Let the other broker end the stream; why it ended, None if nothing was wrong."""
        with suppress(Exception):  # it broke: its status says why
            self._sink.done_writing()
        while self._thread.is_alive() and not self._dropped:
            self._thread.join(JOIN_SECONDS)
        if self._dropped:
            return None
        try:
            self._sink.close()
        except Exception as wrong:  # noqa: BLE001
            return error_of(wrong)
        return None

    def _pass_on(self, reader: flight.MetadataRecordBatchReader) -> None:
        counted = 0
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as wrong:
                raise unreadable(wrong) from None
            counted += 1
            if chunk.data is None:
                raise BadRequest("batch", "a record batch", "metadata alone")
            number = counted if chunk.app_metadata is None else number_of(chunk.app_metadata)
            with self._back:
                if self._broke is not None:
                    raise self._broke
                if self._wants_replies:  # else nobody waits for one, nor would know its number
                    self._unanswered[number] = chunk.data.num_rows
            batch = self._checked(number, chunk.data)
            try:
                if chunk.app_metadata is None:
                    self._sink.write_batch(batch)
                else:
                    self._sink.write_with_metadata(batch, chunk.app_metadata)
            except Exception:  # noqa: BLE001 - its status says why, and the replies do
                return

    def _checked(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, which can be written out again; one that cannot is answered here."""
        try:
            return check_arrival(batch)
        except BadRequest as malformed:
            with self._back:
                if self._unanswered.pop(number, None) is not None:
                    self._reply(Reply(number, batch.num_rows, error=malformed))
            raise

    def _answer(self) -> None:
        """Pass replies back; where no more come, say so of every batch that has none."""
        error = _gone()
        try:
            while (content := self._answers.read()) is not None:
                frame = frames.decode(content)
                with self._back:
                    if isinstance(frame, Reply):
                        self._unanswered.pop(frame.number, None)
                    self._write(content)
        except Exception as wrong:  # noqa: BLE001 - whatever it is, no more replies come
            error = error_of(wrong)
        self._break(error)

    def _break(self, error: DejaQError) -> None:
        with self._back:
            self._broke = self._broke or error
            left, self._unanswered = self._unanswered, {}
            for number, rows in left.items():
                self._reply(Reply(number, rows, error=error))

    def _reply(self, reply: Reply) -> None:
        self._write(pa.py_buffer(frames.encode(reply)))

    def _write(self, content: pa.Buffer) -> None:
        if not self._caller_is_there:
            return
        try:
            self._writer.write(content)
        except (pa.ArrowException, OSError):
            self._caller_is_there = False  # its batches stay durable


def _gone() -> DejaQError:
    return Unavailable("the broker that serves the topic went away")


class _Consuming:
    """A DoExchange stream on its way through: frames there, deliveries back."""

    def __init__(
        self,
        url: str,
        sink: flight.FlightStreamWriter,
        source: flight.FlightStreamReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        self.url = url
        self._sink, self._source, self._writer = sink, source, writer
        # A Flight writer is for one thread at a time.
        self._back = threading.Lock()
        self._ended = self._closed = False
        self._thread = threading.Thread(target=self._deliver, name="dejaq-onward", daemon=True)

    def begin(self) -> None:
        """Open the caller's side with the schema of the other. Raises what the other says."""
        try:
            schema = self._source.schema
        except Exception as wrong:  # noqa: BLE001
            raise error_of(wrong) from None
        self._writer.begin(schema)
        self._thread.start()

    def run(self, reader: flight.MetadataRecordBatchReader) -> None:
        """Pass frames on until the caller has closed, or is gone."""
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                break
            except (pa.ArrowException, OSError):
                break
            if chunk.app_metadata is None:
                self._say(BadRequest("frame", "a frame in app_metadata", "none"))
                break
            with suppress(Exception):  # it broke: the delivering thread tells the caller
                self._sink.write_metadata(chunk.app_metadata)
            if _is_close(chunk.app_metadata):
                self._closed = True
                return  # the other broker ends the stream, and gives back what is leased
        # To the other broker this is a consumer that died: leases stay until they end.
        self._source.cancel()

    def stop(self) -> None:
        """This server stops: the caller is to go elsewhere."""
        self._say(Unavailable("the broker is stopping", _STOPPING_RETRY_MS))

    @staticmethod
    def owes() -> bool:
        """False: what is not delivered is leased again."""
        return False

    def drop(self) -> None:
        """Nothing comes from the other broker any more."""
        self._say(_gone())
        self._source.cancel()

    def end(self) -> None:
        """Wait for the other side's end."""
        if self._thread.is_alive():
            self._thread.join()
        with self._back:  # the caller's side ends with this call
            self._ended = True
        self._source.cancel()
        with suppress(Exception):  # how it ended has been said
            self._sink.close()

    def _deliver(self) -> None:
        error: DejaQError | None = _gone()
        try:
            while True:
                chunk = self._source.read_chunk()
                self._pass_back(chunk)
                if chunk.data is None and _is_close(chunk.app_metadata):
                    error = None
        except StopIteration:
            pass
        except Exception as wrong:  # noqa: BLE001 - whatever it is, nothing more comes
            error = error and error_of(wrong)
        if error is not None and not self._closed:
            self._say(error)

    def _pass_back(self, chunk: flight.FlightStreamChunk) -> None:
        with self._back:
            if self._ended:
                return
            if chunk.data is None:
                self._writer.write_metadata(chunk.app_metadata)
            else:
                self._writer.write_with_metadata(check_layout(chunk.data), chunk.app_metadata)

    def _say(self, error: DejaQError) -> None:
        """Tell the caller why nothing more comes; its client closes the stream then."""
        with self._back:
            if self._ended:
                return
            self._ended = True
            with suppress(pa.ArrowException, OSError):  # the caller is gone
                self._writer.write_metadata(pa.py_buffer(frames.encode(StreamError(error))))
                self._writer.write_metadata(pa.py_buffer(frames.encode(Close())))


def _is_close(content: pa.Buffer) -> bool:
    try:
        return isinstance(frames.decode(memoryview(content)), Close)
    except BadRequest:
        return False  # the other broker says what is wrong with it
