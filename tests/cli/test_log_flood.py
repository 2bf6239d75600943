"""What outsiders can have a broker log: all that is wrong, thousands of times, and few lines.

Each kind of wrong call is made many times by real clients of a real process; its log is counted.
Not here: the audit log in detail (tests/unit/access/test_audit.py), Flight's refusals
(tests/integration/test_access.py).
"""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from dejaqueue.access import audit
from dejaqueue.clock import SystemClock
from dejaqueue.logs import REPEATS_MAX
from tests.cli.conftest import invoke
from tests.cli.test_serve import Serve, Start, start
from tests.patience import PATIENCE_SECONDS

__all__ = ["start"]

TIMES = 400
HEAD = "Host: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """Settings of a broker with TLS."""
    issued = trustme.CA().issue_cert("localhost")
    files = {"CERTIFICATE": tmp_path / "broker.pem", "KEY": tmp_path / "broker.key"}
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(files["CERTIFICATE"]), append=True)
    issued.private_key_pem.write_to_path(str(files["KEY"]))
    return {f"DEJAQ_SERVER__TLS_{name}": str(file) for name, file in files.items()}


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def many(port: int, content: str, times: int = TIMES) -> None:
    """Send a request so many times on one connection, and read what comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        for _ in range(times // 20):
            connection.sendall(content.encode() * 20)
            came = b""
            while came.count(b"HTTP/1.1 ") < 20 and (piece := connection.recv(1 << 20)):
                came += piece


def once_each(port: int, content: bytes, times: int = TIMES) -> None:
    """Send these bytes on so many connections."""
    for _ in range(times):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
            try:
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(100)
            except OSError:
                pass


def reading(serve: Serve) -> Callable[[], list[dict[str, Any]]]:
    """Read the log as it comes: a pipe that is full would stop the broker. Call it for the end."""
    found: list[str] = []
    stream = serve.process.stderr
    assert stream is not None
    thread = threading.Thread(target=lambda: found.extend(stream))
    thread.start()

    def end() -> list[dict[str, Any]]:
        serve.process.send_signal(signal.SIGTERM)
        assert serve.process.wait(60) == 0
        thread.join(PATIENCE_SECONDS)
        return [json.loads(line) for line in found]  # no line is anything else

    return end


def test_wrong_requests_and_keys_fill_no_log(start: Start, tmp_path: Path) -> None:
    place = str(tmp_path / "queue")
    root = invoke("key", "create", "root", "--grant", "admin:*", "--data", place).stdout.strip()
    serve = start("--data", place, "--port", "0", "--json")
    log_of = reading(serve)
    where = serve.where()
    port = port_of(where["http_url"])
    began_ms = SystemClock().now_ms()
    key, wrong = f"Authorization: Bearer {root}\r\n", "Authorization: Bearer dq_1_2\r\n"
    body = '{"name": "a b"}'
    sized = f"Content-Length: {len(body)}\r\n\r\n{body}"
    for head in ("", wrong, key + wrong):
        many(port, f"GET /v1/topics HTTP/1.1\r\n{HEAD}{head}\r\n")
        many(port, f"DELETE /v1/topics/x HTTP/1.1\r\n{HEAD}{head}\r\n")
    many(port, f"POST /v1/topics HTTP/1.1\r\n{HEAD}{key}{sized}", 4 * TIMES)
    many(port, f"DELETE /v1/topics/nowhere HTTP/1.1\r\n{HEAD}{key}\r\n", 4 * TIMES)
    many(port, f"GET /nowhere HTTP/1.1\r\n{HEAD}{key}\r\n")
    many(port, f"POST /v1/topics/nowhere/messages HTTP/1.1\r\n{HEAD}{key}{sized}")
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    once_each(port, f"GET /v1/topics HTTP/1.1\r\n{HEAD}{upgrade}\r\n".encode())
    once_each(port, b"nonsense\r\n\r\n")
    once_each(port_of(where["url"]), b"nonsense\r\n\r\n")
    seconds = (SystemClock().now_ms() - began_ms) // 1_000 + 2
    lines = Counter(
        f"{line['logger']} {line.get('principal', '')} {line.get('outcome', '')}".strip()
        for line in log_of()
        if line["level"] != "info"
    )
    lines.pop("dejaqueue.serve", None)  # that nothing keeps this machine's clock
    assert set(lines) <= {
        "dejaqueue.audit unknown Unauthenticated",
        "dejaqueue.audit unknown left out",
        "dejaqueue.audit root BadRequest",
        "dejaqueue.audit root TopicUnknown",
        "dejaqueue.audit root left out",
    }
    for who in ("unknown", "root"):
        count = sum(n for kind, n in lines.items() if f" {who} " in kind)
        assert count <= (audit.LINES_PER_SECOND_MAX + 1) * seconds
        assert count < 4 * TIMES


def test_broken_handshakes_fill_no_log(start: Start, certificate: dict[str, str]) -> None:
    serve = start("--data", "memory:", "--port", "0", "--json", **certificate)
    log_of = reading(serve)
    where = serve.where()
    for url in (where["url"], where["http_url"]):
        for content in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x00\xff" + b"x" * 300,
            b"\0",
            b"",
        ):
            once_each(port_of(url), content, TIMES // 4)
    lines = [line for line in log_of() if line["level"] != "info"]
    assert len(lines) <= 4 * REPEATS_MAX
