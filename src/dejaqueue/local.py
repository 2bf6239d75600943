"""The broker in the user's own process: `dejaqueue.open(path)`, the same client with no server.

Room: above client and broker, the only place that knows both.
Holds: the contract of client/transport.py; callbacks run on the channel's thread, never on a
worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from os import PathLike, fspath
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from dejaqueue.access.near_names import everybody_sees, telling_near_names
from dejaqueue.access.senders import Requester
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import ConsumerSession, Push, Writer, readable_batches
from dejaqueue.client import AsyncClient, Client
from dejaqueue.client.transport import ConsumeChannel, Delivery, WriteChannel
from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import DeliveryHead, Ping, Pong, Reply, Settle


class _LocalWriteChannel:
    """Batches straight to the partitions."""

    def __init__(self, writer: Writer, stream: WriteStream) -> None:
        self._writer = writer
        self._acks = stream.acks
        self._checked: pa.Schema | None = None
        self._pending = 0
        self._condition = threading.Condition()
        self._closed = False

    def send(self, number: int, batch: pa.RecordBatch) -> Future[Reply]:
        """Send a batch."""
        if self._closed:
            raise Unavailable("the channel is closed")
        if batch.schema is not self._checked:
            self._writer.check_schema(batch.schema)
            self._checked = batch.schema
        future: Future[Reply] = Future()
        if self._acks == "none":
            self._writer.submit(number, batch, _ignore)
            future.set_result(Reply(number, batch.num_rows))
            return future
        with self._condition:
            self._pending += 1

        def answered(reply: Reply) -> None:
            future.set_result(reply)
            with self._condition:
                self._pending -= 1
                self._condition.notify_all()

        self._writer.submit(number, batch, answered)
        return future

    def close(self) -> None:
        """Wait for replies, then close."""
        with self._condition:
            self._closed = True
            self._condition.wait_for(lambda: self._pending == 0)


def _ignore(_reply: Reply) -> None:
    return None


class _LocalConsumeChannel:
    """Deliveries on a thread of their own."""

    def __init__(
        self,
        broker: Broker,
        stream: ConsumeStream,
        on_delivery: Callable[[Delivery], None],
        on_pong: Callable[[Pong], None],
        on_end: Callable[[DejaQError | None], None],
    ) -> None:
        self._broker = broker
        self._on_delivery, self._on_pong, self._on_end = on_delivery, on_pong, on_end
        self._queue: SimpleQueue[Push | Pong | DejaQError | None] = SimpleQueue()
        self._closed = False
        self._session: ConsumerSession = broker.open_consume(stream, self)
        self._thread = threading.Thread(target=self._run, name="dejaq-deliveries", daemon=True)
        self._thread.start()

    def push(self, push: Push) -> None:
        """Called by the workers."""
        self._queue.put(push)

    def end(self, error: DejaQError) -> None:
        """Called by the broker: nothing more comes."""
        self._queue.put(error)

    def credit(self, rows: int) -> None:
        """Take this many rows more."""
        self._session.credit(rows)

    def settle(self, settle: Settle) -> Future[Reply]:
        """ack, nack or extend."""
        future: Future[Reply] = Future()
        if settle.number == 0:
            future.set_result(Reply(0))
        self._session.settle(settle, future.set_result)
        return future

    def ping(self, ping: Ping) -> None:
        """There is one clock: the answer is known, but takes the same way."""
        self._queue.put(self._session.ping(ping))

    def close(self) -> bool:
        """End; leases still held end at once. See ConsumeChannel.close."""
        if self._closed:
            return True
        self._closed = True
        self._session.close(release=True)
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        return True  # there is no other broker

    def _run(self) -> None:
        while True:
            queued = self._queue.get()
            if queued is None:
                self._on_end(None)
                return
            if isinstance(queued, DejaQError):
                self._on_end(queued)
                return
            if isinstance(queued, Pong):
                self._on_pong(queued)
                continue
            [batch] = readable_batches([queued], self._broker.clock.utc_ms())
            if batch.num_rows == 0:
                continue
            leased = queued.leased
            head = DeliveryHead(
                queued.partition,
                batch.num_rows,
                leased.lease_id,
                leased.lease_end_ms,
                self._broker.clock.utc_us(),
            )
            self._on_delivery(Delivery(head, batch))


class LocalTransport:
    """A transport that calls a broker in this process.

    Args:
        broker: a started broker.
        owns_broker: stop it when the transport closes.
    """

    shares_clock = True

    def __init__(self, broker: Broker, *, owns_broker: bool = False) -> None:
        self._broker = broker
        self._owns_broker = owns_broker
        self._channels: list[_LocalConsumeChannel] = []
        self._closed = False

    def open_write(self, stream: WriteStream, *, shared: bool = False) -> WriteChannel:
        """Open a stream of batches; here that takes nothing that could be shared."""
        self._check_open()
        with self._near_names():
            return _LocalWriteChannel(self._broker.open_write(stream.check()), stream)

    def open_lane(self, _stream: WriteStream, *, has_fields: bool = False) -> None:
        """None: in one process a batch costs no more."""

    def open_consume(
        self,
        stream: ConsumeStream,
        on_delivery: Callable[[Delivery], None],
        on_pong: Callable[[Pong], None],
        on_end: Callable[[DejaQError | None], None],
    ) -> ConsumeChannel:
        """Open a consumer."""
        self._check_open()
        with self._near_names():
            ends = on_delivery, on_pong, on_end
            channel = _LocalConsumeChannel(self._broker, stream.check(), *ends)
        self._channels = [known for known in self._channels if not known._closed] + [channel]
        return channel

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        """One call; there is no other broker to make it again at."""
        try:
            self._check_open()
            # API keys hold once the directory is served to others.
            with self._near_names():
                asked = self._broker.ask(name, body, Requester(is_near=True))
        except DejaQError as error:
            future: Future[dict[str, Any]] = Future()
            future.set_exception(error)
            return future
        return asked

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        """Rows without leasing."""
        future: Future[pa.Table] = Future()
        try:
            self._check_open()
            values = {name: value for name, value in ticket.items() if name != "op"}
            with self._near_names():
                schema, batches = self._broker.read(ticket["op"], values)
            future.set_result(pa.Table.from_batches(batches, schema))
        except DejaQError as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Close all channels, and the broker if it is ours."""
        if self._closed:
            return
        self._closed = True
        for channel in self._channels:
            channel.close()
        if self._owns_broker:
            self._broker.stop()

    def _near_names(self) -> telling_near_names:
        return telling_near_names(self._broker.topics, everybody_sees)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the client is closed")


def _start(
    path: str | PathLike[str], settings: BrokerSettings | None, clock: Clock | None
) -> LocalTransport:
    if settings is None:
        settings = BrokerSettings(journal=JournalSettings(url=fspath(path)))
    broker = Broker(settings, clock)
    broker.start()
    return LocalTransport(broker, owns_broker=True)


def open(  # noqa: A001 - as sqlite3.connect is to a server: dejaqueue.open is to a broker
    path: str | PathLike[str],
    *,
    settings: BrokerSettings | None = None,
    clock: Clock | None = None,
) -> Client:
    """Run a broker in this process on a directory, and return a client of it.

    Closing the client stops the broker: what was sent is on disk, and is there at the next `open`.

    Args:
        path: the directory, made if needed; "memory:" keeps nothing.
        settings: instead of the defaults; then `path` is not used.
        clock: the time of broker and client; None = the machine's. Tests give a
            `dejaqueue.testing.VirtualClock`, and move it by hand.

    Raises:
        Locked: another process has the directory. JournalDamaged: its files were altered.

    >>> import dejaqueue
    >>> with dejaqueue.open("memory:") as queue:
    ...     _ = queue.create_topic("reminders")
    ...     _ = queue.send("reminders", b"stand up", delay=0.01)
    ...     for message in queue.consume("reminders", max_messages=1):
    ...         print(message.payload)
    ...         _ = message.ack()
    b'stand up'
    """
    return Client(transport=_start(path, settings, clock), clock=clock)


def open_async(
    path: str | PathLike[str],
    *,
    settings: BrokerSettings | None = None,
    clock: Clock | None = None,
) -> AsyncClient:
    """As `open`, for asyncio."""
    return AsyncClient(transport=_start(path, settings, clock), clock=clock)
