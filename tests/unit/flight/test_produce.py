"""A stream of batches ends and answers whatever happens. What is checked: tests/hostile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.access.roles import EVERYBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import InternalError
from dejaqueue.flight import produce
from dejaqueue.flight.bounds import OpenStream
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire import frames
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

BATCH = pa.record_batch({"payload": pa.array([b"1", b"2"], pa.binary())})


@dataclass
class Chunk:
    data: pa.RecordBatch
    app_metadata: None = None


class Reader:
    """A client that sends one batch."""

    schema = BATCH.schema

    def __init__(self) -> None:
        self._chunks = iter([Chunk(BATCH)])

    def read_chunk(self) -> Chunk:
        return next(self._chunks)


@dataclass
class Writer:
    replies: list[Reply] = field(default_factory=list)

    def write(self, content: pa.Buffer) -> None:
        reply = frames.decode(memoryview(content))
        assert isinstance(reply, Reply)
        self.replies.append(reply)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url=str(tmp_path))))
    broker.start()
    broker.create_topic(Topic("t"))
    yield broker
    broker.stop()


def serve(broker: Broker) -> tuple[list[Reply], BaseException | None]:
    """What the client is answered, and what the stream ends with; within bounded time."""
    writer = Writer()

    def stream() -> None:
        with broker.quotas.opening(EVERYBODY, "ipv4:10.0.0.1:1") as opening:
            described = WriteStream("t")
            target = broker.open_write(described, account=opening.account)
            reader: Any = Reader()
            produce.serve_writer(target, described, reader, writer, opening, OpenStream())

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(stream).exception(20)
    return writer.replies, ended


def test_a_batch_is_answered(broker: Broker) -> None:
    [reply], ended = serve(broker)
    assert (reply.error, ended) == (None, None)


@pytest.mark.plants_bugs
@pytest.mark.parametrize("where", ["check_arrival", "BYTES"])
def test_a_bug_of_ours_before_a_batch_is_taken_is_answered_too(
    where: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the stream waited for a reply that nobody would give, and its thread with it."""

    def broken(batch: pa.RecordBatch) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(produce, where, broken)
    [reply], ended = serve(broker)
    assert isinstance(reply.error, InternalError)
    assert isinstance(ended, Exception)
