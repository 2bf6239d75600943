"""The client's end of a consumer's lane, against a small server that behaves, breaks and refuses.

With a real broker, over TLS, and when it breaks: tests/integration/test_express_lane.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client.lane import connect
from dejaqueue.client.lane_consume import LaneConsumeChannel
from dejaqueue.errors import DejaQError, Elsewhere, InternalError, TopicUnknown, Unavailable
from dejaqueue.wire import frames, lane
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import (
    Close,
    Credit,
    DeliveryHead,
    Ping,
    Pong,
    Reply,
    Settle,
    SettleOp,
    StreamError,
)
from dejaqueue.wire.lane import LaneAddress
from tests.patience import PATIENCE_SECONDS
from tests.unit.client.test_lane import LET_IN, URL, Host

ROWS = pa.record_batch({"id": [1, 2], "payload": [b"a", b"b"], "new": ["x", "y"]})
HEAD = DeliveryHead(0, 2, 77, 1_000, 5)
OPENED = lane.encode_opened(ROWS.schema)
DELIVERY = b"".join(lane.encode_delivery(HEAD, ROWS))


class Broker(Host):
    """Lets a consumer in, and says what the test wants."""

    def frame(self) -> bytes:
        content = self.socket.recv(4)
        return self.socket.recv(lane.length_of(content, 0))

    def say(self, frame: frames.Frame) -> None:
        self.socket.sendall(lane.with_length(frames.encode(frame)))


class Heard:
    def __init__(self, broker: Broker) -> None:
        self.deliveries: SimpleQueue[Any] = SimpleQueue()
        self.pongs: SimpleQueue[Pong] = SimpleQueue()
        self.ends: SimpleQueue[DejaQError | None] = SimpleQueue()
        opened = connect(URL, LaneAddress(broker.port, "n"), [], None)
        assert opened is not None
        self.channel = LaneConsumeChannel(
            *opened, ConsumeStream("t"), self.deliveries.put, self.pongs.put, self.ends.put
        )

    def end(self) -> DejaQError | None:
        return self.ends.get(timeout=PATIENCE_SECONDS)


Meet = Callable[..., tuple[Broker, Heard]]


@pytest.fixture
def meet() -> Iterator[Meet]:
    ends: list[Callable[[], None]] = []

    def open_one(behind: bytes = b"") -> tuple[Broker, Heard]:
        broker = Broker(LET_IN + behind)
        heard = Heard(broker)
        ends.extend([heard.channel.abandon, broker.close])
        assert lane.decode_open(broker.frame()) == ConsumeStream("t")
        return broker, heard

    yield open_one
    for end in ends:
        end()


def test_credit_deliveries_settles_and_pings(meet: Meet) -> None:
    broker, heard = meet(OPENED + DELIVERY[:20])
    heard.channel.credit(5)
    assert frames.decode(broker.frame()) == Credit(5)
    broker.socket.sendall(DELIVERY[20:])
    delivery = heard.deliveries.get(timeout=PATIENCE_SECONDS)
    assert delivery.head == HEAD
    assert delivery.batch == ROWS  # a column that this client does not know is one more
    heard.channel.ping(Ping(1, 99))
    assert frames.decode(broker.frame()) == Ping(1, 99)
    broker.say(Pong(1, 99, 123))
    assert heard.pongs.get(timeout=PATIENCE_SECONDS) == Pong(1, 99, 123)
    assert heard.channel.settle(Settle(SettleOp.ACK, 0, lease_id=77)).result(0) == Reply(0)
    broker.frame()
    reply = heard.channel.settle(Settle(SettleOp.ACK, 4, lease_id=77))
    settle = frames.decode(broker.frame())
    assert isinstance(settle, Settle)
    assert (settle.number, settle.lease_id) == (4, 77)
    broker.say(Reply(4, 2))
    assert reply.result(PATIENCE_SECONDS).rows == 2


def test_a_lane_that_breaks_ends_what_waits(meet: Meet) -> None:
    broker, heard = meet(OPENED)
    reply = heard.channel.settle(Settle(SettleOp.ACK, 1, lease_id=77))
    broker.frame()
    broker.socket.close()
    assert isinstance(reply.exception(PATIENCE_SECONDS), Unavailable)
    assert isinstance(heard.end(), Unavailable)
    late = heard.channel.settle(Settle(SettleOp.ACK, 2, lease_id=77))
    assert isinstance(late.exception(0), Unavailable)
    heard.channel.close()
    assert heard.ends.empty()


def test_a_refusal_is_what_it_was(meet: Meet) -> None:
    broker, heard = meet()
    broker.say(StreamError(TopicUnknown("t")))
    assert isinstance(heard.end(), TopicUnknown)


@pytest.mark.parametrize(
    ("said", "is_whole"),
    [([Close()], True), ([], True), ([StreamError(Elsewhere("moves"))], False)],
)
def test_closing_says_so_and_waits_for_the_end__which_says_how_it_was(
    meet: Meet, said: list[frames.Frame], is_whole: bool
) -> None:
    broker, heard = meet(OPENED)
    answers: SimpleQueue[bool] = SimpleQueue()
    threading.Thread(target=lambda: answers.put(heard.channel.close())).start()
    assert isinstance(frames.decode(broker.frame()), Close)
    for frame in said:
        broker.say(frame)
    broker.socket.close()
    assert answers.get(timeout=PATIENCE_SECONDS) is is_whole
    assert heard.end() is None
    assert heard.channel.close() is is_whole


def test_closing_what_has_ended_already_gave_nothing_back(meet: Meet) -> None:
    broker, heard = meet(OPENED)
    broker.say(Close())
    assert isinstance(heard.end(), Unavailable)
    assert not heard.channel.close()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (DELIVERY, InternalError),
        (OPENED + lane.with_length(frames.encode(HEAD)), Unavailable),
        (OPENED + lane.with_length(frames.encode(HEAD) + b"garbage" * 9), Unavailable),
        (OPENED + lane.with_length(frames.encode(Credit(1))), InternalError),
        (lane.with_length(b"\x01\x0b\x00\x00\x00\x00\x00\x00rubbish"), DejaQError),
    ],
    ids=["no schema", "no rows", "garbage", "credit", "schema"],
)
def test_what_has_no_place_there_ends_it(meet: Meet, said: bytes, kind: type[DejaQError]) -> None:
    _, heard = meet(said)
    assert isinstance(heard.end(), kind)
