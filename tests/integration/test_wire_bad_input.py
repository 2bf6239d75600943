"""Covers: rule 15 on the wire: what a foreign client may send, as raw Arrow Flight and raw bytes.

Each bad call gets an error that names field, limit and value; the broker goes on serving, and what
it had acknowledged is there. Not covered: values inside batches (tests/rules/test_rule_15), frames
byte by byte (tests/unit/wire).
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dejaqueue import Client
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire import frames
from dejaqueue.wire.frames import Credit, DeliveryHead, Reply, Settle, SettleOp, StreamError
from tests.patience import PATIENCE_SECONDS

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
    with socket.create_connection(
        ("127.0.0.1", server.port), timeout=PATIENCE_SECONDS
    ) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(10)
        received = b""
        while chunk := connection.recv(4_096):
            received += chunk
    assert b"Traceback" not in received


def test_half_open_connections_harm_nobody(server: FlightServer) -> None:
    silent = [
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)
        for _ in range(50)
    ]
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


NOT_TEXT = st.binary(min_size=1, max_size=12).filter(lambda content: not is_text(content))
TEXT_FIELDS = ("key", "group", "tags", "header name", "header value")


def is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def batch_with(field: str, content: bytes, rows: int, row: int) -> pa.RecordBatch:
    """Rows of which one has these bytes as a text."""
    contents = [b"fine" if place != row else content for place in range(rows)]
    texts = pa.array(contents, pa.binary()).view(pa.utf8())
    fine = pa.array(["fine"] * rows)
    offsets = pa.array(range(rows + 1), pa.int32())
    columns: dict[str, pa.Array] = {
        "payload": pa.array([b"vandal"] * rows, pa.binary()),
        "due": pa.array([4_000_000_000_000] * rows, pa.int64()),
    }
    match field:
        case "tags":
            columns["tags"] = pa.ListArray.from_arrays(offsets, texts)
        case "header name":
            columns["headers"] = pa.MapArray.from_arrays(offsets, texts, fine)
        case "header value":
            columns["headers"] = pa.MapArray.from_arrays(offsets, fine, texts)
        case _:
            columns[field] = texts
    return pa.record_batch(columns)


def engine_of(server: FlightServer) -> object:
    return server._broker.runtime("t").partitions[0].core.engine


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    field=st.sampled_from(TEXT_FIELDS),
    content=NOT_TEXT,
    rows=st.integers(1, 5),
    row=st.integers(0, 4),
)
def test_text_that_is_none_harms_nobody(
    server: FlightServer,
    raw: flight.FlightClient,
    field: str,
    content: bytes,
    rows: int,
    row: int,
) -> None:
    engine = engine_of(server)
    batch = batch_with(field, content, rows, row % rows)
    try:
        reply = put(raw, descriptor(topic="t"), batch)
    except (flight.FlightError, pa.ArrowException) as refused:
        assert '"BadRequest"' in str(refused)
    else:
        assert isinstance(reply, Reply)
        assert reply.error is None or type(reply.error) is BadRequest
    peeked = raw.do_get(flight.Ticket(b'{"op": "peek", "topic": "t", "limit": 1000}')).read_all()
    peeked.validate(full=True)
    peeked.to_pylist()
    assert engine_of(server) is engine, "the partition was read again"


@given(text=st.text(st.characters(categories=["Cs"]), min_size=1, max_size=1))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("op", ["nack", "consume", "producer", "action"])
def test_json_with_half_a_character_is_refused(
    raw: flight.FlightClient, op: str, text: str
) -> None:
    """JSON can spell what is no text: the first half of a character of two."""
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        match op:
            case "nack":
                settle = pa.record_batch({
                    "id": pa.array([0], pa.int64()), "attempts": pa.array([1], pa.uint16())
                })  # fmt: skip
                put(raw, descriptor(topic="t", op="nack", reason=text), settle)
            case "producer":
                put(raw, descriptor(topic="t", producer=text), PAYLOADS)
            case "consume":
                _, reader = raw.do_exchange(descriptor(topic="t", tags_any=[text]))
                reader.read_chunk()
            case _:
                list(raw.do_action(flight.Action("stats", json.dumps({"topic": text}).encode())))
    assert error_of(caught)["error"] == "BadRequest"


def _settle(number: int, **changed: int) -> bytes:
    """An ack of a whole lease, with these fields other than they should be."""
    fields = {"op": 1, "fate": 0, "reason_bytes": 0, "partition": 0, "lease_id": 5,
              "argument_ms": 0, "rows": 0, "leases": 0} | changed  # fmt: skip
    return struct.pack("<BBHI", 1, 3, 0, number) + struct.pack("<BBHIqqII", *fields.values())


MALFORMED = {
    "unknown operation": _settle(7, op=9),
    "rows of a whole lease": _settle(7, rows=1),
    "fewer rows than it says": _settle(7, lease_id=-1, rows=2) + b"\0" * 10,
    "a fate of an ack": _settle(7, fate=1),
    "a lease that ends before now": _settle(7, op=3, argument_ms=-5),
    "a reason that is cut off": _settle(7, op=2, reason_bytes=9) + b"why",
    "bytes behind its end": _settle(7) + b"\0",
    "no end": _settle(7)[:20],
    "a head alone": _settle(7)[:8],
    "a partition that is none": _settle(7, partition=99),
    "an id of no partition": _settle(7, lease_id=-1, rows=1) + b"\xff" * 10,
    "no rows": _settle(7, lease_id=-1),
}


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_settle_is_answered_and_the_stream_goes_on(
    raw: flight.FlightClient, server: FlightServer, frame: bytes
) -> None:
    writer, reader = raw.do_exchange(descriptor(topic="t"))

    def answer() -> frames.Frame:
        return frames.decode(memoryview(reader.read_chunk().app_metadata))

    writer.write_metadata(pa.py_buffer(frame))
    refused = answer()
    assert isinstance(refused, Reply)
    assert refused.number == 7
    assert isinstance(refused.error, BadRequest)
    assert ", got: " in str(refused.error)
    with Client(server.url) as client:
        client.send("t", b"due")
    writer.write_metadata(pa.py_buffer(frames.encode(Credit(10))))
    head = answer()
    assert isinstance(head, DeliveryHead)
    writer.write_metadata(
        pa.py_buffer(frames.encode(Settle(SettleOp.ACK, 8, head.partition, head.lease_id)))
    )
    acked = answer()
    assert isinstance(acked, Reply)
    assert (acked.number, acked.error) == (8, None)
    assert not acked.all_statuses().any()
    writer.done_writing()
    writer.close()


def test_a_malformed_settle_without_a_number_is_answered_too(raw: flight.FlightClient) -> None:
    writer, reader = raw.do_exchange(descriptor(topic="t"))
    writer.write_metadata(pa.py_buffer(_settle(0, op=9)))
    refused = frames.decode(memoryview(reader.read_chunk().app_metadata))
    assert isinstance(refused, Reply)
    assert (refused.number, type(refused.error)) == (0, BadRequest)
    writer.done_writing()
    writer.close()
