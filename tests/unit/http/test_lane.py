"""The express lane of a real server, spoken byte by byte as docs/wire.md has it; and bad guests.

Not covered here: the client that speaks it (tests/unit/client/test_lane.py), TLS, retries and other
brokers (tests/integration/test_express_lane.py).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from dejaqueue import limits
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest, ResourceExhausted, TopicUnknown, Unauthenticated
from dejaqueue.http.bounds import Bounds
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.setting_groups import QuotaSettings
from dejaqueue.wire import frames, lane
from dejaqueue.wire.descriptors import Address, encode_address
from dejaqueue.wire.frames import Reply, StreamError
from tests.patience import PATIENCE_SECONDS, until

ASK = b"GET /v1/lane HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: dejaq-lane\r\n"
BOUNDS = Bounds(
    body_bytes_max=100_000,
    bodies_bytes_max=150_000,
    body_seconds=0.2,
    body_bytes_per_second=1_000_000,
    stuck_seconds=0.3,
    look_seconds=0.05,
)


class Guest:
    """A connection that asks for the lane."""

    def __init__(self, server: HttpServer, *headers: bytes, name: bytes | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
        if name is None:
            lanes = server.connections.lanes
            assert lanes is not None
            name = b"x-dejaq-lane: " + lanes.name.encode()
        headers = (name, *headers)
        self.socket.sendall(ASK + b"".join(one + b"\r\n" for one in headers) + b"\r\n")
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            self.head += self.socket.recv(1)

    def say(self, payload: bytes, *, number: int, topic: str = "t", producer: str = "") -> None:
        self.socket.sendall(frame_of(payload, number=number, topic=topic, producer=producer))

    def take(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            content = self.socket.recv(count - len(found))
            assert content, "closed"
            found += content
        return found

    def hear(self) -> frames.Frame:
        (length,) = struct.unpack("<I", self.take(4))
        return frames.decode(self.take(length))

    def reply(self) -> Reply:
        found = self.hear()
        assert isinstance(found, Reply), found
        return found

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


def frame_of(payload: bytes, *, number: int, topic: str = "t", producer: str = "") -> bytes:
    address = encode_address(Address(topic, producer, number))
    return lane.encode_send(number, address, 1, lane.encode_rows([payload], None), has_dues=False)


Visit = Callable[..., Guest]


@pytest.fixture
def visit() -> Iterator[Visit]:
    """Opens a connection; it is closed when the test ends."""
    guests: list[Guest] = []

    def open_one(server: HttpServer, *headers: bytes, name: bytes | None = None) -> Guest:
        guests.append(Guest(server, *headers, name=name))
        return guests[-1]

    yield open_one
    for guest in guests:
        guest.socket.close()


@pytest.fixture
def server(broker: Broker) -> Iterator[HttpServer]:
    service = Service(broker, Gate(broker.keys), lambda: True)
    server = HttpServer(service, "127.0.0.1", 0, BOUNDS)
    server.start()
    yield server
    lanes = server.connections.lanes
    assert lanes is not None
    server.stop()
    assert (lanes.open, lanes.held_bytes) == (set(), 0)


def payloads(broker: Broker) -> list[bytes]:
    _, [page] = broker.read("peek", {"topic": "t", "limit": 10_000})
    return [bytes(one) for one in page.column("payload").to_pylist()]


def test_each_send_has_its_reply_and_a_batch_sent_again_its_first_one(
    broker: Broker, server: HttpServer, visit: Visit
) -> None:
    place = broker.lane
    assert place is not None
    assert broker.call("lane") == {"port": server.port, "name": place.name, "fields": True}
    guest = visit(server)
    assert guest.head.startswith(b"HTTP/1.1 101 ")
    guest.say(b"one", number=1, producer="p")
    first = guest.reply()
    assert (first.number, first.rows, first.error) == (1, 1, None)
    guest.say(b"one", number=1, producer="p")
    assert guest.reply() == first
    # Several in one write, and one in pieces.
    both = frame_of(b"two", number=2) + frame_of(b"three", number=3)
    guest.socket.sendall(both[:-5])
    assert guest.reply().number == 2
    guest.socket.sendall(both[-5:])
    assert guest.reply().number == 3
    assert sorted(payloads(broker)) == [b"one", b"three", b"two"]
    guest.socket.close()


def test_what_is_wrong_with_one_batch_is_its_own(
    broker: Broker, server: HttpServer, visit: Visit
) -> None:
    guest = visit(server)
    guest.say(b"x", number=1, topic="nobody")
    guest.say(b"x" * (50 << 10), number=2)
    guest.say(b"fine", number=3)
    found = {reply.number: reply.error for reply in (guest.reply() for _ in range(3))}
    assert isinstance(found.pop(1), TopicUnknown)
    assert found == {2: None, 3: None}
    broker.alter_topic("t", {"max_payload_bytes": 3})
    guest.say(b"four", number=4)
    assert str(guest.reply().error) == "payload of row 0: at most 3 bytes, got: 4"
    guest.socket.close()


def test_many_more_than_may_wait_are_all_answered(
    broker: Broker, server: HttpServer, visit: Visit
) -> None:
    guest = visit(server)
    count = limits.LANE_WAITING_MAX + 500
    guest.socket.sendall(b"".join(frame_of(b"x", number=n) for n in range(1, count + 1)))
    assert {guest.reply().number for _ in range(count)} == set(range(1, count + 1))
    assert len(payloads(broker)) == count
    guest.socket.close()


def test_a_client_that_half_closes_gets_its_replies(server: HttpServer, visit: Visit) -> None:
    guest = visit(server)
    guest.say(b"x", number=1)
    guest.socket.shutdown(socket.SHUT_WR)
    assert guest.reply().number == 1
    assert guest.is_closed()


# --- who may ------------------------------------------------------------------------------------


def test_keys_and_roles_are_those_of_the_broker(
    broker: Broker, server: HttpServer, visit: Visit
) -> None:
    admin = broker.keys.create("root", ["admin:*"])[1]
    key, text = broker.keys.create("shop", ["produce:t"])
    assert visit(server).head.startswith(b"HTTP/1.1 401 ")
    for wrong in (b"Bearer dq_1_2", b"Basic eDp5"):
        assert visit(server, b"authorization: " + wrong).head.startswith(b"HTTP/1.1 401 ")
    bearer = b"authorization: Bearer " + text.encode()
    twice = visit(server, bearer, b"authorization: Bearer " + admin.encode())
    assert twice.head.startswith(b"HTTP/1.1 401 ")
    guest = visit(server, bearer)
    guest.say(b"x", number=1)
    assert guest.reply().error is None
    guest.say(b"x", number=2, topic="other")
    refused = guest.reply().error
    assert type(refused).__name__ == "Forbidden"
    broker.keys.revoke(key.id)
    guest.say(b"x", number=3)
    assert isinstance(guest.reply().error, Unauthenticated)
    assert len(payloads(broker)) == 1
    guest.socket.close()


@pytest.mark.parametrize("header", [b"origin: http://x", b"sec-fetch-site: same-origin"])
def test_no_page_gets_a_lane(server: HttpServer, visit: Visit, header: bytes) -> None:
    assert visit(server, header).head.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("name", [b"x-dejaq-lane: other", b"x-other: y"])
def test_who_wants_another_brokers_lane_gets_none(
    server: HttpServer, visit: Visit, name: bytes
) -> None:
    assert visit(server, name=name).head.startswith(b"HTTP/1.1 409 ")


def test_quotas_hold(broker: Broker, server: HttpServer, visit: Visit) -> None:
    broker.keys.create("root", ["admin:*"])
    text = broker.keys.create("shop", ["produce:t"])[1]
    quotas = QuotaSettings(streams_max=1, rows_per_s=2)
    broker.change_settings(broker.settings.model_copy(update={"quotas": quotas}))
    bearer = b"authorization: Bearer " + text.encode()
    guest = visit(server, bearer)
    assert visit(server, bearer).head.startswith(b"HTTP/1.1 429 ")
    for number in (1, 2, 3):
        guest.say(b"x", number=number)
    errors = [guest.reply().error for _ in range(3)]
    assert [type(error) for error in errors].count(ResourceExhausted) == 1
    guest.socket.close()
    until(lambda: visit(server, bearer).head.startswith(b"HTTP/1.1 101 "))


# --- bad guests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xff\xff\xff",
        struct.pack("<I", 8) + b"\x01\x02\x00\x00\x00\x00\x00\x00",
        struct.pack("<I", 3) + b"abc",
        struct.pack("<I", 0),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_send_ends_the_lane_and_says_why(
    server: HttpServer, visit: Visit, content: bytes
) -> None:
    guest = visit(server)
    guest.say(b"before", number=1)
    guest.socket.sendall(content)
    heard = [guest.hear(), guest.hear()]
    assert {type(one) for one in heard} == {Reply, StreamError}
    [wrong] = [one.error for one in heard if isinstance(one, StreamError)]
    assert isinstance(wrong, BadRequest)
    assert guest.is_closed()


def test_half_a_frame_has_a_time(server: HttpServer, visit: Visit) -> None:
    guest = visit(server)
    guest.socket.sendall(struct.pack("<I", 90_000) + b"\x01\x09")
    assert isinstance(guest.hear(), StreamError)
    assert guest.is_closed()


def test_frames_that_are_not_whole_have_a_bound_together(server: HttpServer, visit: Visit) -> None:
    guests = [visit(server) for _ in range(2)]
    for guest in guests:
        guest.socket.sendall(struct.pack("<I", 99_000) + b"x" * 90_000)
    ended = [guest.hear() for guest in guests]
    assert all(isinstance(one, StreamError) for one in ended)
    assert any("bytes at once" in str(one) for one in ended)
    for guest in guests:
        assert guest.is_closed()


def test_who_reads_no_replies_is_closed(server: HttpServer, visit: Visit) -> None:
    guest = visit(server)
    guest.socket.settimeout(0.2)
    # Each of these has an answer that is larger: it is refused with a text.
    frame = frame_of(b"", number=1, topic="nobody")
    try:
        while server.connections.counters.stuck == 0:
            guest.socket.sendall(frame * 100)
    except OSError:
        pass
    until(lambda: server.connections.counters.stuck == 1)
    guest.socket.close()
    lanes = server.connections.lanes
    assert lanes is not None
    until(lambda: not lanes.open)


def test_a_server_that_stops_answers_and_closes(broker: Broker, visit: Visit) -> None:
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    guest = visit(server)
    guest.say(b"x", number=1)
    assert guest.reply().number == 1
    server.stop()
    assert guest.is_closed()
    assert broker.call("lane") == {"port": None}
