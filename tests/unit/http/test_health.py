"""The health server: three answers, and nobody who can hold it up."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import trustme

from dejaqueue.access.gate import Gate
from dejaqueue.access.tls import ServerTls
from dejaqueue.errors import Unavailable
from dejaqueue.http.health import HealthServer
from dejaqueue.settings import ServerSettings


class Broker:
    """What the server is told."""

    def __init__(self) -> None:
        self.ready = False
        self.error: Unavailable | None = None

    def stats(self) -> dict[str, Any]:
        if self.error:
            raise self.error
        return {"topics": {"a": 1}}


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def server(broker: Broker) -> Iterator[HealthServer]:
    server = HealthServer("127.0.0.1", 0, lambda: broker.ready, broker.stats)
    server.start()
    yield server
    server.stop()


def ask(
    server: HealthServer, path: str, method: str = "GET", key: str | None = None
) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        assert answer.getheader("Content-Type") == "application/json"
        return answer.status, answer.read()
    finally:
        connection.close()


def test_alive_before_it_is_ready(server: HealthServer, broker: Broker) -> None:
    assert ask(server, "/livez") == (200, b'{"status": "alive"}\n')
    assert ask(server, "/readyz") == (503, b'{"status": "not ready"}\n')
    broker.ready = True
    assert ask(server, "/readyz?verbose=1") == (200, b'{"status": "ready"}\n')


def test_stats_are_those_of_the_broker(server: HealthServer) -> None:
    status, body = ask(server, "/stats")
    assert (status, json.loads(body)) == (200, {"topics": {"a": 1}})


def test_broker_that_cannot_answer_gives_its_error(server: HealthServer, broker: Broker) -> None:
    broker.error = Unavailable("the broker is stopping")
    status, body = ask(server, "/stats")
    assert status == 503
    assert json.loads(body)["text"] == "the broker is stopping"


def test_another_path_says_which_there_are(server: HealthServer) -> None:
    status, body = ask(server, "/metrics")
    assert status == 404
    assert b"/readyz" in body


def test_head_has_no_body(server: HealthServer) -> None:
    assert ask(server, "/livez", "HEAD") == (200, b"")


def test_connection_that_says_nothing_holds_up_nobody(server: HealthServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)):
        assert ask(server, "/livez")[0] == 200


def test_stop_twice_and_stop_without_start_give_the_port_back() -> None:
    server = HealthServer("127.0.0.1", 0, lambda: True, dict)
    server.stop()
    again = HealthServer("127.0.0.1", server.port, lambda: True, dict)
    again.start()
    again.stop()
    again.stop()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_port_that_is_taken_is_refused(server: HealthServer) -> None:
    with pytest.raises(OSError):
        HealthServer("127.0.0.1", server.port, lambda: True, dict)


def test_numbers_are_for_those_with_a_key_once_there_is_one(broker: Broker) -> None:
    gate = Gate()
    server = HealthServer("127.0.0.1", 0, lambda: True, broker.stats, gate)
    server.start()
    try:
        assert ask(server, "/stats")[0] == 200
        root = gate.keys.create("root", ["admin:*"])[1]
        one = gate.keys.create("one", ["manage:a"])[1]
        assert [ask(server, path)[0] for path in ("/livez", "/readyz")] == [200, 200]
        found = [ask(server, "/stats", key=key)[0] for key in (None, "dq_1_2", one, root)]
        assert found == [401, 401, 403, 200]
    finally:
        server.stop()


def test_broken_connections_are_lines_of_the_log_and_no_tracebacks(
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    issued = trustme.CA().issue_cert("localhost")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    tls = ServerTls(ServerSettings(tls_certificate=str(certificate), tls_key=str(key)))
    server = HealthServer("127.0.0.1", 0, lambda: True, broker.stats, tls=tls)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
            while connection.recv(100):
                pass
    except ConnectionError:
        pass
    finally:
        server.stop()
    assert capfd.readouterr().err == ""
    assert [record.name for record in caplog.records] == ["dejaqueue.http"]


def test_stats_are_for_no_page_and_no_second_key(broker: Broker) -> None:
    gate = Gate()
    server = HealthServer("127.0.0.1", 0, lambda: True, broker.stats, gate)
    server.start()
    try:
        for lines, status in (
            ([("Host", "localhost")], 200),
            ([("Host", "evil.example")], 403),
            ([("Host", "localhost"), ("Sec-Fetch-Site", "cross-site")], 403),
            ([("Host", "localhost"), ("Origin", "http://evil.example")], 403),
            ([("Host", "localhost"), ("Authorization", "Bearer a")], 200),
            ([("Host", "localhost"), ("Authorization", "a"), ("Authorization", "a")], 401),
        ):
            connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
            connection.putrequest("GET", "/stats", skip_host=True)
            for name, value in lines:
                connection.putheader(name, value)
            connection.endheaders()
            assert connection.getresponse().status == status, lines
            connection.close()
    finally:
        server.stop()
