"""Flight channels against a small server that behaves, breaks and refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from dejaqueue.client.flight_transport import (
    FlightTransport,
    FlightWriteChannel,
    flight_location,
)
from dejaqueue.client.shared_streams import SharedWriteChannel
from dejaqueue.client.transport import Delivery
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, TopicUnknown, Unavailable, to_fields
from dejaqueue.schema import messages
from dejaqueue.wire import descriptors, frames
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Close, DeliveryHead, Ping, Pong, Reply, Settle, SettleOp
from tests.unit.client.fake_transport import SECONDS_MAX, delivery_batch

BATCH = pa.record_batch({"payload": [b"x", b"y"]})


class SmallServer(flight.FlightServerBase):  # type: ignore[misc]
    """What it does is named by the topic."""

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        stream = descriptors.decode(WriteStream, descriptor.command)
        if stream.topic == "unknown":
            self.refuse(TopicUnknown("unknown"))
        for count, chunk in enumerate(reader, start=1):
            number = int.from_bytes(chunk.app_metadata.to_pybytes(), "little")
            if stream.topic == "breaks" and count == 2:
                raise flight.FlightUnavailableError("power cut")
            if stream.acks != "none":
                reply = Reply(number, chunk.data.num_rows, 10 * number)
                writer.write(pa.py_buffer(frames.encode(reply)))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        stream = descriptors.decode(ConsumeStream, descriptor.command)
        if stream.topic == "unknown":
            self.refuse(TopicUnknown("unknown"))
        writer.begin(messages.DELIVERY)

        def say(frame: frames.Frame) -> None:
            writer.write_metadata(pa.py_buffer(frames.encode(frame)))

        while True:
            try:
                frame = frames.decode(reader.read_chunk().app_metadata)
            except StopIteration:
                return
            match frame:
                case frames.Credit():
                    head = DeliveryHead(0, 2, 77, 60_000, 30_000_000)
                    batch = delivery_batch([1, 2])
                    writer.write_with_metadata(batch, pa.py_buffer(frames.encode(head)))
                case Ping():
                    say(Pong(frame.number, frame.client_us, 123))
                case Settle():
                    if stream.topic == "breaks":
                        raise flight.FlightUnavailableError("power cut")
                    if stream.topic == "stops":
                        say(frames.StreamError(Unavailable("stopping", 700)))
                        say(Close())
                        return
                    if frame.number:
                        say(Reply(frame.number, 2))
                case Close():
                    if stream.topic == "moves":
                        say(frames.StreamError(Elsewhere("it moves")))
                    return

    def refuse(self, error: DejaQError) -> None:
        raise pa.ArrowInvalid(f"{error}\ndejaq:{json.dumps(to_fields(error))}")

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        if action.type == "nonsense":
            yield flight.Result(b"[1]")
        elif action.type == "refuses":
            self.refuse(BadRequest("name", "a name", 5))
        else:
            yield flight.Result(json.dumps({"got": json.loads(action.body.to_pybytes())}).encode())

    def do_get(self, context: Any, ticket: Any) -> Any:
        rows = json.loads(ticket.ticket)["limit"]
        return flight.RecordBatchStream(pa.table({"id": list(range(rows))}))


@pytest.fixture(scope="module")
def server() -> Iterator[SmallServer]:
    with SmallServer("grpc://127.0.0.1:0") as running:
        yield running


@pytest.fixture
def transport(server: SmallServer) -> Iterator[FlightTransport]:
    made = FlightTransport(f"dejaq://127.0.0.1:{server.port}")
    yield made
    made.close()
    made.close()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())  # other tests of this process may have left theirs
    yield
    left = [t for t in threading.enumerate() if t.name.startswith("dejaq-") and t not in before]
    for thread in left:
        thread.join(SECONDS_MAX)
    assert not [thread for thread in left if thread.is_alive()]


class Heard:
    """What a consume channel called back."""

    def __init__(self, transport: FlightTransport, topic: str) -> None:
        self.deliveries: list[Delivery] = []
        self.pongs: list[Pong] = []
        self.ends: list[DejaQError | None] = []
        self.changed = threading.Condition()
        self.channel = transport.open_consume(
            ConsumeStream(topic),
            self._keep(self.deliveries),
            self._keep(self.pongs),
            self._keep(self.ends),
        )

    def _keep(self, kept: list[Any]) -> Any:
        def call(value: Any) -> None:
            with self.changed:
                kept.append(value)
                self.changed.notify_all()

        return call

    def wait(self, kept: list[Any], count: int = 1) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(kept) >= count, SECONDS_MAX)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("dejaq://localhost", "grpc://localhost:7464"),
        ("dejaq://10.0.0.1:80", "grpc://10.0.0.1:80"),
        ("dejaqs://host:1", "grpc+tls://host:1"),
        ("dejaq://[::1]:5", "grpc://[::1]:5"),
    ],
)
def test_urls(url: str, location: str) -> None:
    assert flight_location(url) == location


@pytest.mark.parametrize("url", ["", "localhost:80", "http://x", "dejaq://", "dejaq://h:port"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(BadRequest, match=r"^url: "):
        flight_location(url)


def test_batches_and_replies(transport: FlightTransport) -> None:
    channel = transport.open_write(WriteStream("t"))
    replies = [channel.send(number, BATCH) for number in range(1, 20)]
    assert [reply.result(SECONDS_MAX).first_id for reply in replies] == [
        10 * number for number in range(1, 20)
    ]
    channel.close()
    channel.close()
    assert isinstance(channel.send(20, BATCH).exception(SECONDS_MAX), Unavailable)


def test_without_replies_all_is_done_at_once(transport: FlightTransport) -> None:
    channel = transport.open_write(WriteStream("t", acks="none"))
    assert channel.send(1, BATCH).result(0) == Reply(1, 2)
    channel.close()


def test_a_channel_that_was_not_used_closes(transport: FlightTransport) -> None:
    channel = transport.open_write(WriteStream("t"))
    channel.close()
    assert isinstance(channel.send(1, BATCH).exception(SECONDS_MAX), Unavailable)


def test_a_server_that_dies_in_the_middle(transport: FlightTransport) -> None:
    channel = transport.open_write(WriteStream("breaks"))
    assert channel.send(1, BATCH).result(SECONDS_MAX).rows == 2
    lost = [channel.send(number, BATCH) for number in range(2, 6)]
    for reply in lost:
        error = reply.exception(SECONDS_MAX)
        assert isinstance(error, Unavailable), repr(error)
    channel.close()


def test_a_refusal_is_what_it_was(transport: FlightTransport) -> None:
    channel = transport.open_write(WriteStream("unknown"))
    assert isinstance(channel.send(1, BATCH).exception(SECONDS_MAX), TopicUnknown)


def test_a_batch_of_another_schema_is_refused_alone(transport: FlightTransport) -> None:
    channel = transport.open_write(WriteStream("t"))
    assert channel.send(1, BATCH).result(SECONDS_MAX).rows == 2
    other = pa.record_batch({"load": [1]})
    assert isinstance(channel.send(2, other).exception(SECONDS_MAX), BadRequest)
    assert channel.send(3, BATCH).result(SECONDS_MAX).first_id == 30


def test_nobody_there() -> None:
    transport = FlightTransport("dejaq://127.0.0.1:1")
    reply = transport.open_write(WriteStream("t")).send(1, BATCH)
    assert isinstance(reply.exception(SECONDS_MAX), Unavailable)
    assert isinstance(transport.action("clock", {}).exception(SECONDS_MAX), Unavailable)
    transport.close()
    with pytest.raises(Unavailable, match="closed"):
        transport.open_write(WriteStream("t"))
    with pytest.raises(Unavailable, match="closed"):
        transport.action("clock", {})


def test_a_consumer(transport: FlightTransport) -> None:
    heard = Heard(transport, "t")
    heard.channel.ping(Ping(1, 99))
    heard.channel.credit(5)
    heard.wait(heard.deliveries)
    heard.wait(heard.pongs)
    assert heard.pongs == [Pong(1, 99, 123)]
    assert heard.deliveries[0].head.lease_id == 77
    assert heard.deliveries[0].batch.column("payload").to_pylist() == [b"payload-0", b"payload-1"]
    assert heard.channel.settle(Settle(SettleOp.ACK, 4, lease_id=77)).result(SECONDS_MAX).rows == 2
    assert heard.channel.settle(Settle(SettleOp.ACK, 0, lease_id=77)).result(0) == Reply(0)
    assert heard.channel.close()
    assert heard.channel.close()
    assert heard.ends == [None]
    late = heard.channel.settle(Settle(SettleOp.ACK, 9, lease_id=77))
    assert isinstance(late.exception(SECONDS_MAX), Unavailable)


@pytest.mark.parametrize("topic", ["breaks", "stops"])
def test_a_consumer_whose_server_goes(transport: FlightTransport, topic: str) -> None:
    heard = Heard(transport, topic)
    reply = heard.channel.settle(Settle(SettleOp.ACK, 1, lease_id=77))
    assert isinstance(reply.exception(SECONDS_MAX), Unavailable)
    heard.wait(heard.ends)
    assert isinstance(heard.ends[0], Unavailable)
    assert not heard.channel.close()
    assert len(heard.ends) == 1


def test_a_consumer_whose_topic_moves_as_it_closes(transport: FlightTransport) -> None:
    heard = Heard(transport, "moves")
    assert not heard.channel.close()
    assert heard.ends == [None]


def test_a_consumer_of_nothing(transport: FlightTransport) -> None:
    heard = Heard(transport, "unknown")
    heard.wait(heard.ends)
    assert isinstance(heard.ends[0], TopicUnknown)


def test_calls(transport: FlightTransport) -> None:
    assert transport.action("echo", {"a": 1}).result(SECONDS_MAX) == {"got": {"a": 1}}
    assert transport.rows({"limit": 3}).result(SECONDS_MAX).num_rows == 3
    error = transport.action("refuses", {}).exception(SECONDS_MAX)
    assert isinstance(error, BadRequest)
    assert str(error) == "name: a name, got: 5"
    assert "not a JSON object" in str(transport.action("nonsense", {}).exception(SECONDS_MAX))


def test_closing_ends_open_streams(server: SmallServer) -> None:
    transport = FlightTransport(f"dejaq://127.0.0.1:{server.port}")
    heard = Heard(transport, "t")
    write = transport.open_write(WriteStream("t"))
    reply = write.send(1, BATCH)
    transport.close()
    assert reply.result(0).rows == 2
    assert heard.ends == [None]


def test_only_who_follows_shares_a_stream(server: SmallServer) -> None:
    """Another broker's topic is passed on for others, and that takes a stream of its own."""
    for follows, kind in ((True, SharedWriteChannel), (False, FlightWriteChannel)):
        transport = FlightTransport(f"dejaq://127.0.0.1:{server.port}", follows=follows)
        assert type(transport.open_write(WriteStream("t"), shared=True)) is kind
        assert type(transport.open_write(WriteStream("t"))) is FlightWriteChannel
        transport.close()
