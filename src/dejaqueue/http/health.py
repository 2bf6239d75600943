"""The health server: /livez, /readyz and /stats, for probes and for curl.

Room: http. Standard library alone; knows the broker through two functions.
Holds: answers on threads of its own, so that a slow reader holds up nobody; a connection that says
nothing is closed after REQUEST_SECONDS_MAX.

    GET /livez   200 while this process answers at all
    GET /readyz  200 when the broker takes calls, 503 while it starts or stops
    GET /stats   200 and what `dejaq stats --json` prints
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dejaqueue.access import rules
from dejaqueue.access.gate import Gate, only_bearer_of
from dejaqueue.access.pages import Pages
from dejaqueue.access.roles import EVERYBODY
from dejaqueue.access.tls import ServerTls
from dejaqueue.errors import DejaQError, to_fields

log = logging.getLogger("dejaqueue.http")

REQUEST_SECONDS_MAX = 5.0
"""A probe says what it wants at once; what stays silent this long is not one."""


class HealthServer:
    """Serves health over HTTP between `start` and `stop`.

    Attributes:
        port: where it listens; chosen by the system if 0 was asked for.
    """

    def __init__(
        self,
        host: str,
        port: int,
        is_ready: Callable[[], bool],
        stats: Callable[[], dict[str, Any]],
        gate: Gate | None = None,
        tls: ServerTls | None = None,
        pages: Pages | None = None,
    ) -> None:
        """Bind the port.

        Args:
            gate: says who may see /stats; None = everybody.
            tls: None = in plain text.
            pages: tells requests of web pages; None = by loopback names and addresses alone.

        Raises:
            OSError: the address cannot be bound.
        """

        class Answers(_Answers):
            pass

        class Server(_Server):
            def get_request(self) -> tuple[Any, Any]:
                taken, address = super().get_request()
                if tls is None:
                    return taken, address
                # The handshake is made on the connection's own thread, by its first read.
                secured = tls.context.wrap_socket(
                    taken, server_side=True, do_handshake_on_connect=False
                )
                return secured, address

        Answers.is_ready = staticmethod(is_ready)
        Answers.stats = staticmethod(stats)
        Answers.gate, Answers.pages, Answers.is_secure = gate, pages or Pages(), tls is not None
        self._server = Server((host, port), Answers)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="http-health", daemon=True
        )
        self._running = False
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Begin to answer."""
        self._running = True
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and give the port back. Twice is fine."""
        if self._running:
            self._running = False
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    # tidy: allow name, because it is the name of the framework
    def handle_error(self, request: object, client_address: object) -> None:
        """A line in our log, which is bounded; the library prints a traceback of each."""
        log.warning("a request of %s broke off: %s", client_address, sys.exception())


class _Answers(BaseHTTPRequestHandler):
    is_ready: Callable[[], bool]
    stats: Callable[[], dict[str, Any]]
    gate: Gate | None
    pages: Pages
    is_secure: bool
    timeout = REQUEST_SECONDS_MAX
    server_version = "dejaq"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/livez":
            self._answer(200, {"status": "alive"})
        elif path == "/readyz":
            ready = self.is_ready()
            self._answer(200 if ready else 503, {"status": "ready" if ready else "not ready"})
        elif path == "/stats":
            try:
                if self.gate is not None:
                    bearer = only_bearer_of(self.headers.get_all("Authorization", []))
                    caller = self.gate.principal(bearer)
                    rules.require_any(caller, rules.LOOKS, "")
                    if caller is EVERYBODY:
                        headers = {name.lower(): text for name, text in self.headers.items()}
                        self.pages.check(headers, is_secure=self.is_secure, takes=False)
                self._answer(200, self.stats())
            except DejaQError as error:
                self._answer(error.http_status, to_fields(error))
        else:
            self._answer(404, {"error": "there are /livez, /readyz and /stats"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: int, values: dict[str, Any]) -> None:
        body = json.dumps(values).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Probes come every few seconds: not worth a line each."""
