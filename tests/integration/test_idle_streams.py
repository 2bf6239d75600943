"""A broker that stops while clients have streams open on which nothing is under way.

Covered: streams of producers, of one topic and of any, which nobody ends; that batches are answered
before the end is seen by whoever waits for their replies.
Not covered: consumers, which are told and close their streams (tests/integration/test_client.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire import descriptors, frames
from dejaqueue.wire.descriptors import WriteStream
from tests.patience import PATIENCE_SECONDS

BATCH = pa.RecordBatch.from_pydict({"payload": pa.array([b"x"], pa.binary())})


@pytest.fixture
def server() -> Iterator[FlightServer]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t"))
    server = FlightServer(broker)
    server.start()
    yield server
    server.stop()
    broker.stop()


def test_a_stream_that_waits_for_its_client_does_not_hold_up_the_end(server: FlightServer) -> None:
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    stream = flight.FlightDescriptor.for_command(descriptors.encode(WriteStream("t")))
    sink, answers = client.do_put(stream, BATCH.schema)
    sink.write_batch(BATCH)
    reply = frames.decode(answers.read())
    assert isinstance(reply, frames.Reply)
    assert reply.error is None
    began = time.monotonic()
    assert not server.stop(PATIENCE_SECONDS), "the stream is still open"
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    sink.close()
