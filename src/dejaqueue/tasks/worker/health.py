"""The health port of a worker: whether it lives, whether it takes tasks, and its numbers.

Room: tasks.worker. Standard library alone; answers by the supervisor's knowledge, asks nobody.
Holds: a request that says nothing for REQUEST_SECONDS_MAX is closed.

    GET /livez    200 while the supervisor answers
    GET /readyz   200 when all processes take tasks, 503 otherwise
    GET /metrics  for Prometheus
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dejaqueue.tasks.worker.metrics_page import metrics_text
from dejaqueue.tasks.worker.supervisor import Supervisor

REQUEST_SECONDS_MAX = 5.0


class WorkerHealth:
    """Serves the health of a supervisor between `start` and `stop`.

    Attributes:
        port: where it listens; chosen by the system if 0 was asked for.
    """

    def __init__(self, supervisor: Supervisor, host: str, port: int) -> None:
        """Bind the port. Raises OSError."""

        class Request(BaseHTTPRequestHandler):
            timeout = REQUEST_SECONDS_MAX

            def do_GET(self) -> None:
                status, text = _answer(supervisor, self.path)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - inherited
                """Say nothing of probes."""

        self._server = ThreadingHTTPServer((host, port), Request)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="dejaq-worker-health", daemon=True
        )

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(supervisor: Supervisor, path: str) -> tuple[int, str]:
    if path == "/livez":
        return 200, "ok\n"
    if path == "/readyz":
        return (200, "ok\n") if supervisor.is_ready else (503, "not all processes take tasks\n")
    if path == "/metrics":
        return 200, metrics_text(supervisor)
    return 404, "one of /livez, /readyz, /metrics\n"
