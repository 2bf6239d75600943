"""A consumer's lane of a real server, spoken byte by byte as docs/wire.md has it; and bad guests.

Not covered here: the client that speaks it (tests/unit/client/test_lane_consume.py), TLS, keys and
other brokers (tests/integration/test_express_lane.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import Push, readable_batches
from dejaqueue.errors import BadRequest, Elsewhere, InternalError, TopicUnknown, Unavailable
from dejaqueue.flight.senders import Senders
from dejaqueue.http import lane_consumer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.schema.messages import DELIVERY
from dejaqueue.wire import frames, lane
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import (
    Close,
    Credit,
    DeliveryHead,
    Frame,
    Ping,
    Pong,
    Reply,
    Settle,
    SettleOp,
    StreamError,
)
from tests.patience import until
from tests.unit.http.test_lane import BOUNDS, Guest


class Consumer(Guest):
    """A guest that consumes."""

    def __init__(self, server: HttpServer, topic: str = "t", **options: object) -> None:
        super().__init__(server)
        self.socket.sendall(lane.encode_open(ConsumeStream(topic, **options)))  # type: ignore[arg-type]

    def tell(self, frame: Frame) -> None:
        self.socket.sendall(lane.with_length(frames.encode(frame)))

    def frame(self) -> bytes:
        (length,) = struct.unpack("<I", self.take(4))
        return self.take(length)

    def rows(self) -> tuple[DeliveryHead, pa.RecordBatch]:
        content = self.frame()
        head = frames.decode(content)
        assert isinstance(head, DeliveryHead), head
        return head, lane.decode_rows(content, DELIVERY)


@pytest.fixture
def server(broker: Broker) -> Iterator[HttpServer]:
    server = HttpServer(Service(broker, Gate(broker.keys), lambda: True), "127.0.0.1", 0, BOUNDS)
    server.start()
    yield server
    server.stop()
    lanes = server.connections.lanes
    assert lanes is not None
    assert (lanes.open, lanes.held_bytes) == (set(), 0)


COUNT = 300
"""Messages of 90 KB: more than buffers of the system take, and than are read in one go."""
Meet = Callable[..., Consumer]


@pytest.fixture
def meet(broker: Broker, server: HttpServer) -> Iterator[Meet]:
    """Opens a consumer; it is closed when the test ends."""
    met: list[Consumer] = []

    def open_one(topic: str = "t", **options: object) -> Consumer:
        met.append(Consumer(server, topic, **options))
        if topic != "nobody":
            assert lane.decode_opened(met[-1].frame()) == DELIVERY
        return met[-1]

    yield open_one
    for one in met:
        one.socket.close()
    until(lambda: not broker.consumers("t"))


@pytest.fixture
def consumer(meet: Meet) -> Consumer:
    return meet()


def sent(server: HttpServer, *payloads: bytes) -> None:
    guest = Guest(server)
    for number, payload in enumerate(payloads, 1):
        guest.say(payload, number=number)
        assert guest.reply().error is None
    guest.socket.close()


def leased(broker: Broker) -> int:
    found = broker.call("stats", {"topic": "t"})
    return int(found["leased"])


def test_what_is_sent_is_delivered_for_credit_and_acked(
    broker: Broker, server: HttpServer, consumer: Consumer
) -> None:
    consumer.tell(Ping(7, 99))
    answer = frames.decode(consumer.frame())
    assert isinstance(answer, Pong)
    assert (answer.number, answer.client_us) == (7, 99)
    sent(server, b"a", b"b", b"c")
    for number, payload in enumerate([b"a", b"b"], 1):
        consumer.tell(Credit(1))
        head, rows = consumer.rows()
        assert head.rows == rows.num_rows == 1
        assert rows.column("payload").to_pylist() == [payload]
        consumer.tell(Settle(SettleOp.ACK, number, head.partition, head.lease_id))
        reply = frames.decode(consumer.frame())
        assert isinstance(reply, Reply)
        assert (reply.number, reply.error) == (number, None)
    assert leased(broker) == 0


def test_what_is_due_as_it_comes_is_read_by_nobody(
    server: HttpServer, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    run = Senders.run

    def counted(self: Senders, call: Callable[[], None]) -> None:
        read.append(call)
        run(self, call)

    monkeypatch.setattr(Senders, "run", counted)
    sent(server, b"before anybody asked")
    consumer.tell(Credit(4))
    assert consumer.rows()[1].column("payload").to_pylist() == [b"before anybody asked"]
    assert len(read) == 1
    for payload in (b"one", b"", b"three"):
        sent(server, payload)
        assert consumer.rows()[1].column("payload").to_pylist() == [payload]
    assert len(read) == 1


def test_who_closes_while_its_topic_moves_is_told(broker: Broker, consumer: Consumer) -> None:
    """What it was sent may not be given back: it has to say so to the next broker."""
    broker.runtime("t")._closings = []  # as if that had just begun
    consumer.tell(Close())
    told = frames.decode(consumer.frame())
    assert isinstance(told, StreamError)
    assert isinstance(told.error, Elsewhere)
    assert consumer.is_closed()
    broker.runtime("t")._closings = None


def test_who_closes_gives_back_what_it_holds(
    server: HttpServer, consumer: Consumer, meet: Meet
) -> None:
    consumer.tell(Credit(1))
    sent(server, b"a")
    consumer.rows()
    consumer.tell(Close())
    assert consumer.is_closed()
    following = meet()
    following.tell(Credit(1))
    _, rows = following.rows()
    assert rows.column("attempts").to_pylist() == [2]


def test_who_breaks_off_keeps_its_leases(
    broker: Broker, server: HttpServer, consumer: Consumer
) -> None:
    consumer.tell(Credit(1))
    sent(server, b"a")
    consumer.rows()
    consumer.socket.close()
    until(lambda: not broker.consumers("t"))
    assert leased(broker) == 1


def test_a_settle_that_cannot_be_read_is_answered_and_the_lane_goes_on(
    server: HttpServer, consumer: Consumer
) -> None:
    whole = frames.encode(Settle(SettleOp.ACK, 6, lease_id=1))
    consumer.socket.sendall(lane.with_length(whole[:-4]))
    reply = frames.decode(consumer.frame())
    assert isinstance(reply, Reply)
    assert reply.number == 6
    assert isinstance(reply.error, BadRequest)
    consumer.tell(Ping(1, 1))
    assert isinstance(frames.decode(consumer.frame()), Pong)


@pytest.mark.parametrize("wrong", [b"", b"\x01\x02", b"\x01\x63\x00\x00\x00\x00\x00\x00", None])
def test_a_frame_that_has_no_place_there_ends_it(
    server: HttpServer, consumer: Consumer, wrong: bytes | None
) -> None:
    content = frames.encode(Pong(1, 1, 1)) if wrong is None else wrong
    consumer.socket.sendall(lane.with_length(content))
    ended = consumer.hear()
    assert isinstance(ended, StreamError)
    assert isinstance(ended.error, BadRequest)
    assert consumer.is_closed()


def test_who_may_not_open_one_is_told_why(server: HttpServer, meet: Meet) -> None:
    heard = meet("nobody").hear()
    assert isinstance(heard, StreamError)
    assert isinstance(heard.error, TopicUnknown)
    garbled, late = Guest(server), Guest(server)
    garbled.socket.sendall(lane.with_length(b"\x01\x0a\x00\x00\x00\x00\x00\x00{"))
    late.say(b"x", number=1)
    assert late.reply().error is None
    late.socket.sendall(lane.encode_open(ConsumeStream("t")))  # it has sent: it is no consumer's
    for guest in (garbled, late):
        heard = guest.hear()
        assert isinstance(heard, StreamError)
        assert isinstance(heard.error, BadRequest)
        assert guest.is_closed()
        guest.socket.close()


def test_a_topic_that_is_deleted_and_a_server_that_stops_say_so(
    broker: Broker, server: HttpServer, meet: Meet
) -> None:
    broker.create_topic(Topic("gone"))
    deleted, stopped = meet("gone"), meet()
    broker.delete_topic("gone")
    heard = deleted.hear()
    assert isinstance(heard, StreamError)
    assert isinstance(heard.error, TopicUnknown)
    assert isinstance(deleted.hear(), Close)
    assert deleted.is_closed()
    server.stop()
    heard = stopped.hear()
    assert isinstance(heard, StreamError)
    assert isinstance(heard.error, Unavailable)


def test_nothing_is_read_for_who_does_not_read(
    server: HttpServer, meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.connections, "bounds", replace(BOUNDS, stuck_seconds=60.0))
    read: list[int] = []

    def counted(pushes: list[Push], now_ms: int) -> list[pa.RecordBatch]:
        read.append(sum(len(push.leased.sequences) for push in pushes))
        return readable_batches(pushes, now_ms)

    monkeypatch.setattr(lane_consumer, "readable_batches", counted)
    consumer = meet(batch_rows_max=1)
    sent(server, *[b"x" * 90_000] * COUNT)
    consumer.tell(Credit(COUNT))
    until(lambda: sum(read) > 0)
    # Some of it is in buffers of the system; what is not stays where it is.
    looks: list[int] = []

    def rests() -> bool:
        looks.append(sum(read))
        return looks[-40:].count(looks[-1]) == 40

    until(rests)
    assert sum(read) < COUNT
    got = 0
    while got < COUNT:
        got += consumer.rows()[0].rows
    assert sum(read) == COUNT


@pytest.mark.parametrize("wrong", [MemoryError("none"), OSError("rotten"), ValueError("a bug")])
def test_a_delivery_that_cannot_be_read_ends_it_aloud(
    server: HttpServer,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Exception,
) -> None:
    def fails(_pushes: list[Push], _now_ms: int) -> list[pa.RecordBatch]:
        raise wrong

    monkeypatch.setattr(lane_consumer, "readable_batches", fails)
    sent(server, b"a")
    consumer.tell(Credit(1))
    heard = consumer.hear()
    assert isinstance(heard, StreamError)
    assert isinstance(heard.error, Unavailable)
    assert not isinstance(heard.error, InternalError)
    assert isinstance(consumer.hear(), Close)
    assert consumer.is_closed()
