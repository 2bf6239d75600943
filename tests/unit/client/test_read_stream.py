"""Covers: a stream of rows is read batch by batch, and broken off when it is left, however late it
opens. Not covered: a broker that is silent (tests/integration/test_silent_broker.py).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from dejaqueue.client.read_stream import ReadStream, ReadStreams
from dejaqueue.errors import Unavailable

SCHEMA = pa.schema([("number", pa.int64())])


@dataclass
class Chunk:
    data: int


class Reader:
    """Flight's side: numbers in place of batches."""

    schema = SCHEMA

    def __init__(self, count: int) -> None:
        self._left = list(range(count))
        self.cancelled = 0

    def read_chunk(self) -> Chunk:
        if not self._left:
            raise StopIteration
        return Chunk(self._left.pop(0))

    def cancel(self) -> None:
        self.cancelled += 1


def at_once(make: Callable[[], None]) -> None:
    make()


def opened(reader: Reader) -> ReadStream[int]:
    """A stream that is open, of numbers ten times as large."""
    return ReadStream(lambda: reader, lambda number: number * 10, at_once, lambda _: None)


def test_all_of_it_is_read_and_shaped__and_then_cancelled() -> None:
    reader = Reader(3)
    stream = opened(reader)
    assert stream.schema == SCHEMA
    assert list(stream.batches()) == [0, 10, 20]
    assert reader.cancelled


def test_what_nobody_reads_any_more_is_cancelled() -> None:
    reader = Reader(3)
    batches = opened(reader).batches()
    assert next(batches) == 0
    assert not reader.cancelled
    batches.close()  # type: ignore[attr-defined]
    assert reader.cancelled


def test_one_that_is_left_while_it_opens_is_cancelled_when_it_does() -> None:
    reader, steps = Reader(3), list[Callable[[], None]]()

    def left(make: Callable[[], None]) -> None:
        steps.append(make)
        raise Unavailable("no sign of life")

    with pytest.raises(Unavailable):
        ReadStream[int](lambda: reader, int, left, lambda _: None)
    steps[0]()
    assert reader.cancelled == 1


def test_it_waits_only_while_it_is_read() -> None:
    seen: list[int | None] = []
    stream = ReadStream[int](
        lambda: Reader(2), int, at_once, lambda one: seen.append(one.waits_since_us())
    )
    assert stream.waits_since_us() is None
    for _ in stream.batches():
        assert stream.waits_since_us() is None
    assert len(seen) == 3
    assert None not in seen


def test_one_that_is_ended_on_its_way_raises_why() -> None:
    reader = Reader(1)
    stream = opened(reader)
    batches = stream.batches()
    assert next(batches) == 0
    stream.ended(Unavailable("no sign of life"))  # Flight ends a stream that was cancelled
    with pytest.raises(Unavailable, match="no sign of life"):
        next(batches)
    assert reader.cancelled


def test_those_of_a_connection_are_known_once_they_are_read__until_nobody_has_them() -> None:
    told: list[int] = []
    streams = ReadStreams(lambda: told.append(1))
    stream = streams.open(lambda: Reader(1), int, at_once)
    assert streams.are_open() == []
    batches = stream.batches()
    assert next(batches) == 0
    assert (streams.are_open(), told) == ([stream], [1])
    del stream, batches
    gc.collect()
    assert streams.are_open() == []
