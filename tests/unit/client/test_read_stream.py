"""Covers: a stream of rows is read step by step, and broken off when it is left, however late it
opens. Not covered: a broker that is silent (tests/integration/test_silent_broker.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client.read_stream import ReadStream
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


def at_once(make: Callable[[], Any]) -> Any:
    return make()


def test_all_of_it_is_read_and_shaped__and_then_cancelled() -> None:
    reader = Reader(3)
    stream = ReadStream[int](lambda: reader, lambda number: number * 10, at_once)
    assert stream.schema == SCHEMA
    assert list(stream.batches()) == [0, 10, 20]
    assert reader.cancelled


def test_what_nobody_reads_any_more_is_cancelled() -> None:
    reader = Reader(3)
    batches = ReadStream[int](lambda: reader, int, at_once).batches()
    assert next(batches) == 0
    assert not reader.cancelled
    batches.close()  # type: ignore[attr-defined]
    assert reader.cancelled


def test_one_that_is_left_while_it_opens_is_cancelled_when_it_does() -> None:
    reader, steps = Reader(3), list[Callable[[], Any]]()

    def left(make: Callable[[], Any]) -> Any:
        steps.append(make)
        raise Unavailable("no sign of life")

    with pytest.raises(Unavailable):
        ReadStream[int](lambda: reader, int, left)
    steps[0]()
    assert reader.cancelled == 1


def test_one_that_is_left_on_its_way_is_cancelled() -> None:
    reader = Reader(3)
    calls = iter([at_once, at_once])

    def call(make: Callable[[], Any]) -> Any:
        for one in calls:
            return one(make)
        raise Unavailable("no sign of life")

    batches = ReadStream[int](lambda: reader, int, call).batches()
    assert next(batches) == 0
    with pytest.raises(Unavailable):
        next(batches)
    assert reader.cancelled
