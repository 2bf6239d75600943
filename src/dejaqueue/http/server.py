"""The HTTP server: one thread with an event loop of its own, beside the broker's threads.

Room: http. uvicorn; decides nothing about messages.
Holds: the port is bound when the server is built; `stop` gives it back; twice is fine.
"""

from __future__ import annotations

import socket
import threading

import uvicorn

from dejaqueue.access.tls import ServerTls
from dejaqueue.http.app import build_app
from dejaqueue.http.service import Service

STOP_SECONDS_MAX = 5
"""Requests that are being answered have this long when the server stops."""


class HttpServer:
    """Serves a broker over HTTP between `start` and `stop`.

    Attributes:
        port: where it listens; chosen by the system if 0 was asked for.
    """

    def __init__(
        self, service: Service, host: str, port: int, tls: ServerTls | None = None
    ) -> None:
        """Bind the port.

        Args:
            tls: None = in plain text.

        Raises:
            OSError: the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=2_048)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            build_app(service),
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_SECONDS_MAX,
        )
        if tls is not None:
            config.load()
            config.ssl = tls.context
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="dejaq-http", daemon=True)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def start(self) -> None:
        """Begin to answer; connections that come before are kept by the system."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is being answered, then give the port back. Twice is fine."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
