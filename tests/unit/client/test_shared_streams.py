"""Channels of many topics on one stream. The other end: unit/flight/test_topic_writers.py."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client import shared_streams
from dejaqueue.client.shared_streams import SharedStreams, SharedWriteChannel
from dejaqueue.errors import Unavailable
from dejaqueue.wire.descriptors import Address, WriteStream, decode_address
from dejaqueue.wire.frames import Reply

BATCH = pa.record_batch({"payload": [b"x"]})
OTHER = pa.record_batch({"payload": [b"x"], "due": pa.array([1], pa.int64())})


class FakeStream:
    """Keeps what is sent; the test answers."""

    def __init__(self, kind: WriteStream) -> None:
        self.kind = kind
        self.sent: list[tuple[int, Address]] = []
        self.replies: list[Future[Reply]] = []
        self.is_over = self.is_closed = False

    @property
    def is_idle(self) -> bool:
        return all(reply.done() for reply in self.replies)

    def send(self, number: int, batch: pa.RecordBatch, address: bytes) -> Future[Reply]:
        self.sent.append((number, decode_address(address)))
        reply: Future[Reply] = Future()
        self.replies.append(reply)
        return reply

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def opened() -> list[FakeStream]:
    return []


@pytest.fixture
def streams(opened: list[FakeStream]) -> SharedStreams:
    def open_stream(kind: WriteStream) -> FakeStream:
        opened.append(FakeStream(kind))
        return opened[-1]

    return SharedStreams(open_stream)


def test_topics_and_producers_share_a_stream(
    streams: SharedStreams, opened: list[FakeStream]
) -> None:
    for topic, producer, number in (("a", "p", 7), ("b", "q", 7), ("c", "", 1)):
        SharedWriteChannel(streams, WriteStream(topic, producer=producer)).send(number, BATCH)
    [stream] = opened
    assert stream.kind == WriteStream("")
    assert [address for _, address in stream.sent] == [
        Address("a", "p", 7),
        Address("b", "q", 7),
        Address("c", "", 1),
    ]
    assert len({number for number, _ in stream.sent}) == 3


@pytest.mark.parametrize(
    ("stream", "batch"),
    [
        (WriteStream("a"), OTHER),
        (WriteStream("a", "cancel"), BATCH),
        (WriteStream("a", acks="leader"), BATCH),
        (WriteStream("a", "nack", reason="broken"), BATCH),
    ],
)
def test_another_kind_of_batch_has_a_stream_of_its_own(
    streams: SharedStreams, opened: list[FakeStream], stream: WriteStream, batch: pa.RecordBatch
) -> None:
    SharedWriteChannel(streams, WriteStream("a")).send(1, BATCH)
    SharedWriteChannel(streams, stream).send(1, batch)
    assert len(opened) == 2


def test_a_stream_that_is_over_is_opened_anew(
    streams: SharedStreams, opened: list[FakeStream]
) -> None:
    SharedWriteChannel(streams, WriteStream("a")).send(1, BATCH)
    opened[0].is_over = True
    SharedWriteChannel(streams, WriteStream("a")).send(1, BATCH)
    assert [len(stream.sent) for stream in opened] == [1, 1]


def test_no_stream_is_the_replys_error() -> None:
    def refuse(_kind: WriteStream) -> FakeStream:
        raise Unavailable("the client is closed")

    reply = SharedWriteChannel(SharedStreams(refuse), WriteStream("a")).send(1, BATCH)
    assert isinstance(reply.exception(), Unavailable)


def test_of_too_many_kinds_an_idle_one_is_closed(
    streams: SharedStreams, opened: list[FakeStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_streams, "STREAMS_MAX", 2)

    def send(reason: str) -> None:
        SharedWriteChannel(streams, WriteStream("a", "nack", reason=reason)).send(1, BATCH)

    send("busy")
    send("idle")
    opened[1].replies[0].set_result(Reply(1))
    send("third")
    assert [stream.is_closed for stream in opened] == [False, True, False]


def test_closing_a_channel_waits_for_its_own_replies(
    streams: SharedStreams, opened: list[FakeStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SharedWriteChannel(streams, WriteStream("a"))
    second = SharedWriteChannel(streams, WriteStream("b"))
    first.send(1, BATCH)
    second.send(1, BATCH)
    asked: list[Future[Reply]] = []

    def look(reply: Future[Reply], seconds: float | None = None) -> None:
        asked.append(reply)

    exception: Callable[..., Any] = Future.exception
    monkeypatch.setattr(Future, "exception", look)
    first.close()
    monkeypatch.setattr(Future, "exception", exception)
    assert asked == [opened[0].replies[0]]
    assert not opened[0].is_closed, "others use it"
    opened[0].replies[0].set_result(Reply(1))
    first.close()
