"""Covers: a scan over the wire: a stream of batches, and errors that say what was wrong.

Not covered: what a scan finds (tests/rules/test_scan.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import BadRequest, TopicUnknown, Unavailable
from dejaqueue.flight.server import FlightServer
from dejaqueue.schema.messages import SCAN
from tests.integration.test_client import broker, client, server, topic

__all__ = ["broker", "client", "server", "topic"]

ROWS = 20_000


@pytest.fixture
def transport(server: FlightServer) -> Iterator[FlightTransport]:
    made = FlightTransport(server.url)
    yield made
    made.close()


def test_a_stream_of_batches(client: Client, topic: str, transport: FlightTransport) -> None:
    client.send_batch(topic, pa.table({"payload": [b"%d" % n for n in range(ROWS)]}))
    found = transport.action("scan_ranges", {"name": topic}).result()["partitions"]
    assert sum(part["live"] for part in found) == ROWS
    payloads = []
    for part in found:
        ticket = {key: part[key] for key in ("partition", "first", "end")}
        batches = list(transport.scan({"topic": topic, **ticket}))
        assert all(batch.schema.equals(SCAN) for batch in batches)
        payloads += [p for batch in batches for p in batch.column("payload").to_pylist()]
    assert sorted(payloads) == sorted(b"%d" % n for n in range(ROWS))


def test_an_empty_partition_is_a_stream_without_rows(
    topic: str, transport: FlightTransport
) -> None:
    assert sum(b.num_rows for b in transport.scan({"topic": topic, "partition": 0})) == 0


def test_errors_are_the_brokers(topic: str, transport: FlightTransport) -> None:
    with pytest.raises(TopicUnknown):
        list(transport.scan({"topic": "nothing", "partition": 0}))
    with pytest.raises(BadRequest, match="colour"):
        list(transport.scan({"topic": topic, "partition": 0, "colour": 1}))
    with pytest.raises(TopicUnknown):
        transport.action("scan_ranges", {"name": "nothing"}).result()


def test_a_broker_that_goes_away_is_said_so(topic: str, broker: Broker) -> None:
    another = FlightServer(broker)
    another.start()
    transport = FlightTransport(another.url)
    another.stop()
    try:
        with pytest.raises(Unavailable):
            list(transport.scan({"topic": topic, "partition": 0}))
    finally:
        transport.close()


def test_who_stops_reading_leaves_nothing_behind(
    client: Client, topic: str, transport: FlightTransport
) -> None:
    client.send_batch(topic, pa.table({"payload": [b"x" * 1_000] * ROWS}))
    for _ in range(3):
        batches = transport.scan({"topic": topic, "partition": 0})
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert sum(b.num_rows for b in transport.scan({"topic": topic, "partition": 0})) > 0
