"""A page in a real browser against a broker as it comes, without keys: it does no harm.

The page (attack.html) tries what a browser can be made to send, from another site and from another
port of the same one; what is at its name by then (rebound.html) is the broker itself. That requests
came is seen where the broker refuses them. Not covered: other browsers; tests/unit/access/
test_pages.py has the headers that they send.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import httpx
import pyarrow.flight as flight
import pytest
import trustme

from dejaqueue.access import audit
from dejaqueue.access.tls import load_tls
from dejaqueue.clock import SystemClock
from dejaqueue.model import Topic
from dejaqueue.settings import ServerSettings
from tests.hostile import browser
from tests.integration.access_fixture import Site, running
from tests.patience import PATIENCE_SECONDS

HERE = Path(__file__).parent
ATTACK = (HERE / "attack.html").read_text()
REBOUND = (HERE / "rebound.html").read_text()
NAMES = ("evil.example", "queue")
"""Names of pages that stand for the broker's address later: one of the internet, one of a network
whose name server is the attacker's."""

# Ways of the page, and what the broker refuses of each; a preflight where the browser asks first.
TAKES = (
    "img", "img-no-referrer", "img-credentials", "img-srcset", "input-image", "script", "module",
    "stylesheet", "import-style", "background", "font", "prefetch", "preload", "iframe",
    "iframe-sandbox", "iframe-refresh", "object", "embed", "video", "audio", "form-get", "fetch",
    "fetch-no-cors", "fetch-no-referrer", "fetch-credentials", "fetch-from-data", "xhr",
    "event-source", "websocket", "top",
)  # fmt: skip
CALLS = {
    "form-purge": "POST /v1/topics/{}/purge",
    "form-text": "POST /v1/topics/{}/messages",
    "form-multipart": "POST /v1/topics/{}/messages",
    "form-null-origin": "POST /v1/topics/{}/purge",
    "post-lease": "POST /v1/topics/{}/lease",
    "post-send": "POST /v1/topics/{}/messages",
    "post-arrow": "POST /v1/topics/{}/messages",
    "post-keepalive": "POST /v1/topics/{}/purge",
    "beacon": "POST /v1/topics/{}/purge",
    "ping": "POST /v1/topics/{}/purge",
    "xhr-post": "POST /v1/topics/{}/purge",
    "delete": "OPTIONS /v1/topics/{}",
    "put": "OPTIONS /API/v1/queues/{}",
    "post-json": "OPTIONS /v1/topics/{}/messages",
    "made-up-key": "OPTIONS /API/v1/queues/{}/messages",
}
BROAD = {"POST /v1/keys", "POST /v1/topics"}
EXPECTED = {
    *(f"GET /API/v1/queues/q-{name}/messages" for name in TAKES),
    *(call.format(f"q-{name}") for name, call in CALLS.items()),
    *BROAD,
}

needs_browser = pytest.mark.skipif(
    browser.program() is None, reason="not installed: chromium (scripts/install_servers.sh)"
)


class Attacker:
    """The site of the page: serves it, and hears what it reports.

    Attributes:
        tried: the ways that the page has tried.
        statuses: by name of a rebound page, what the broker answered it.
    """

    def __init__(self, host: str) -> None:
        self.tried: Future[set[str]] = Future()
        self.statuses: dict[str, dict[str, Any]] = {}
        self.page = ""
        attacker = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = attacker.page.encode() if self.path == "/" else b""
                self.send_response(200 if content else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/tried":
                    attacker.tried.set_result(set(found))
                else:
                    name, statuses = found
                    attacker.statuses[name] = statuses
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer((host, 0), Answers)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def rebinding(broker_port: int, report: str) -> Iterator[None]:
    """What is at the attacker's names: first its page; from then on, the broker.

    Passing connections on stands for a name server that changes its answer: what reaches the
    broker is the same.
    """
    page = REBOUND.replace("%REPORT%", report).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"

    class Relay(StreamRequestHandler):
        def handle(self) -> None:
            began = self.request.recv(65_536)
            if began.startswith(b"GET /rebound.html "):
                self.wfile.write(head + b"Content-Length: %d\r\n\r\n" % len(page) + page)
                return
            if not began:
                return
            with socket.create_connection(("127.0.0.1", broker_port)) as broker:
                broker.sendall(began)
                back = threading.Thread(target=_copy, args=(broker, self.request))
                back.start()
                _copy(self.request, broker)
                back.join()

    ThreadingTCPServer.allow_reuse_address = True
    with ThreadingTCPServer(("127.0.0.2", broker_port), Relay) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield
        server.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Requests that the broker has refused, as `METHOD path`."""
    found: set[str] = set()

    def note(who: str, peer: str, action: str, topic: str, error: Exception) -> None:
        found.add(action)

    monkeypatch.setattr(audit, "refused", note)
    return found


def fill(site: Site) -> dict[str, int]:
    """A queue with one message for each way; how many live messages each has."""
    ways = [f"q-{name}" for name in (*TAKES, *CALLS)]
    names = [*ways, *(f"r-{name}" for name in NAMES)]
    with httpx.Client(base_url=site.http_url, timeout=PATIENCE_SECONDS) as client:
        for name in names:
            site.broker.create_topic(Topic(name))
            client.post(f"/v1/topics/{name}/messages", json={"payload": "secret"})
    return live(site)


def live(site: Site) -> dict[str, int]:
    """How many messages each topic has that nobody holds."""
    return {name: row["scheduled"] for name, row in site.broker.call("stats")["topics"].items()}


@needs_browser
@pytest.mark.parametrize("page_host", ["127.0.0.2", "localhost"])
def test_a_page_takes_loses_and_sends_nothing(
    page_host: str, refused: set[str], tmp_path: Path
) -> None:
    broker_host = "localhost" if page_host == "localhost" else "127.0.0.1"
    attacker = Attacker("127.0.0.1" if page_host == "localhost" else page_host)
    report = f"http://{page_host}:{attacker.port}/rebound"
    with running() as site, rebinding(site.http.port, report):
        rebound = [f"http://{name}:{site.http.port}/rebound.html" for name in NAMES]
        attacker.page = (
            ATTACK.replace("%BROKER%", f"http://{broker_host}:{site.http.port}")
            .replace("%FLIGHT%", f"http://{broker_host}:{site.flight.port}")
            .replace("%REBOUND%", json.dumps(rebound))
        )
        before = fill(site)
        rules = ", ".join(f"MAP {name} 127.0.0.2" for name in NAMES)
        page = f"http://{page_host}:{attacker.port}/"
        with browser.showing(page, tmp_path / "profile", f"--host-resolver-rules={rules}"):
            tried = attacker.tried.result(PATIENCE_SECONDS)
            until_ms = SystemClock().now_ms() + PATIENCE_SECONDS * 1_000
            while not refused >= EXPECTED and SystemClock().now_ms() < until_ms:
                threading.Event().wait(0.1)
        attacker.close()
        lost = sorted(name for name, count in live(site).items() if before.get(name) != count)
        assert lost == []
        assert live(site) == before
        assert not site.broker.keys.required
        assert {f"q-{name}" for name in tried} >= before.keys() - {
            "q-top",
            *map("r-{}".format, NAMES),
        }
        assert sorted(EXPECTED - refused) == [], "the browser has not sent these"
        assert attacker.statuses.keys() == set(NAMES)
        assert {s for found in attacker.statuses.values() for s in found.values()} == {403}
        assert site.broker.counting.flight_begun.read() == {}, "a browser speaks no gRPC"
        metrics = httpx.get(f"{site.http_url}/metrics", timeout=PATIENCE_SECONDS).text
        counts = re.findall(r'dejaq_http_pages_refused_total\{reason="(\w+)"\} (\d+)', metrics)
        assert sum(int(count) for _, count in counts) >= len(EXPECTED)


@needs_browser
def test_our_own_page_works_in_a_browser_without_keys(tmp_path: Path) -> None:
    with running() as site:
        document = browser.shown(f"{site.http_url}/docs", tmp_path / "profile")
        assert "Loading" not in document
        assert "/v1/topics/{topic}/lease" in document


@needs_browser
def test_a_browser_begins_no_call_of_flight_over_tls_either(tmp_path: Path) -> None:
    """There it speaks HTTP/2 as gRPC does, but cannot send `te: trailers`, without which gRPC ends
    a stream before anything of ours hears of it."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    certificate, key = tmp_path / "broker.pem", tmp_path / "broker.key"
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(certificate), append=True)
    issued.private_key_pem.write_to_path(str(key))
    settings = ServerSettings(tls_certificate=str(certificate), tls_key=str(key))
    with running(load_tls(settings)) as site:
        url = f"https://localhost:{site.flight.port}/arrow.flight.protocol.FlightService/DoAction"
        ways = [
            {"method": "POST", "mode": "no-cors", "body": "\0\0\0\0\x07\n\x05clock"},
            {"method": "POST", "headers": {"Content-Type": "application/grpc", "TE": "trailers"}},
            {"mode": "no-cors"},
        ]
        page = tmp_path / "page.html"
        page.write_text(
            f"<script>Promise.allSettled({json.dumps(ways)}.map((way) => fetch({json.dumps(url)}, "
            "way))).then((all) => { document.title = all.map((one) => one.status) })</script>"
        )
        found = browser.shown(page.as_uri(), tmp_path / "profile", "--ignore-certificate-errors")
        assert "<title>rejected,rejected,rejected</title>" in found
        begun = site.broker.counting.flight_begun
        assert begun.read() == {}
        pem = authority.cert_pem.bytes()
        with flight.FlightClient(
            f"grpc+tls://localhost:{site.flight.port}", tls_root_certs=pem
        ) as ours:
            list(ours.do_action(flight.Action("clock", b"{}")))
        assert begun.read() == {("do_action",): 1}, "what is counted"
