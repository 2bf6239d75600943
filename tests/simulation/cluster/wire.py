"""Flight between clients and brokers of a simulated cluster, in place of `pyarrow.flight`.

The client's own transport speaks to it as to gRPC, and gets gRPC's errors; at the other end stands
a door that does what flight/server.py does, without its threads. Frames travel as bytes, batches as
they are.

Holds: each stream and call is a connection, in order, late, and gone at any moment; a stream whose
connection broke may have been served all the same.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.broker.consumers.gathering import delivery_batches, readable_batches
from dejaqueue.broker.topic.session import ConsumerSession
from dejaqueue.broker.topic.writer import Writer
from dejaqueue.errors import BadRequest, DejaQError, InternalError
from dejaqueue.flight.errors import to_flight
from dejaqueue.flight.produce import number_of
from dejaqueue.flight.topic_writers import Submit, TopicWriters
from dejaqueue.local import LocalTransport
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.wire import descriptors, frames
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream, decode_address
from dejaqueue.wire.frames import Close, Credit, DeliveryHead, Frame, Ping, Reply, Settle
from dejaqueue.wire.frames import StreamError as StreamErrorFrame
from tests.simulation.cluster.client_fibers import ClientProcess, ClientWaiter, process
from tests.simulation.cluster.machines import Cluster, ClusterMachine
from tests.simulation.cluster.watch import Watch

_END = object()
SENDER_US_MAX = 20_000
"""How late a thread comes that sends; a busy machine's takes longer."""


class Inbox:
    """What came from a broker; one fiber reads it."""

    def __init__(self, one: ClientProcess) -> None:
        self._process = one
        self._queue: deque[Any] = deque()
        self._waiter: ClientWaiter | None = None
        self.error: Exception | None = None
        self.ended = False

    def put(self, item: Any) -> None:
        """Called by the world."""
        if not self.ended:
            self._queue.append(item)
            self._tell()

    def end(self, error: Exception | None) -> None:
        """Nothing more comes. The first end counts."""
        if not self.ended:
            self.ended, self.error = True, error
            self._tell()

    def _tell(self) -> None:
        if self._waiter is not None:
            self._waiter.tell()

    def get(self, timeout: float | None = None) -> Any:
        """The next; _END = nothing more comes. Raises FlightTimedOutError."""
        world = self._process.world
        until_us = None if timeout is None else world.now_us + int(timeout * 1e6)
        while not self._queue:
            if self.ended:
                return _END
            self._waiter = ClientWaiter(self._process.fibers)
            if not self._waiter.wait(until_us):
                raise flight.FlightTimedOutError("Deadline Exceeded")
        return self._queue.popleft()


class _Call:
    """One stream or call on its way between a client and a broker."""

    def __init__(self, wire: Wire, machine: ClusterMachine) -> None:
        self.process = process()
        self.wire = wire
        self.connection = Connection(wire.world, machine)
        self.inbox = Inbox(self.process)
        self.connection.on_break_here = partial(self.inbox.end, _broken())
        wire.calls.setdefault(self.process, []).append(self)
        self.process.life.on_end.append(self.connection.break_it)

    def send(self, call: Callable[[], None]) -> None:
        """Have something happen at the broker, if the stream lives; else Flight's error."""
        if self.inbox.ended:
            raise self.inbox.error or _broken()
        self.connection.to_broker(call)

    def answer(self, item: Any) -> None:
        """Called by the broker."""
        self.connection.to_client(lambda: self.inbox.put(item))

    def over(self, error: Exception | None) -> None:
        """Called by the broker: the stream ends with this status."""
        self.connection.to_client(lambda: self.inbox.end(error))

    def cancel(self) -> None:
        """The client gives up."""
        self.inbox.end(flight.FlightCancelledError("Cancelled"))
        self.connection.break_it()


def _broken() -> Exception:
    error: Exception = flight.FlightUnavailableError("Connection reset by peer")
    return error


class Wire:
    """In place of `pyarrow.flight`.

    Attributes:
        calls: of each client, those that were opened.
        senders: dice of how late the threads are that read and send deliveries; None = at once.
    """

    FlightError = flight.FlightError
    FlightUnavailableError = flight.FlightUnavailableError
    FlightCancelledError = flight.FlightCancelledError
    FlightTimedOutError = flight.FlightTimedOutError
    FlightDescriptor = flight.FlightDescriptor

    def __init__(self, world: World, cluster: Cluster, watch: Watch) -> None:
        self.world, self.cluster, self.watch = world, cluster, watch
        self.calls: dict[ClientProcess, list[_Call]] = {}
        self.senders: random.Random | None = None

    def lose(self, one: ClientProcess) -> None:
        """All that is open between a client and brokers breaks."""
        for call in self.calls.pop(one, []):
            call.connection.break_it()

    # --- what the client's transport uses -------------------------------------------------------

    def FlightClient(self, location: str, **options: Any) -> WireClient:
        """A connection."""
        host = urlsplit(location).hostname
        return WireClient(self, next(m for m in self.cluster.machines if m.name == host))

    def FlightCallOptions(
        self, timeout: float | None = None, headers: object = None
    ) -> SimpleNamespace:
        """Options of a call."""
        return SimpleNamespace(timeout=timeout, headers=headers)

    def Action(self, name: str, body: bytes) -> SimpleNamespace:
        """An action."""
        return SimpleNamespace(type=name, body=body)

    def Ticket(self, content: bytes) -> SimpleNamespace:
        """A ticket."""
        return SimpleNamespace(ticket=content)


class WireClient:
    """In place of flight.FlightClient."""

    def __init__(self, wire: Wire, machine: ClusterMachine) -> None:
        self._wire, self._machine = wire, machine

    def close(self) -> None:
        """Nothing to do."""

    def do_action(self, action: Any, options: Any) -> Iterator[Any]:
        """One call."""
        answer = self._ask(lambda at: at.action(action.type, json.loads(action.body)), options)
        return iter([SimpleNamespace(body=pa.py_buffer(json.dumps(answer).encode()))])

    def do_get(self, ticket: Any, options: Any) -> _Rows:
        """Rows."""
        content = json.loads(ticket.ticket)
        table = self._ask(lambda at: at.rows(content), options)
        return _Rows(table.schema, table.to_batches())

    def _ask(self, call: Callable[[LocalTransport], Future[Any]], options: Any) -> Any:
        asked = _Call(self._wire, self._machine)

        def done(answer: Future[Any]) -> None:
            wrong = answer.exception()
            if isinstance(wrong, DejaQError):
                asked.over(to_flight(wrong))
            elif wrong is not None:
                asked.over(to_flight(InternalError(repr(wrong))))
            else:
                asked.answer(answer.result())

        def arrive() -> None:
            try:
                there = LocalTransport(self._machine.require())
                call(there).add_done_callback(done)
            except DejaQError as wrong:
                asked.over(to_flight(wrong))

        asked.send(arrive)
        answer = asked.inbox.get(options.timeout)
        if answer is _END:
            raise asked.inbox.error or _broken()
        return answer

    def do_put(self, descriptor: Any, schema: pa.Schema, options: Any) -> tuple[Any, Any]:
        """A stream of batches."""
        call = _Call(self._wire, self._machine)
        door = _PutDoor(call, self._machine, descriptor.command)
        call.send(door.open)
        return _PutWriter(call, door), _PutReader(call)

    def do_exchange(self, descriptor: Any, options: Any) -> tuple[Any, Any]:
        """A consumer."""
        call = _Call(self._wire, self._machine)
        door = _ExchangeDoor(call, self._machine, descriptor.command)
        call.connection.on_break_there = door.broke
        call.send(door.open)
        return _ExchangeWriter(call, door), _ExchangeReader(call)


class _Rows:
    """In place of a FlightStreamReader."""

    def __init__(self, schema: pa.Schema, batches: list[pa.RecordBatch]) -> None:
        self._schema, self._batches = schema, batches

    def read_all(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, self._schema)

    def __iter__(self) -> Iterator[Any]:
        return (SimpleNamespace(data=batch) for batch in self._batches)


# --- writing --------------------------------------------------------------------------------------


class _PutDoor:
    """A broker's end of a stream of batches; as flight/produce.py."""

    def __init__(self, call: _Call, machine: ClusterMachine, command: bytes) -> None:
        self._call, self._machine, self._command = call, machine, command
        self._writer: Writer | TopicWriters | None = None
        self._stream: WriteStream | None = None
        self._schema: pa.Schema | None = None
        self._waiting = 0
        self._is_done = False

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except DejaQError as wrong:
            self._writer = None
            self._call.over(to_flight(wrong))

    def open(self) -> None:
        """The stream begins."""
        self._guarded(self._open)

    def _open(self) -> None:
        stream = descriptors.decode(WriteStream, self._command)
        broker = self._machine.require()
        if stream.topic:
            self._writer = broker.open_write(stream)
        else:
            self._writer = TopicWriters(stream, broker.open_write, broker.is_served_by)
        self._stream = stream

    def batch(self, batch: pa.RecordBatch, number: bytes) -> None:
        """A batch came."""
        self._guarded(partial(self._take, batch, number))

    def _take(self, batch: pa.RecordBatch, number: bytes) -> None:
        writer = self._writer
        if writer is None or self._stream is None:
            return  # the stream was refused
        if batch.schema is not self._schema:
            writer.check_schema(batch.schema)
            self._schema = batch.schema
        replies = self._stream.acks != "none"
        self._waiting += replies
        reply: Callable[[Reply], Any] = self._reply if replies else _ignore
        submit: Submit
        if isinstance(writer, TopicWriters):
            place, submit = writer.addressed(pa.py_buffer(number))
            topic = decode_address(number[4:]).topic
        else:
            place, submit = number_of(pa.py_buffer(number)), writer.submit
            topic = self._stream.topic
        if self._stream.op in {"ack", "nack", "extend"}:
            watch = self._call.wire.watch
            rows = watch.rows_of(topic, batch["id"].to_numpy(), batch["attempts"].to_numpy())
            if self._stream.op == "extend":
                reply = watch.extended(rows, self._machine, self._stream.argument_ms, reply)
            else:
                if self._stream.released:  # by the library itself
                    watch.released(rows)
                watch.arrived.update((row.id, row.attempt) for row in rows)
        submit(place, batch, reply)

    def _reply(self, reply: Reply) -> None:
        self._waiting -= 1
        self._call.answer(frames.encode(reply))
        self._end_if_done()

    def done(self) -> None:
        """The client sends nothing more."""
        self._is_done = True
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._is_done and not self._waiting:
            self._call.over(None)


def _ignore(_reply: Reply) -> None:
    return None


class _PutWriter:
    def __init__(self, call: _Call, door: _PutDoor) -> None:
        self._call, self._door = call, door

    def write_with_metadata(self, batch: pa.RecordBatch, number: bytes) -> None:
        self._call.send(partial(self._door.batch, batch, number))

    def done_writing(self) -> None:
        self._call.send(self._door.done)

    def close(self) -> None:
        """The final status."""
        if self._call.inbox.error is not None:
            raise self._call.inbox.error


class _PutReader:
    def __init__(self, call: _Call) -> None:
        self._call = call

    def read(self) -> bytes | None:
        content = self._call.inbox.get()
        return None if content is _END else content


# --- consuming ------------------------------------------------------------------------------------


class _ExchangeDoor:
    """A broker's end of a consumer; as flight/consume.py."""

    def __init__(self, call: _Call, machine: ClusterMachine, command: bytes) -> None:
        self._call, self._machine, self._command = call, machine, command
        self._session: ConsumerSession | None = None
        self._watched = call.wire.watch.stream(machine)
        self._queued: deque[Callable[[], None]] = deque()

    def open(self) -> None:
        """The stream begins."""
        try:
            options = descriptors.decode(ConsumeStream, self._command)
            broker = self._machine.require()
            self._watched.begin(options, broker)
            self._broker = broker
            self._session = broker.open_consume(options, self)
        except DejaQError as wrong:
            self._call.over(to_flight(wrong))

    def push(self, push: Push) -> None:
        """See Sink.push."""
        [batch] = delivery_batches([push])
        if batch.num_rows:
            self._watched.pushed(push, batch)
        self._send(partial(self._deliver, push))

    def _send(self, call: Callable[[], None]) -> None:
        """As the stream's sending thread does it: in order, and maybe late."""
        dice = self._call.wire.senders
        if dice is None:
            call()
            return
        self._queued.append(call)
        if len(self._queued) == 1:
            self._call.wire.world.after(dice.randint(0, SENDER_US_MAX), self._send_queued)

    def _send_queued(self) -> None:
        while self._queued:
            self._queued[0]()
            self._queued.popleft()

    def _deliver(self, push: Push) -> None:
        [batch] = readable_batches([push], self._broker.clock.utc_ms())
        if batch.num_rows:
            leased = push.leased
            clock_us = self._broker.clock.utc_us()
            head = DeliveryHead(
                push.partition, batch.num_rows, leased.lease_id, leased.lease_end_ms, clock_us
            )
            self._call.answer((frames.encode(head), batch))

    def end(self, error: DejaQError) -> None:
        """See Sink.end."""
        self._put(StreamErrorFrame(error))
        self._put(Close())

    def _put(self, frame: Frame) -> None:
        content = frames.encode(frame)
        self._send(lambda: self._call.answer((content, None)))

    def frame(self, content: bytes) -> None:
        """A frame came."""
        session = self._session
        if session is None:
            return
        frame = frames.decode(content)
        match frame:
            case Credit():
                session.credit(frame.rows)
            case Settle():
                session.settle(frame, self._watched.settled(frame, self._put))
            case Ping():
                self._put(session.ping(frame))
            case Close():
                self._session = None
                self._watched.closed()
                moved = session.close(release=True)
                if moved is not None:
                    self.end(moved)
                self._send(lambda: self._call.over(None))
            case _:
                self.end(BadRequest("frame.type", "credit, settle, ping or close", frame))

    def broke(self) -> None:
        """The connection is gone."""
        session, self._session = self._session, None
        if session is not None:
            session.close(release=False)


class _ExchangeWriter:
    def __init__(self, call: _Call, door: _ExchangeDoor) -> None:
        self._call, self._door = call, door

    def write_metadata(self, content: bytes) -> None:
        self._call.send(partial(self._door.frame, bytes(content)))

    def close(self) -> None:
        """Nothing to do."""


class _ExchangeReader:
    def __init__(self, call: _Call) -> None:
        self._call = call

    def read_chunk(self) -> Any:
        item = self._call.inbox.get()
        if item is _END:
            if self._call.inbox.error is not None:
                raise self._call.inbox.error
            raise StopIteration
        content, batch = item
        return SimpleNamespace(app_metadata=content, data=batch)

    def cancel(self) -> None:
        self._call.cancel()
