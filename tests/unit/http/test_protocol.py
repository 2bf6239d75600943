"""Hostile HTTP over raw sockets: too large, too slow, too many, and not HTTP at all.

Each test ends with no connection left. Bounds are small, so that nothing takes long.
"""

from __future__ import annotations

import json
import logging
import random
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

import pyarrow as pa
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.bounds import Bounds
from dejaqueue.http.protocol import Counters
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.setting_groups import QuotaSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

SECONDS_MAX = 20.0
SMALL = Bounds(
    connections_max=64,
    head_bytes_max=8_192,
    header_count_max=50,
    body_bytes_max=100_000,
    bodies_bytes_max=300_000,
    head_seconds=0.3,
    body_seconds=0.3,
    body_bytes_per_second=100_000,
    idle_seconds=0.5,
    stuck_seconds=0.5,
    pipelined_max=8,
    look_seconds=0.05,
)
PATIENT = replace(SMALL, head_seconds=30, body_seconds=30, idle_seconds=30, stuck_seconds=30)
GET = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /API/v1/queues HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


class Complaints(logging.Handler):
    """What the server writes into its log as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        for name in ("uvicorn.error", "dejaqueue", "asyncio"):
            logging.getLogger(name).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


class Web:
    """A server, and raw connections to it."""

    def __init__(self, bounds: Bounds) -> None:
        self._complaints = Complaints()
        self.broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
        self.broker.start()
        service = Service(self.broker, Gate(), lambda: True)
        self.server = HttpServer(service, "127.0.0.1", 0, bounds)
        self.server.start()
        self._sockets: list[socket.socket] = []

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.server.port), SECONDS_MAX)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(made)
        return made

    def ask(self, request: bytes) -> bytes:
        """All that is answered until the connection is closed, or an answer is complete."""
        connection = self.connect()
        connection.sendall(request)
        return answer_of(connection, bodiless=request.startswith(b"HEAD"))

    def is_well(self) -> bool:
        """True if somebody who behaves is served."""
        return self.ask(GET).startswith(b"HTTP/1.1 200")

    @property
    def counts(self) -> dict[str, int]:
        return self.server.connections.counters.values()

    def reset(self) -> None:
        """Nothing is left behind by a test."""
        for made in self._sockets:
            made.close()
        self._sockets.clear()
        until = time.monotonic() + SECONDS_MAX
        shared = self.server.connections
        while shared.open and time.monotonic() < until:
            pass
        assert not shared.open
        assert shared.body_bytes == 0
        shared.counters = Counters()
        texts, self._complaints.texts = self._complaints.texts, []
        assert texts == []

    def stop(self) -> None:
        self.reset()
        self.server.stop()
        self.broker.stop()


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    while True:
        try:
            part = connection.recv(65_536)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def answer_of(connection: socket.socket, *, bodiless: bool = False) -> bytes:
    """One answer with its body."""
    got = b""
    while b"\r\n\r\n" not in got:
        part = connection.recv(65_536)
        if not part:
            return got
        got += part
    head, _, body = got.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:") and not bodiless:
            length = int(line.partition(b":")[2])
    while len(body) < length:
        part = connection.recv(65_536)
        assert part
        body += part
    return head + b"\r\n\r\n" + body


def check_problem(answer: bytes, status: int) -> None:
    """It is a problem of that status, and the connection is closed after it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), answer[:300]
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    found = json.loads(body)
    assert found["status"] == status
    assert found["detail"]


@pytest.fixture(scope="module")
def quick_server() -> Iterator[Web]:
    web = Web(SMALL)
    yield web
    web.stop()


@pytest.fixture(scope="module")
def patient_server() -> Iterator[Web]:
    web = Web(PATIENT)
    yield web
    web.stop()


@pytest.fixture
def web(quick_server: Web) -> Iterator[Web]:
    yield quick_server
    quick_server.reset()


@pytest.fixture
def patient(patient_server: Web) -> Iterator[Web]:
    yield patient_server
    patient_server.reset()


# --- too slow -------------------------------------------------------------------------------------


def drip(connection: socket.socket, piece: bytes, every_seconds: float = 0.02) -> bytes:
    """Send a piece again and again until there is an answer; the answer."""
    connection.settimeout(every_seconds)
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        try:
            connection.sendall(piece)
            first = connection.recv(65_536)
        except TimeoutError:
            continue
        connection.settimeout(SECONDS_MAX)
        return first + read_all(connection)
    raise AssertionError("it goes on for ever")


def test_headers_that_trickle_in_get_408(web: Web) -> None:
    connection = web.connect()
    connection.sendall(b"GET /livez HTTP/1.1\r\n")
    check_problem(drip(connection, b"a: b\r\n"), 408)
    assert web.counts["head_late"] == 1
    assert web.is_well()


def test_a_body_that_trickles_in_gets_408(web: Web) -> None:
    connection = web.connect()
    connection.sendall(POST + b"content-length: 90000\r\n\r\n")
    check_problem(drip(connection, b" "), 408)
    assert web.counts["body_late"] == 1
    assert web.is_well()


def test_chunks_that_trickle_in_get_408(web: Web) -> None:
    connection = web.connect()
    connection.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
    check_problem(drip(connection, b"1\r\n \r\n"), 408)
    assert web.counts["body_late"] == 1


@pytest.mark.timing  # who stalls for a third of a second is refused, rightly
def test_a_large_body_may_take_its_time(web: Web) -> None:
    body = b'{"name": "q", "type": "delayed"}' + b" " * 90_000
    connection = web.connect()
    connection.sendall(POST + f"content-length: {len(body)}\r\n\r\n".encode())
    began = time.monotonic()
    for first in range(0, len(body), 4_000):
        connection.sendall(body[first : first + 4_000])
        while time.monotonic() < began + first / 150_000:
            pass
    assert time.monotonic() - began > SMALL.body_seconds
    assert answer_of(connection).startswith(b"HTTP/1.1 200")


def test_who_says_nothing_is_closed_without_a_word(web: Web) -> None:
    assert read_all(web.connect()) == b""
    assert web.counts["silent"] == 1


def test_who_has_nothing_more_to_say_is_closed(web: Web) -> None:
    connection = web.connect()
    connection.sendall(GET)
    assert answer_of(connection).startswith(b"HTTP/1.1 200")
    assert read_all(connection) == b""


def test_who_does_not_read_is_closed(web: Web) -> None:
    web.broker.create_topic(Topic("t"), exist_ok=True)
    sent: Future[Reply] = Future()
    batch = pa.record_batch({"payload": pa.array([b"a" * 1_000_000], pa.binary())})
    web.broker.open_write(WriteStream("t")).submit(1, batch, sent.set_result)
    number = int(sent.result(SECONDS_MAX).all_ids()[0])
    connection = web.connect()
    look = f"GET /API/v1/queues/t/messages/{number} HTTP/1.1\r\nhost: localhost\r\n\r\n"
    connection.sendall(look.encode() * SMALL.pipelined_max)
    until = time.monotonic() + SECONDS_MAX
    while not web.counts["stuck"]:
        assert time.monotonic() < until
    assert web.is_well()


# --- too large ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_head",
    [
        b"".join(b"h%d: v\r\n" % number for number in range(10_000)),
        b"h: " + b"v" * 100_000 + b"\r\n",
        b"h" * 100_000 + b": v\r\n",
    ],
    ids=["ten thousand", "long value", "long name"],
)
def test_large_headers_get_431(patient: Web, request_head: bytes) -> None:
    connection = patient.connect()
    connection.sendall(b"GET /livez HTTP/1.1\r\n" + request_head + b"\r\n")
    check_problem(read_all(connection), 431)
    assert patient.counts["head_large"] == 1
    assert patient.is_well()


def test_a_header_without_end_gets_431(patient: Web) -> None:
    connection = patient.connect()
    connection.sendall(b"GET /livez HTTP/1.1\r\nh: ")
    check_problem(drip(connection, b"v" * 1_000, 0.001), 431)


def test_a_long_path_gets_431(patient: Web) -> None:
    connection = patient.connect()
    connection.sendall(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n")
    check_problem(read_all(connection), 431)


def test_many_small_requests_are_no_large_one(patient: Web) -> None:
    connection = patient.connect()
    for _ in range(500):
        connection.sendall(GET[:20])
        connection.sendall(GET[20:])
        assert answer_of(connection).startswith(b"HTTP/1.1 200")
    assert patient.counts["head_large"] == 0


def test_a_body_that_says_it_is_too_large_gets_413_at_once(patient: Web) -> None:
    connection = patient.connect()
    connection.sendall(POST + b"expect: 100-continue\r\ncontent-length: 100001\r\n\r\n")
    check_problem(read_all(connection), 413)
    assert patient.counts["body_large"] == 1
    assert patient.is_well()


def test_a_body_that_is_too_large_gets_413_while_it_comes(patient: Web) -> None:
    connection = patient.connect()
    connection.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
    check_problem(drip(connection, b"1000\r\n" + b" " * 4_096 + b"\r\n", 0.001), 413)
    assert patient.counts["body_large"] == 1
    assert patient.is_well()


def test_all_bodies_together_are_bounded(patient: Web) -> None:
    held = []
    for _ in range(3):
        connection = patient.connect()
        connection.sendall(POST + b"content-length: 99999\r\n\r\n" + b" " * 99_998)
        held.append(connection)
    until = time.monotonic() + SECONDS_MAX
    while patient.server.connections.body_bytes < 3 * 99_998:
        assert time.monotonic() < until
    answer = patient.ask(POST + b"content-length: 99999\r\n\r\n" + b" " * 99_999)
    check_problem(answer, 503)
    assert b"retry-after: 1" in answer
    for connection in held:
        connection.close()
    while patient.server.connections.body_bytes:
        assert time.monotonic() < until
    assert patient.ask(POST + b"content-length: 3\r\n\r\n{} ").startswith(b"HTTP/1.1 422")


# --- too many -------------------------------------------------------------------------------------


def test_connections_over_the_bound_get_503(patient: Web) -> None:
    held = [patient.connect() for _ in range(SMALL.connections_max)]
    until = time.monotonic() + SECONDS_MAX
    while len(patient.server.connections.open) < len(held):
        assert time.monotonic() < until
    check_problem(patient.ask(GET.replace(b"livez", b"v1/topics")), 503)
    check_problem(read_all(patient.connect()), 503)  # whoever says nothing is told so, too
    assert patient.counts["refused"] == 2
    for connection in held:
        connection.close()
    while patient.server.connections.open:
        assert time.monotonic() < until
    assert patient.is_well()


def test_probes_have_connections_of_their_own(patient: Web) -> None:
    bound = SMALL.connections_max + SMALL.probes_max
    held = [patient.connect() for _ in range(bound + 20)]
    until = time.monotonic() + SECONDS_MAX
    while len(patient.server.connections.open) < bound:
        assert time.monotonic() < until
    for path in (b"livez", b"readyz", b"livez?verbose=1"):
        answer = patient.ask(GET.replace(b"livez", path))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer.lower()
    assert patient.ask(GET.replace(b"livez", b"metrics")).startswith(b"HTTP/1.1 200")
    assert len(patient.server.connections.beyond) <= SMALL.probes_max
    # A probe's connection is good for one request.
    connection = patient.connect()
    connection.sendall(GET + GET.replace(b"livez", b"v1/topics"))
    assert read_all(connection).count(b"HTTP/1.1 ") == 1
    for one in held:
        one.close()


def test_connections_of_one_address_are_bounded_and_others_are_served() -> None:
    web = Web(PATIENT)
    try:
        quotas = web.broker.quotas
        web.broker.change_settings(
            BrokerSettings(
                journal=web.broker.settings.journal, quotas=QuotaSettings(connections_max=3)
            )
        )
        # Programs of this machine have no quota: here some of it count as somebody else's.
        account = quotas.of_address("10.0.0.7")
        far = quotas.of_address
        quotas.of_address = lambda _: account  # type: ignore[method-assign,assignment]
        held = [web.connect() for _ in range(3)]
        until = time.monotonic() + SECONDS_MAX
        while account.connections < 3:
            assert time.monotonic() < until
        refused = web.ask(GET.replace(b"livez", b"v1/topics"))
        assert refused.startswith(b"HTTP/1.1 429")
        assert b"quotas.connections_max: at most 3 for 10.0.0.7, got: 4" in refused
        assert web.is_well()
        quotas.of_address = far  # type: ignore[method-assign]
        assert web.ask(GET.replace(b"livez", b"v1/topics")).startswith(b"HTTP/1.1 200")
        for one in held:
            one.close()
        while account.connections:
            assert time.monotonic() < until
        assert quotas.refused.read() == {("connections_max", "10.0.0.7"): 1}
    finally:
        web.stop()


def test_bodies_of_one_address_are_bounded() -> None:
    web = Web(PATIENT)
    try:
        web.broker.change_settings(
            BrokerSettings(
                journal=web.broker.settings.journal, quotas=QuotaSettings(bytes_in_flight_max=1_000)
            )
        )
        account = web.broker.quotas.of_address("10.0.0.7")
        web.broker.quotas.of_address = lambda _: account  # type: ignore[method-assign,assignment]
        large = web.connect()
        large.sendall(POST + b"content-length: 5000\r\n\r\n" + bytes(2_500))
        until = time.monotonic() + SECONDS_MAX
        while account.bytes_in_flight < 2_500:
            assert time.monotonic() < until
        refused = web.ask(POST + b"content-length: 100\r\n\r\n" + bytes(100))
        assert refused.startswith(b"HTTP/1.1 429")
        assert b"quotas.bytes_in_flight_max: at most 1000 for 10.0.0.7, got: 2600" in refused
        large.sendall(bytes(2_500))  # alone it may be larger
        assert answer_of(large).startswith(b"HTTP/1.1 4")
        while account.bytes_in_flight:
            assert time.monotonic() < until
    finally:
        web.stop()


def test_idle_connections_hold_up_nobody() -> None:
    web = Web(replace(PATIENT, connections_max=2_100))
    try:
        for _ in range(2_000):
            web.connect()
        assert all(web.is_well() for _ in range(50))
        assert len(web.server.connections.open) >= 2_000
    finally:
        web.stop()


def test_a_flood_of_requests_on_one_connection_is_cut_off(patient: Web) -> None:
    connection = patient.connect()
    connection.sendall(GET * 5_000)
    answers = read_all(connection)
    assert 1 <= answers.count(b"HTTP/1.1 200") <= SMALL.pipelined_max + 1
    assert b"HTTP/1.1 5" not in answers
    assert patient.counts["pipelined"] == 1
    assert patient.is_well()


def test_some_requests_ahead_are_answered_in_order(patient: Web) -> None:
    connection = patient.connect()
    missing = GET.replace(b"livez", b"nothing")
    connection.sendall(GET + missing + GET)
    assert answer_of_many(connection) == [200, 404, 200]


def answer_of_many(connection: socket.socket) -> list[int]:
    """The statuses of three answers."""
    got = b""
    while got.count(b"HTTP/1.1 ") < 3 or not got.rstrip().endswith(b"}"):
        got += connection.recv(65_536)
    return [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]]


# --- not HTTP -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 1_000,
        b"GET\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\n bad: fold\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        POST + b"content-length: -1\r\n\r\n",
        POST + b"content-length: x\r\n\r\n",
        POST + b"content-length: 99999999999999999999999\r\n\r\n",
        POST + b"content-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        POST + b"transfer-encoding: gzip\r\n\r\nabc",
    ],
)
def test_what_is_not_http_gets_400(patient: Web, request_bytes: bytes) -> None:
    connection = patient.connect()
    connection.sendall(request_bytes)
    check_problem(read_all(connection), 400)
    assert patient.counts["malformed"] == 1
    assert patient.is_well()


@pytest.mark.parametrize(
    ("request_bytes", "statuses"),
    [
        (b"HEAD /livez HTTP/1.1\r\nhost: localhost\r\n\r\n", {200, 405}),
        (b"OPTIONS /livez HTTP/1.1\r\nhost: localhost\r\n\r\n", {200, 405}),
        (b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n", {400, 404, 405}),
        (b"TRACE /livez HTTP/1.1\r\nhost: localhost\r\n\r\n", {405}),
        (b"BREW /livez HTTP/1.1\r\nhost: localhost\r\n\r\n", {400}),
        (b"GET http://b/livez HTTP/1.1\r\nhost: localhost\r\n\r\n", {200, 404}),
        (b"GET /livez?%ff=%00 HTTP/1.1\r\nhost: localhost\r\n\r\n", {200}),
        (b"GET /%00%ff/../.. HTTP/1.1\r\nhost: localhost\r\n\r\n", {404}),
        (b"GET /livez HTTP/1.0\r\n\r\n", {200}),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", {200}),
        (b"GET /API/v1/queues/%2e%2e/messages HTTP/1.1\r\nhost: localhost\r\n\r\n", {400, 404}),
        (b"GET /API/v1/queues/\xc3\xa4 HTTP/1.1\r\nhost: localhost\r\n\r\n", {400}),
        (b"GET /API/v1/queues/%ed%a0%80 HTTP/1.1\r\nhost: localhost\r\n\r\n", {400}),
    ],
)
def test_what_is_unusual_gets_an_answer(
    patient: Web, request_bytes: bytes, statuses: set[int]
) -> None:
    answer = patient.ask(request_bytes)
    assert int(answer[9:12]) in statuses
    assert patient.is_well()


def test_a_method_that_is_not_there_gets_those_that_are(patient: Web) -> None:
    for path, methods in (("q", b"DELETE, GET, PUT"), ("q/messages/1", b"DELETE, GET")):
        request = f"PATCH /API/v1/queues/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        answer = patient.ask(request.encode())
        assert answer.startswith(b"HTTP/1.1 405 ")
        assert b"allow: " + methods + b"\r\n" in answer


def test_an_upgrade_is_answered_as_any_request_and_closed(patient: Web) -> None:
    connection = patient.connect()
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    connection.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n" + upgrade + b"\x81\x85abcd")
    answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    assert patient.is_well()


@pytest.mark.parametrize("cut", [1, 10, len(GET) - 1])
def test_who_stops_in_the_middle_is_closed(patient: Web, cut: int) -> None:
    connection = patient.connect()
    connection.sendall(GET[:cut])
    connection.shutdown(socket.SHUT_WR)
    assert read_all(connection) == b""
    body = patient.connect()
    body.sendall(POST + b"content-length: 100\r\n\r\n{")
    body.shutdown(socket.SHUT_WR)
    assert b"HTTP/1.1 5" not in read_all(body)
    assert patient.is_well()


def test_a_broken_request_behind_a_good_one_takes_nothing_from_it(patient: Web) -> None:
    connection = patient.connect()
    connection.sendall(GET + b"\x00\x00\r\n\r\n")
    answers = read_all(connection)
    assert answers.startswith(b"HTTP/1.1 200")
    assert patient.counts["malformed"] == 1


def test_a_client_that_goes_away_is_no_error(patient: Web) -> None:
    heads = [GET[:7], GET, POST + b"content-length: 9\r\n\r\n{", b"content-length: 2\r\n\r\n{}"]
    for head in heads * 5:
        connection = patient.connect()
        connection.sendall(head)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()  # a reset: the rudest way to go
    assert patient.is_well()


SEEDS = [
    GET,
    b"GET /API/v1/queues/q/messages?ack=true HTTP/1.1\r\nhost: localhost\r\n\r\n",
    POST + b'content-length: 32\r\n\r\n{"name": "q", "type": "delayed"}',
    POST + b"transfer-encoding: chunked\r\n\r\n3\r\n{} \r\n0\r\n\r\n",
    b"POST /v1/topics/q/lease HTTP/1.1\r\nhost: localhost\r\ncontent-length: 13\r\n\r\n"
    b'{"wait_ms":1}',
    b"PUT /API/v1/queues/q HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
]


def mutated(draw: random.Random) -> bytes:
    """A request with some bytes changed, taken out, doubled, or cut off."""
    found = bytearray(draw.choice(SEEDS))
    for _ in range(draw.randint(1, 6)):
        first = draw.randrange(len(found))
        end = first + draw.randint(1, 12)
        match draw.randrange(4):
            case 0:
                found[first:end] = draw.randbytes(draw.randint(1, 12))
            case 1:
                del found[first:end]
            case 2:
                found[first:first] = found[first:end] * draw.randint(1, 3)
            case _:
                found[first:first] = draw.choice([b"\r\n", b": ", b"\x00", b"%00", b"{", b" "])
        found = found or bytearray(b"\r")
    return bytes(found)


def test_whatever_is_sent_is_no_error_of_ours(web: Web) -> None:
    draw = random.Random(20261121)
    for _ in range(300):
        connection = web.connect()
        try:
            connection.sendall(mutated(draw) + mutated(draw))
            connection.settimeout(SECONDS_MAX)
            answers = read_all(connection)
        except (BrokenPipeError, ConnectionResetError):
            continue
        finally:
            connection.close()
        assert b"HTTP/1.1 5" not in answers, answers[:300]
    assert web.is_well()
