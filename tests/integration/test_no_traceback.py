"""Covers: what a refused call tells: our text, our JSON, and nothing of the program (rule 15).

The judge is pyarrow's own Flight client, and a plain HTTP client: DejaQ's client reads no further
than the JSON. Each call is refused, or breaks off with a planted bug, directly and behind a broker
that passes it on. Not covered: which error it is (test_wire_bad_input.py).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dejaqueue.access import calls
from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls import scan
from dejaqueue.broker.calls.scan import Ticket
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire import frames
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Credit, Reply, StreamError
from tests.integration.test_forwarding import AllElsewhere
from tests.patience import PATIENCE_SECONDS

THERE = "there"
SECRET = "/srv/dejaq/secret.py"
INSIDE = re.compile(
    r'Traceback|File "|\.pyx?\b|site-packages|dejaqueue\.|/srv/|RuntimeError|secret'
)
"""What no caller is told."""
TAIL = re.compile(r"(\. Detail: [A-Za-z: ]{1,45}){1,2}")
"""What Arrow writes behind a status; gRPC's client adds what it knows itself."""
ACTIONS = [name for name, call in calls.ACTIONS.items() if not call.rule.peers]
ROWS = pa.record_batch({"payload": pa.array([b"x"], pa.binary())})
ASKED = json.dumps({"topic": THERE}).encode()
SCAN = scan.scan
Call = Callable[[flight.FlightClient], object]


def command(**fields: object) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(fields).encode())


def action(name: str, body: bytes = b'{"no": "such field"}') -> Call:
    return lambda raw: list(raw.do_action(flight.Action(name, body)))


def ticket(**fields: object) -> Call:
    return lambda raw: raw.do_get(flight.Ticket(json.dumps(fields).encode())).read_all()


def put(target: flight.FlightDescriptor, batch: pa.RecordBatch = ROWS) -> Call:
    def call(raw: flight.FlightClient) -> None:
        writer, reader = raw.do_put(target, batch.schema)
        try:
            writer.write_batch(batch)
            writer.done_writing()
            tell(reader.read())
        finally:
            writer.close()

    return call


def consume(target: flight.FlightDescriptor, frame: bytes = frames.encode(Credit(9))) -> Call:
    def call(raw: flight.FlightClient) -> None:
        writer, reader = raw.do_exchange(target)
        writer.write_metadata(pa.py_buffer(frame))
        tell(reader.read_chunk().app_metadata)

    return call


def tell(content: pa.Buffer | None) -> None:
    """Raise what a frame says."""
    if content is None:
        return
    frame = frames.decode(memoryview(content))
    if isinstance(frame, Reply | StreamError) and frame.error is not None:
        told = bytes(memoryview(content)).partition(b"{")[2].decode(errors="replace")
        raise flight.FlightServerError(f"x\ndejaq:{{{told}. Detail: Failed")


def topic_of(name: str) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_path(name)


STREAMS: dict[str, Call] = {
    "put: no command": put(topic_of(THERE)),
    "put: no JSON": put(flight.FlightDescriptor.for_command(b"\xff\x00")),
    "put: unknown topic": put(command(topic="nobody")),
    "put: unknown field": put(command(topic=THERE, colour="red")),
    "put: wrong schema": put(command(topic=THERE), pa.record_batch({"colour": ["red"]})),
    "put: bad row": put(
        command(topic=THERE),
        pa.record_batch({"payload": [b"x"], "due": pa.array([-1], pa.int64())}),
    ),
    "consume: no command": consume(topic_of(THERE)),
    "consume: unknown topic": consume(command(topic="nobody")),
    "consume: garbage": consume(command(topic=THERE), b"\x09" * 20),
    "get: no JSON": lambda raw: raw.do_get(flight.Ticket(b"\xff")).read_all(),
    "get: unknown op": ticket(op="steal", topic=THERE),
    "get: unknown topic": ticket(op="peek", topic="nobody"),
    "get: wrong field": ticket(op="peek", topic=THERE, limit=-1),
    "scan: wrong field": ticket(op="scan", topic=THERE, partition="x"),
    "claim: unknown": ticket(op="claim", topic=THERE, partition=0, claim=99),
    "history: wrong field": ticket(op="history", topic=THERE, colour="red"),
    "info: unknown topic": lambda raw: raw.get_flight_info(topic_of("nobody")),
    "info: no path": lambda raw: raw.get_flight_info(command(topic=THERE)),
    "schema: unknown topic": lambda raw: raw.get_schema(topic_of("nobody")),
    "action: unknown": action("reboot"),
    "action: no JSON": action("stats", b"\xff"),
    "action: too large": action("stats", b"x" * (5 << 20)),
}
REFUSED = STREAMS | {f"action: {name}": action(name) for name in ACTIONS}


@pytest.fixture(scope="module")
def far_broker() -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic(THERE))
    in_an_hour = pa.array([broker.clock.now_ms() + 3_600_000], pa.int64())
    rows = pa.record_batch({"payload": pa.array([b"x"], pa.binary()), "due": in_an_hour})
    answered: list[Reply] = []
    broker.open_write(WriteStream(THERE)).submit(1, rows, answered.append)
    assert next(broker.read("peek", {"topic": THERE, "limit": 9})[1]).num_rows == 1
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def far(far_broker: Broker) -> Iterator[FlightServer]:
    server = FlightServer(far_broker, gate=Gate(far_broker.keys))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def near(far: FlightServer) -> Iterator[FlightServer]:
    """A broker that serves nothing and passes calls on."""
    shared = AllElsewhere(InMemory(), far.url)
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), shared=shared)
    broker.start()
    server = FlightServer(broker, gate=Gate(broker.keys))
    server.start()
    yield server
    server.stop()
    broker.stop()


@pytest.fixture(params=["straight", "passed on"])
def raw(
    request: pytest.FixtureRequest, far: FlightServer, near: FlightServer
) -> Iterator[flight.FlightClient]:
    port = far.port if request.param == "straight" else near.port
    client = flight.connect(f"grpc+tcp://127.0.0.1:{port}")
    yield client
    client.close()


def told_by(call: Call, raw: flight.FlightClient) -> dict[str, Any]:
    """What the refusal of a call says, after a look at every word of it."""
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        call(raw)
    text = str(caught.value)
    assert not INSIDE.search(text), text
    _, mark, rest = text.partition("\ndejaq:")
    assert mark, text
    values, end = json.JSONDecoder().raw_decode(rest)
    assert TAIL.fullmatch(rest[end:].partition(" gRPC client debug context")[0].rstrip(". ")), text
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_tells_what_is_wrong_and_nothing_else(
    raw: flight.FlightClient, name: str
) -> None:
    values = told_by(REFUSED[name], raw)
    assert values["error"] != "InternalError", values
    assert values["text"]


def breaks_off(*_args: object, **_rest: object) -> NoReturn:
    raise RuntimeError(f"planted in {SECRET}") from KeyError(SECRET)


def scan_breaks_off(topic: ServedTopic, ticket: Ticket) -> Iterator[pa.RecordBatch]:
    """After the first batch."""
    yield next(SCAN(topic, ticket))
    breaks_off()


BUGS: dict[str, tuple[str, Callable[..., object], Call]] = {
    "start of a call": (
        "access.gate.Gate.principal",
        breaks_off,
        lambda raw: list(raw.list_flights()),
    ),
    "list_flights": ("broker.broker.Broker.topics", breaks_off, lambda r: list(r.list_flights())),
    "get_flight_info": (
        "broker.broker.Broker.topic",
        breaks_off,
        lambda raw: raw.get_flight_info(topic_of(THERE)),
    ),
    "get_schema": (
        "broker.broker.Broker.topic",
        breaks_off,
        lambda raw: raw.get_schema(topic_of(THERE)),
    ),
    "action": ("broker.calls.calls.topic_stats", breaks_off, action("stats", ASKED)),
    "action, at the door": ("broker.broker.Broker.call", breaks_off, action("stats", b"{}")),
    "put": ("broker.broker.Broker.open_write", breaks_off, put(command(topic=THERE))),
    "consume": ("broker.broker.Broker.open_consume", breaks_off, consume(command(topic=THERE))),
    "get": ("broker.calls.calls.peek", breaks_off, ticket(op="peek", topic=THERE)),
    "get, at the door": (
        "broker.broker.Broker.read",
        breaks_off,
        ticket(op="peek", topic=THERE),
    ),
    "middle of a scan": (
        "broker.calls.scan.scan",
        scan_breaks_off,
        ticket(op="scan", topic=THERE, partition=0),
    ),
    "worker": (
        "broker.partition.enqueueing._bring_in_together",
        breaks_off,
        put(command(topic=THERE)),
    ),
    "look": ("broker.calls.peek.peek_batch", breaks_off, ticket(op="peek", topic=THERE)),
}


@pytest.mark.plants_bugs
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_told_by_an_id_that_the_log_has(
    raw: flight.FlightClient,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    place, bug, call = BUGS[name]
    monkeypatch.setattr("dejaqueue.broker.news._faults", {})
    monkeypatch.setattr(f"dejaqueue.{place}", bug)
    with caplog.at_level(logging.ERROR):
        values = told_by(call, raw)
    assert values["error"] == "InternalError"
    fault = values["fields"]["fault"]
    assert fault in values["text"]
    logged = [record for record in caplog.records if fault in record.getMessage()]
    assert logged
    assert SECRET in logged[0].getMessage()


@pytest.fixture(scope="module")
def http(far_broker: Broker) -> Iterator[str]:
    server = HttpServer(Service(far_broker, Gate(far_broker.keys), lambda: True), "127.0.0.1", 0)
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


HTTP_BUGS: dict[str, tuple[str, str, str, dict[str, object] | None]] = {
    "stats": ("broker.calls.calls.topic_stats", "GET", f"/v1/topics/{THERE}/stats", None),
    "stats, at the door": ("broker.broker.Broker.call", "GET", f"/v1/topics/{THERE}/stats", None),
    "topics": ("broker.broker.Broker.topics", "GET", "/v1/topics", None),
    "entrance": ("access.gate.Gate.principal", "GET", "/v1/topics", None),
    "send": (
        "broker.partition.enqueueing._bring_in_together",
        "POST",
        f"/v1/topics/{THERE}/messages",
        {"payload": "x"},
    ),
    "send, together": (
        "http.flow.send_batch",
        "POST",
        f"/v1/topics/{THERE}/messages",
        {"payload": "x"},
    ),
    "peek": ("broker.calls.peek.peek_batch", "GET", f"/v1/topics/{THERE}/messages", None),
}


@pytest.mark.plants_bugs
@pytest.mark.parametrize("name", HTTP_BUGS)
def test_a_page_of_500_tells_nothing_of_the_program(
    http: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, method, path, body = HTTP_BUGS[name]
    monkeypatch.setattr(f"dejaqueue.{place}", breaks_off)
    answer = httpx.request(method, f"{http}{path}", json=body, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 500
    assert not INSIDE.search(answer.text), answer.text
    assert "internal error" in answer.text.lower()
