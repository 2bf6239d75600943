"""The client's end of the express lane, against a small server that behaves, breaks and refuses.

With a real broker, over TLS, and when it breaks: tests/integration/test_express_lane.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from dejaqueue.client import lane as lane_module
from dejaqueue.client.lane import Lane, LaneChannel, connect
from dejaqueue.client.row_batch import RowBatch
from dejaqueue.errors import BadRequest, InternalError, Unavailable
from dejaqueue.wire import frames, lane
from dejaqueue.wire.descriptors import Address, WriteStream, decode_address
from dejaqueue.wire.frames import Reply, StreamError
from dejaqueue.wire.lane import LaneAddress
from tests.patience import PATIENCE_SECONDS

URL = "dejaq://127.0.0.1"
LET_IN = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: dejaq-lane\r\n\r\n"
ROWS = RowBatch([b"x"], None)
STREAM = WriteStream("orders", producer="p")


class Host:
    """Takes one connection and lets the test answer."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.head = b""
        self._thread = threading.Thread(target=self._let_in)
        self._thread.start()

    def _let_in(self) -> None:
        self.socket, _ = self._listener.accept()
        self.socket.settimeout(PATIENCE_SECONDS)
        while not self.head.endswith(b"\r\n\r\n"):
            self.head += self.socket.recv(1)
        self.socket.sendall(self._answer)

    def hear(self) -> lane.Send:
        content = self.socket.recv(4)
        return lane.decode_send(self.socket.recv(lane.length_of(content, 0)))

    def close(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        self.socket.close()
        self._listener.close()


Open = Callable[..., tuple[Host, Lane]]


@pytest.fixture
def opened() -> Iterator[Open]:
    ends: list[Callable[[], None]] = []

    def open_one(behind: bytes = b"") -> tuple[Host, Lane]:
        host = Host(LET_IN + behind)
        place, headers = LaneAddress(host.port, "n"), [(b"authorization", b"Bearer k")]
        opened = connect(URL, place, headers, None)
        ends.append(host.close)
        assert opened is not None
        found = Lane(*opened, lambda: None)
        ends.append(found.close)
        return host, found

    yield open_one
    for end in ends:
        end()


def test_a_channel_says_where_and_its_future_is_the_reply(opened: Open) -> None:
    host, found = opened()
    assert b"\r\nauthorization: Bearer k\r\nx-dejaq-lane: n\r\n" in host.head
    channel = LaneChannel(found, STREAM)
    reply = channel.send(7, RowBatch([b"a", b"b"], [5, 6]))
    sent = host.hear()
    assert (sent.payloads, sent.dues_ms) == ([b"a", b"b"], [5, 6])
    assert decode_address(sent.address) == Address("orders", "p", 7)
    answer = lane.encode_reply(Reply(sent.number, 2, 40), sent.number)
    host.socket.sendall(answer[:9])
    host.socket.sendall(answer[9:])
    assert reply.result(PATIENCE_SECONDS) == Reply(sent.number, 2, 40)
    channel.close()


def test_what_comes_right_behind_the_answer_is_not_lost(opened: Open) -> None:
    wrong = lane.with_length(frames.encode(StreamError(BadRequest("frame", "none", "one"))))
    _, found = opened(wrong)
    reply = found.send(b"address", ROWS)
    assert isinstance(reply.exception(PATIENCE_SECONDS), BadRequest)
    assert found.is_over


def test_a_lane_that_breaks_ends_what_waits_and_takes_nothing_more(opened: Open) -> None:
    host, found = opened()
    reply = found.send(b"address", ROWS)
    host.hear()
    host.socket.close()
    assert isinstance(reply.exception(PATIENCE_SECONDS), Unavailable)
    assert isinstance(found.send(b"address", ROWS).exception(PATIENCE_SECONDS), Unavailable)


def test_a_frame_that_has_no_place_here_is_a_fault_of_the_broker(opened: Open) -> None:
    host, found = opened()
    reply = found.send(b"address", ROWS)
    host.socket.sendall(lane.with_length(frames.encode(frames.Close())))
    assert isinstance(reply.exception(PATIENCE_SECONDS), InternalError)


def test_closing_waits_for_replies(opened: Open) -> None:
    host, found = opened()
    reply = found.send(b"address", ROWS)
    number = host.hear().number
    closing = threading.Thread(target=found.close)
    closing.start()
    host.socket.sendall(lane.encode_reply(Reply(number, 1, 3), number))
    closing.join(PATIENCE_SECONDS)
    assert reply.result(0).first_id == 3
    assert isinstance(found.send(b"address", ROWS).exception(0), Unavailable)


def test_a_silent_broker_is_given_up_though_the_connection_stands(opened: Open) -> None:
    _, found = opened()
    reply = found.send(b"address", ROWS)
    assert found.waits_since_us() is not None
    found.ended(Unavailable("the broker does not answer"))
    assert isinstance(reply.exception(0), Unavailable)
    assert found.is_over


@pytest.mark.parametrize("answer", [b"HTTP/1.1 404 Not Found\r\n\r\n", b"SSH-2.0\r\n\r\n"])
def test_who_is_not_let_in_has_no_lane(answer: bytes) -> None:
    host = Host(answer)
    assert connect(URL, LaneAddress(host.port, "n"), [], None) is None
    host.close()


def test_a_port_that_does_not_answer_costs_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_module, "CONNECT_SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert connect(URL, LaneAddress(port, "n"), [], None) is None
    assert connect(URL, LaneAddress(port, "n"), [], None) is None  # nobody is there
