"""What a test of a rule asks of a broker, asked of one of several by Flight: it passes it on.

The names are those of `Broker`, as far as the wire has them. Whatever reaches further into a
broker fails with `NotAtADoor`, and the test says by its mark `one_broker` why it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue.access.senders import ANYBODY, NOBODY, Requester, Sender
from dejaqueue.broker.consumers.dispatch import Sink
from dejaqueue.client.flight_transport import FlightTransport, FlightWriteChannel
from dejaqueue.client.transport import ConsumeChannel, Delivery
from dejaqueue.errors import BadRequest, DejaQError, TopicUnknown, TryLater, Unavailable
from dejaqueue.model import Topic
from dejaqueue.topic_names import parse_subscription
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Ping, Reply, Settle, SettleOp
from tests.patience import PATIENCE_SECONDS

BARRIER = 1 << 20
"""Number of the frame behind which everything that was sent has arrived; tests use small ones."""
NEVER = (1 << 46) + 1
"""The sequence of no message."""


class NotAtADoor(AssertionError):
    """A test asks what the wire has no call for."""


def _nobody(sender: object) -> None:
    if sender is not NOBODY and sender != NOBODY:
        raise NotAtADoor("a sender is an API key")


class _Answers:
    """A stream's replies, given to who waits for each."""

    @staticmethod
    def give(reply: Future[Reply], number: int, reply_to: Callable[[Reply], None]) -> None:
        def done(answered: Future[Reply]) -> None:
            error = answered.exception()
            if error is None:
                reply_to(answered.result())
            else:
                assert isinstance(error, DejaQError), error
                reply_to(Reply(number, error=error))

        reply.add_done_callback(done)


@dataclass
class DoorWriter:
    """A stream of batches, as a broker's Writer."""

    channel: FlightWriteChannel

    def check_schema(self, schema: pa.Schema) -> None:
        """The broker does it, with the first batch."""

    def submit(self, number: int, batch: pa.RecordBatch, reply: Callable[[Reply], None]) -> None:
        _Answers.give(self.channel.send(number, batch), number, reply)


class DoorSession:
    """A consumer's stream, as a broker's ConsumerSession.

    Args:
        partitions: how many the topic has now.
    """

    def __init__(
        self,
        transport: FlightTransport,
        stream: ConsumeStream,
        sink: Sink,
        partitions: Callable[[], int],
    ) -> None:
        self._sink, self._partitions = sink, partitions
        self._ended = False
        self._pongs = threading.Semaphore(0)
        self._channel: ConsumeChannel = transport.open_consume(
            stream, self._push, lambda pong: self._pongs.release(), self._end
        )

    def _push(self, delivery: Delivery) -> None:
        self._sink.push(delivery)  # type: ignore[arg-type]  # RecordingConsumer takes both

    def _end(self, error: DejaQError | None) -> None:
        self._ended = True
        if error is not None:
            self._sink.end(error)

    def credit(self, rows: int) -> None:
        self._channel.credit(rows)
        self.arrive()

    def settle(self, settle: Settle, reply: Callable[[Reply], None]) -> None:
        _Answers.give(self._channel.settle(settle), settle.number, reply)

    def ping(self, ping: Ping) -> None:
        self._channel.ping(ping)
        assert self._pongs.acquire(timeout=PATIENCE_SECONDS)

    def arrive(self) -> None:
        """Return when all that was sent to it, or by it, until now is there: each way is in order,
        so an answer that is asked for now comes behind it."""
        if self._ended:
            return
        ids = np.arange(self._partitions(), dtype=np.int64) << 47 | NEVER
        asked = Settle(SettleOp.ACK, number=BARRIER, ids=ids, attempts=np.ones(len(ids), np.uint16))
        try:
            self._channel.settle(asked).result(PATIENCE_SECONDS)
        except Unavailable:
            assert self._ended  # the error that ended it is the consumer's

    def close(self, *, release: bool = True) -> None:
        if release:
            self._channel.close()
        else:
            self._channel.abandon()  # type: ignore[attr-defined]


class DoorTransactions:
    """Calls about transactions, by the names of `Broker.transactions`."""

    def __init__(self, transport: FlightTransport) -> None:
        self._transport = transport

    def act(self, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        asked = self._transport.action(action, body)
        if isinstance(error := asked.exception(PATIENCE_SECONDS), BadRequest):
            raise error
        return asked

    def begin(self, topic: object, timeout_ms: object, **more: Any) -> dict[str, Any]:
        _nobody(more.pop("sender", NOBODY))
        body = {"topic": topic, "timeout_ms": timeout_ms, **more}
        return self.act("begin_transaction", body).result(PATIENCE_SECONDS)

    def decide(self, name: object, participants: object, *, commit: bool, **more: Any) -> Any:
        _nobody(more.pop("sender", NOBODY))
        body = {"transaction": name, "participants": participants, **more}
        return self.act("commit_transaction" if commit else "abort_transaction", body)

    def undecided(self, topic: str) -> list[dict[str, Any]]:
        found = self.act("transactions", {"topic": topic}).result(PATIENCE_SECONDS)
        rows: list[dict[str, Any]] = found["transactions"]
        return rows


class Door:
    """A broker of several that is asked by Flight, and passes on what another one serves.

    Args:
        look_inside: gives what serves a topic, if that is in this process.
    """

    def __init__(self, url: str, look_inside: Callable[[str], Any] | None = None) -> None:
        if look_inside is not None:
            self.runtime = look_inside
        self.transport = FlightTransport(url)
        self.transactions = DoorTransactions(self.transport)
        self._sessions: list[DoorSession] = []
        self._channels: list[FlightWriteChannel] = []

    def __getattr__(self, name: str) -> Any:
        raise NotAtADoor(f"the wire has no {name}")

    def call(
        self, name: str, body: dict[str, Any] | None = None, by: Requester = ANYBODY
    ) -> dict[str, Any]:
        _nobody(by.sender)
        asked = self.transport.action(name, body or {})
        answer: dict[str, Any] = asked.result(PATIENCE_SECONDS)
        return answer

    def read(
        self, op: str, ticket: dict[str, Any], by: Requester = ANYBODY
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        _nobody(by.sender)
        table = self.transport.rows({"op": op, **ticket}).result(PATIENCE_SECONDS)
        if op == "peek":  # has one batch, empty or not
            return table.schema, iter(table.combine_chunks().to_batches() or [_none(table)])
        return table.schema, iter(table.to_batches())

    def create_topic(self, topic: Topic, *, exist_ok: bool = False) -> Topic:
        body = topic.to_dict() | {"exist_ok": exist_ok}
        return Topic.from_answer(self.call("create_topic", body))

    def alter_topic(self, name: str, changes: Any) -> Topic:
        if callable(changes):
            raise NotAtADoor("changes as a function")
        return Topic.from_answer(self.call("alter_topic", {"name": name, **changes}))

    def delete_topic(self, name: str) -> None:
        self.call("delete_topic", {"name": name})

    def topic(self, name: str, *, newest: bool = False) -> Topic:
        return Topic.from_answer(self.call("describe_topic", {"name": name}))

    def topics(self) -> list[Topic]:
        return [Topic.from_answer(one) for one in self.call("list_topics")["topics"]]

    def open_write(
        self, stream: WriteStream, sender: Sender = NOBODY, account: object = None
    ) -> DoorWriter:
        _nobody(sender)
        if account is not None:
            raise NotAtADoor("an account is an address, or an API key")
        self.topic(parse_subscription(stream.check().topic)[0])  # raises TopicUnknown, as a broker
        channel = self.transport.open_write(stream)
        assert isinstance(channel, FlightWriteChannel)
        self._channels.append(channel)
        return DoorWriter(channel)

    def open_consume(self, stream: ConsumeStream, sink: Sink) -> DoorSession:
        topic = parse_subscription(stream.check().topic)[0]
        self.topic(topic)
        session = DoorSession(self.transport, stream, sink, lambda: self._partitions_of(topic))
        self._sessions.append(session)
        return session

    def _partitions_of(self, topic: str) -> int:
        try:
            return self.topic(topic).partitions
        except (TopicUnknown, TryLater):
            return 1

    def arrive(self) -> None:
        """Return when all that was sent to consumers is there."""
        for session in self._sessions:
            session.arrive()

    def close(self) -> None:
        """End all streams."""
        for session in self._sessions:
            session.close()
        for channel in self._channels:
            channel.close()
        self.transport.close()


def _none(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=table.schema)
