"""Covers: every figure of a journal in a slow bucket that has a target, in a run of seconds on the
gateway of dev/services; and the program that makes a store slow, before a server of its own.

Not covered: what the figures are.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench import bucket_journal, promotion
from bench.systems.servers import end_program, start_helper
from bench.systems.system import Plan
from bench.targets import TARGETS
from dejaqueue.cli.ports import free_port
from dev.services import missing

DELAY_MS = 200


class Store(BaseHTTPRequestHandler):
    """Answers a PUT with a length, a GET in chunks, a HEAD and a DELETE without a body."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"got " + content)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\none\r\n3;name=value\r\ntwo\r\n0\r\n\r\n")

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "99")
        self.end_headers()

    def do_DELETE(self) -> None:
        self.send_response(204)
        self.end_headers()

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@pytest.fixture
def store() -> Iterator[int]:
    """The port of a store."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_puts_are_held__and_everything_is_passed_on_and_counted(store: int) -> None:
    port = free_port()
    slow = start_helper("bench.slow_store", store, port, DELAY_MS)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        found = []
        for method, body in (("PUT", b"content"), ("GET", None), ("HEAD", None), ("DELETE", None)):
            began = time.monotonic()
            connection.request(method, "/bucket/name", body)
            answer = connection.getresponse()
            found.append((method, answer.status, answer.read()))
            is_held = time.monotonic() - began >= DELAY_MS / 1_000
            assert is_held or method != "PUT"
        connection.close()
        assert found == [
            ("PUT", 200, b"got content"),
            ("GET", 200, b"onetwo"),
            ("HEAD", 200, b""),
            ("DELETE", 204, b""),
        ]
        assert bucket_journal.counts_of(slow) == {"puts": 1, "others": 3}
        assert bucket_journal.counts_of(slow) == {"puts": 0, "others": 0}
    finally:
        end_program(slow)


@pytest.mark.slow
@pytest.mark.may_skip
def test_all_figures_of_a_journal_in_a_bucket_are_measured(tmp_path: Path) -> None:
    lacking = missing("versitygw")
    plan = Plan(2_000, 0.3, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    rows, left_out = bucket_journal.bucket_rows("bytes", plan, lambda _: None)
    if lacking is not None:
        assert rows == []
        assert left_out == [f"a journal in a bucket: {lacking} is not installed"]
        pytest.skip(lacking)
    found = {row.case: row.value for row in rows}
    assert {one.case for one in TARGETS if one.case.startswith("bucket_")} <= set(found)
    assert found["bucket_early"] == 0
    # A PUT takes so long, and what is acknowledged was in one.
    assert found["bucket_answered_p50"] >= bucket_journal.DELAY_MS
    assert 0 < found["bucket_puts"] < 1_000 / bucket_journal.DELAY_MS * bucket_journal.PARTITIONS


@pytest.mark.slow
def test_a_promotion_is_measured(tmp_path: Path) -> None:
    plan = Plan(2_000, 0.3, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    (row,) = promotion.promotion_rows("bytes", plan, lambda _: None)
    assert row.case == "promotion"
    assert 0 < row.value < 60
