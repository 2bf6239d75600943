"""Hostile HTTP behind TLS: bounds hold there too, and a handshake has an end.

Covered in plain text, bound by bound: tests/unit/http/test_protocol.py.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from dejaqueue.access.gate import Gate
from dejaqueue.access.tls import load_tls
from dejaqueue.broker.broker import Broker
from dejaqueue.http.bounds import Bounds
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.settings import BrokerSettings, JournalSettings, ServerSettings
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.test_protocol import GET, POST, answer_of, check_problem, drip, read_all

BOUNDS = Bounds(
    body_bytes_max=100_000,
    head_seconds=0.3,
    body_seconds=0.3,
    body_bytes_per_second=100_000,
    idle_seconds=0.5,
    look_seconds=0.05,
)


class Behind:
    """A server behind TLS."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        certificate, key = folder / "server.pem", folder / "server.key"
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        tls = load_tls(ServerSettings(tls_certificate=str(certificate), tls_key=str(key)))
        self.broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
        self.broker.start()
        service = Service(self.broker, Gate(), lambda: True)
        self.server = HttpServer(service, "127.0.0.1", 0, BOUNDS, tls)
        self.server.start()
        self._context = ssl.create_default_context()
        authority.configure_trust(self._context)

    def plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), PATIENCE_SECONDS)

    def secure(self) -> ssl.SSLSocket:
        return self._context.wrap_socket(self.plain(), server_hostname="localhost")

    def stop(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while self.server.connections.open:
            assert time.monotonic() < until
        self.server.stop()
        self.broker.stop()


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    behind = Behind(tmp_path)
    yield behind
    behind.stop()


def test_who_behaves_is_served(behind: Behind) -> None:
    with behind.secure() as connection:
        connection.sendall(GET)
        assert answer_of(connection).startswith(b"HTTP/1.1 200")


def test_a_handshake_that_does_not_come_is_ended(behind: Behind) -> None:
    with behind.plain() as silent, behind.plain() as slow:
        slow.sendall(b"\x16\x03\x01")
        assert read_all(silent) == b""
        assert read_all(slow) == b""


def test_plain_text_is_no_handshake(behind: Behind) -> None:
    with behind.plain() as connection:
        connection.sendall(GET)
        assert b"HTTP" not in read_all(connection)


def test_headers_that_trickle_in_get_408(behind: Behind) -> None:
    with behind.secure() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        check_problem(drip(connection, b"a: b\r\n"), 408)


def test_a_body_over_the_bound_gets_413(behind: Behind) -> None:
    with behind.secure() as connection:
        connection.sendall(POST + b"content-length: 100001\r\n\r\n")
        check_problem(read_all(connection), 413)


def test_what_is_not_http_gets_400(behind: Behind) -> None:
    with behind.secure() as connection:
        connection.sendall(bytes(100))
        check_problem(read_all(connection), 400)


def test_who_says_nothing_or_nothing_more_is_closed(behind: Behind) -> None:
    with behind.secure() as silent, behind.secure() as done:
        done.sendall(GET)
        assert answer_of(done).startswith(b"HTTP/1.1 200")
        assert read_all(done) == b""
        assert read_all(silent) == b""
