"""The way to an object store, request by request: slow, refused, cut in the middle, or gone.

Requests are passed on as they came, so that their signatures hold. What goes wrong is drawn for
each of them, of one bucket; and a process can be killed at the n-th, before the store has it, in
the middle of it, or when the store has it and nobody was told.
"""

from __future__ import annotations

import http.client
import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLOW_SECONDS = 0.05
BUSY = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_NOT_PASSED_ON = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length"})


class Trouble(Enum):
    """What is wrong with the way to the store."""

    NONE = "nothing"
    SLOW = "each request takes long"
    BUSY = "some are answered 503"
    LOST = "some answers are lost"
    HALF = "some uploads end in the middle"
    AWAY = "nothing is answered at all"


class Moment(Enum):
    """When a process is killed."""

    BEFORE = "before the store has the request"
    HALF = "in the middle of the upload"
    AFTER = "when the store has it, and nobody was told"


@dataclass
class Strike:
    """What is done at a request.

    Attributes:
        left: so many of its kind come before.
    """

    left: int
    methods: tuple[str, ...]
    moment: Moment
    act: Callable[[], None]


class StoreProxy:
    """Passes requests on to a store on this machine.

    Args:
        port: the store's.

    Attributes:
        trouble: what goes wrong with requests for `bucket`.
        share: of how many of them, from 0 to 1.
        bucket: its name; "" = of all.
        requests: how many came for it.
    """

    def __init__(self, port: int) -> None:
        self._store_port = port
        self.draw = random.Random(0)
        self.trouble, self.share, self.bucket, self.requests = Trouble.NONE, 0.5, "", 0
        self._strike: Strike | None = None
        self._guard = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reset(self, seed: int) -> None:
        """Pass everything on; draw anew."""
        with self._guard:
            self.draw = random.Random(seed)
            self.trouble, self.share, self.bucket, self.requests = Trouble.NONE, 0.5, "", 0
            self._strike = None

    def strike(
        self, after: int, methods: tuple[str, ...], moment: Moment, act: Callable[[], None]
    ) -> None:
        """Do something at the request behind so many, from now on; once."""
        with self._guard:
            self._strike = Strike(after, methods, moment, act)

    def spare(self) -> bool:
        """Do it no more; True if it was not done."""
        with self._guard:
            strike, self._strike = self._strike, None
            return strike is not None

    # --- of the handlers ----------------------------------------------------------------------

    def fate(self, method: str, path: str) -> tuple[Trouble, Strike | None]:
        """What becomes of a request."""
        name = path.lstrip("/").partition("?")[0].partition("/")[0]
        with self._guard:
            if self.bucket and name != self.bucket:
                return Trouble.NONE, None
            self.requests += 1
            strike = self._strike
            if strike is not None and method in strike.methods:
                strike.left -= 1
                if strike.left < 0:
                    self._strike = None
                    return Trouble.NONE, strike
            if self.trouble in (Trouble.AWAY, Trouble.SLOW):
                return self.trouble, None
            return (self.trouble if self.draw.random() < self.share else Trouble.NONE), None

    def ask(
        self, handler: BaseHTTPRequestHandler, body: bytes, sent: int | None = None
    ) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """Ask the store.

        Args:
            sent: so many bytes of the body, and the connection ends; None = all of it.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._store_port, timeout=30)
        try:
            connection.putrequest(
                handler.command, handler.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in handler.headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            if sent is not None:
                connection.send(body[:sent])
                return None
            if body:
                connection.send(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Whoever was killed has its connections reset."""


class _Handler(BaseHTTPRequestHandler):
    owner: StoreProxy
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        trouble, strike = self.owner.fate(self.command, self.path)
        try:
            if strike is not None:
                self._struck(strike, body)
            elif trouble is Trouble.AWAY:
                self._end()
            elif trouble is Trouble.BUSY:
                self._answer(503, [("Content-Type", "application/xml")], BUSY)
            elif trouble is Trouble.HALF and self.command == "PUT" and body:
                self.owner.ask(self, body, len(body) // 2)
                self._end()
            else:
                if trouble is Trouble.SLOW:
                    threading.Event().wait(SLOW_SECONDS)
                found = self.owner.ask(self, body)
                if trouble is Trouble.LOST or found is None:
                    self._end()
                else:
                    self._answer(*found)
        except (OSError, http.client.HTTPException):
            self._end()

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass  # noqa: N815 - the library's names

    def _struck(self, strike: Strike, body: bytes) -> None:
        if strike.moment is Moment.HALF and body:
            self.owner.ask(self, body, len(body) // 2)
        elif strike.moment is Moment.AFTER:
            self.owner.ask(self, body)
        strike.act()
        self._end()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        for name, value in headers:
            if name.lower() not in _NOT_PASSED_ON:
                self.send_header(name, value)
        length = lengths[0] if self.command == "HEAD" and lengths else str(len(body))
        if status not in (204, 304):
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _end(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
