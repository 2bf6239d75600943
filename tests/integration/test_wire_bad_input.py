"""Covers: rule 15 on the wire: what a foreign client may send, as raw Arrow Flight and raw bytes.

Each bad call gets an error that names field, limit and value; the broker goes on serving, and what
it had acknowledged is there. Not covered: values inside batches (tests/rules/test_rule_15), frames
byte by byte (tests/unit/wire).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dejaqueue import Client
from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire import frames
from dejaqueue.wire.frames import Credit, DeliveryHead, Reply, StreamError

PAYLOADS = pa.record_batch({"payload": pa.array([b"a", b"b"], pa.binary())}).cast(
    pa.schema([pa.field("payload", pa.binary(), nullable=False)])
)


@pytest.fixture
def server() -> Iterator[FlightServer]:
    """A broker with the topic `t`, which holds one message that is due in an hour."""
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    serving = FlightServer(broker)
    serving.start()
    with Client(serving.url) as client:
        client.create_topic("t")
        client.send("t", b"kept", delay=3_600, key="kept")
    yield serving
    serving.stop()
    broker.stop()


@pytest.fixture
def raw(server: FlightServer) -> Iterator[flight.FlightClient]:
    """A plain Flight client."""
    client = flight.connect(f"grpc+tcp://127.0.0.1:{server.port}")
    yield client
    client.close()


@pytest.fixture(autouse=True)
def still_serves(server: FlightServer) -> Iterator[None]:
    """After each test the broker still works, and holds what it had acknowledged."""
    yield
    with Client(server.url, retry_ms_max=2_000) as client:
        assert client.peek("t", keys=["kept"])["payload"].to_pylist() == [b"kept"]
        client.send("t", b"after", delay=3_600)


def descriptor(**fields: object) -> flight.FlightDescriptor:
    """A command descriptor."""
    return flight.FlightDescriptor.for_command(json.dumps(fields).encode())


def error_of(caught: pytest.ExceptionInfo[Exception]) -> dict[str, object]:
    """The JSON line of an error's text, as docs/wire.md says."""
    text = str(caught.value)
    line = next(line for line in text.splitlines() if line.startswith("dejaq:"))
    values, _ = json.JSONDecoder().raw_decode(line.removeprefix("dejaq:"))
    assert isinstance(values, dict)
    return values


def put(
    raw: flight.FlightClient, target: flight.FlightDescriptor, batch: pa.RecordBatch
) -> frames.Frame:
    """Send one batch; its reply."""
    writer, reader = raw.do_put(target, batch.schema)
    try:
        writer.write_batch(batch)
        writer.done_writing()
        return frames.decode(memoryview(reader.read()))
    finally:
        writer.close()


def test_a_good_batch_gets_ids(raw: flight.FlightClient) -> None:
    reply = put(raw, descriptor(topic="t"), PAYLOADS)
    assert isinstance(reply, Reply)
    assert (reply.number, reply.rows, reply.error) == (1, 2, None)
    assert len(set(reply.all_ids().tolist())) == 2


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"topic": "nobody"}, "topic"),
        ({"topic": "a/b"}, "topic.name"),
        ({"topic": "t", "op": "drop"}, "op"),
        ({"topic": "t", "acks": 1}, "acks"),
        ({"topic": "t", "colour": "red"}, "colour"),
        ({}, "topic"),
    ],
)
def test_a_bad_descriptor_is_refused_by_name(
    raw: flight.FlightClient, fields: dict[str, object], named: str
) -> None:
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        put(raw, descriptor(**fields), PAYLOADS)
    error = error_of(caught)
    assert error["fields"]["field"] == named  # type: ignore[index]
    assert ", got: " in str(error["text"])


@pytest.mark.parametrize(
    "target",
    [
        flight.FlightDescriptor.for_command(b"\xff\x00 no JSON"),
        flight.FlightDescriptor.for_path("t"),
    ],
    ids=["garbage", "path"],
)
def test_a_descriptor_that_is_no_json_is_refused(
    raw: flight.FlightClient, target: flight.FlightDescriptor
) -> None:
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        put(raw, target, PAYLOADS)
    assert error_of(caught)["error"] == "BadRequest"


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"payload": ["text"], "colour": ["red"]}),
        pa.record_batch({"due": pa.array([1], pa.int64())}),
        pa.record_batch({"payload": pa.array([[b"nested"]], pa.list_(pa.binary()))}),
    ],
    ids=["unknown column", "no payload", "nested payload"],
)
def test_a_wrong_schema_is_refused(raw: flight.FlightClient, batch: pa.RecordBatch) -> None:
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        put(raw, descriptor(topic="t"), batch)
    assert error_of(caught)["error"] == "BadRequest"


@pytest.mark.parametrize(
    ("action", "body", "named"),
    [
        ("reboot", b"{}", "action"),
        ("create_topic", b"[]", "action.body"),
        ("create_topic", b"{", "action.body"),
        ("create_topic", b"{}", "topic.name"),
        ("create_topic", b'{"name": "x", "leese_ms": 1}', "topic.leese_ms"),
        ("create_topic", b'{"name": "x", "partitions": 1e9}', "topic.partitions"),
        ("alter_topic", b'{"name": "t", "partitions": 0}', "partitions"),
        ("describe_topic", b'{"name": "nobody"}', "topic"),
        ("delete_topic", b'{"name": "nobody"}', "topic"),
        ("stats", b'{"topic": 7}', "topic"),
        ("clock", b'{"zone": "UTC"}', "zone"),
    ],
)
def test_a_bad_action_is_refused_by_name(
    raw: flight.FlightClient, action: str, body: bytes, named: str
) -> None:
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        list(raw.do_action(flight.Action(action, body)))
    assert str(error_of(caught)["fields"]["field"]).endswith(named)  # type: ignore[index]


@pytest.mark.parametrize(
    "ticket",
    [b"", b"7", b"{}", b'{"op": "peek"}', b'{"op": "peek", "topic": "t", "limit": -1}',
     b'{"op": "peek", "topic": "t", "ids": ["x"]}', b'{"op": "peek", "topic": "t", "page": 2}'],
)  # fmt: skip
def test_a_bad_ticket_is_refused(raw: flight.FlightClient, ticket: bytes) -> None:
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        raw.do_get(flight.Ticket(ticket)).read_all()
    assert error_of(caught)["error"] == "BadRequest"


@pytest.mark.parametrize("frame", [b"\x01", b"\x09" * 20, b"\x01\x02" + b"\xff" * 30])
def test_garbage_on_a_consumers_stream_ends_it_with_an_error(
    raw: flight.FlightClient, frame: bytes
) -> None:
    writer, reader = raw.do_exchange(descriptor(topic="t"))
    writer.write_metadata(pa.py_buffer(frame))
    answer = frames.decode(memoryview(reader.read_chunk().app_metadata))
    assert isinstance(answer, StreamError)
    assert "got: " in str(answer.error)
    with pytest.raises(StopIteration):
        reader.read_chunk()
    writer.close()


@pytest.mark.parametrize("content", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4_096, b"\xff\xfe" * 99])
def test_garbage_on_the_port_harms_nobody(server: FlightServer, content: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(10)
        received = b""
        while chunk := connection.recv(4_096):
            received += chunk
    assert b"Traceback" not in received


def test_half_open_connections_harm_nobody(server: FlightServer) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(50)]
    with Client(server.url) as client:
        assert client.topic("t").name == "t"
    for connection in silent:
        connection.close()


def test_a_consumer_that_stops_reading_does_not_hold_up_another(
    server: FlightServer, raw: flight.FlightClient
) -> None:
    with Client(server.url) as client:
        client.create_topic("busy", lease_ms=60_000)
        client.send_batch("busy", [b"x" * 1_000] * 2_000)
        stuck, reader = raw.do_exchange(descriptor(topic="busy", batch_rows_max=10))
        stuck.write_metadata(pa.py_buffer(frames.encode(Credit(100))))
        head = frames.decode(memoryview(reader.read_chunk().app_metadata))
        assert isinstance(head, DeliveryHead)
        # It has credit for a hundred and reads no more; everybody else's messages still come.
        seen = 0
        for batch in client.consume_batches("busy", max_messages=1_900):
            seen += batch.batch.num_rows
            batch.ack()
        assert seen == 1_900
        assert client.stats("busy")["leased"] <= 100
        stuck.close()
