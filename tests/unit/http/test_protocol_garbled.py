"""Garbled HTTP, made at random, over raw sockets: it is answered as HTTP or not at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.http.test_protocol import GET, POST, SMALL, Web, read_all

PIECES = [
    GET,
    POST,
    GET[:-2],
    b"GET /API/v1/topics?limit=1 HTTP/1.1\r\n",
    b"PUT /API/v1/topics/a HTTP/1.0\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"GET http://a/livez HTTP/1.1\r\n",
    b"GET //%00%ff%2e%2e/ HTTP/1.1\r\n",
    b"host: localhost\r\n",
    b"content-length: 5\r\n",
    b"content-length: -1\r\n",
    b"content-length: 99999999999999999999\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip, chunked\r\n",
    b"content-encoding: gzip\r\n",
    b"expect: 100-continue\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\n",
    b"content-type: application/vnd.apache.arrow.stream\r\n",
    b"\r\n",
    b"\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b'{"name": "a"}',
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    made = Web(SMALL)
    yield made
    made.stop()


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(pieces=st.lists(st.sampled_from(PIECES) | st.binary(max_size=30), max_size=8))
def test_garbage_is_answered_as_http_or_not_at_all(web: Web, pieces: list[bytes]) -> None:
    connection = web.connect()
    try:
        connection.sendall(b"".join(pieces))
        connection.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except OSError as gone:  # closed by the server before it was told that nothing more comes
        assert gone.errno == 107, gone
    got = read_all(connection)
    connection.close()
    assert not got or got.startswith(b"HTTP/1.")
    for line in got.split(b"\r\n"):
        if line.startswith(b"HTTP/1."):
            status = int(line.split()[1])
            assert status == 100 or 200 <= status < 500 or status in (501, 503, 505), got
    assert web.is_well()
    web.reset()
