"""Requests to an object store by URLs that are signed, on connections that are kept.

Room: client. Blocks; several threads may ask at once. Knows HTTP as the standard library speaks it.
Holds: a connection is used by one thread at a time.
See: direct_transfer.py.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import SplitResult

from dejaqueue.errors import Unavailable

CONNECT_SECONDS_MAX: Final = 2.0
"""A store in a network that this program does not reach often does not even refuse."""
ANSWER_SECONDS_MAX: Final = 10.0
_DONE: Final = (200, 201)


class _Request(NamedTuple):
    """One request.

    Attributes:
        byte_count: how many bytes its answer must have; -1 = they are of no interest.
    """

    method: str
    url: SplitResult
    headers: Mapping[str, str]
    content: bytes | bytearray | None
    byte_count: int

    def __str__(self) -> str:
        return f"{self.method} at the payload store at {self.url.netloc}"


class StoreConnections:
    """Connections to one store, made as they are needed."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._in_use: set[HTTPConnection] = set()
        self._closed = False
        self._context: ssl.SSLContext | None = None

    def put(self, url: SplitResult, headers: Mapping[str, str], content: bytes | bytearray) -> None:
        """Store these bytes. Raises Unavailable."""
        self._ask(_Request("PUT", url, headers, content, -1))

    def get(self, url: SplitResult, headers: Mapping[str, str], byte_count: int) -> bytes:
        """The bytes that are there, so many. Raises Unavailable."""
        return self._ask(_Request("GET", url, headers, None, byte_count))

    def break_off(self) -> None:
        """End what is on its way, and begin nothing more. Twice is fine."""
        with self._mutex:
            self._closed = True
            connections = [*self._idle, *self._in_use]
        for connection in connections:
            with suppress(OSError, AttributeError):  # it may have none any more
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all; nobody asks any more."""
        with self._mutex:
            connections = [*self._idle, *self._in_use]
            self._idle.clear()
            self._in_use.clear()
        for connection in connections:
            connection.close()

    def _ask(self, request: _Request) -> bytes:
        while True:
            connection, is_fresh = self._connection(request.url)
            try:
                return self._answer(connection, request)
            except (OSError, HTTPException) as wrong:
                self._let_go(connection)
                if is_fresh or self._closed:
                    raise Unavailable(f"{request} failed: {wrong!r}") from wrong
                # Else the store may have closed it while it was idle.
            except BaseException:
                self._let_go(connection)
                raise

    def _answer(self, connection: HTTPConnection, request: _Request) -> bytes:
        target = f"{request.url.path}?{request.url.query}"
        connection.request(
            request.method, target, body=request.content, headers=dict(request.headers)
        )
        # Of a connection that the store ends, the answer alone has the socket.
        with connection.getresponse() as answer:
            is_wanted = request.byte_count in (-1, answer.length)
            if answer.status not in _DONE or not is_wanted:
                raise Unavailable(f"{request}: status {answer.status}, {answer.length} bytes")
            body = answer.read()
        with self._mutex:
            is_kept = not (answer.will_close or self._closed)
            if is_kept:
                self._in_use.discard(connection)
                self._idle.append(connection)
        if not is_kept:
            self._let_go(connection)
        return body

    def _connection(self, url: SplitResult) -> tuple[HTTPConnection, bool]:
        """One for this thread alone, and whether it is new."""
        with self._mutex:
            if self._idle:  # all URLs of a store are at one place
                connection = self._idle.pop()
                self._in_use.add(connection)
                return connection, False
        connection = self._new(url)
        try:
            connection.connect()
        except OSError as wrong:
            connection.close()
            text = f"the payload store at {url.netloc} is not reached from here: {wrong!r}"
            raise Unavailable(text) from wrong
        connection.sock.settimeout(ANSWER_SECONDS_MAX)
        if not self._is_used(connection):
            connection.close()
            raise Unavailable("the transfer was closed")
        return connection, True

    def _is_used(self, connection: HTTPConnection) -> bool:
        """Have it broken off when the transfer is; False = it was."""
        with self._mutex:
            if not self._closed:
                self._in_use.add(connection)
            return not self._closed

    def _new(self, url: SplitResult) -> HTTPConnection:
        if url.scheme == "http":
            return HTTPConnection(url.netloc, timeout=CONNECT_SECONDS_MAX)
        with self._mutex:
            if self._context is None:
                self._context = ssl.create_default_context()
        return HTTPSConnection(url.netloc, timeout=CONNECT_SECONDS_MAX, context=self._context)

    def _let_go(self, connection: HTTPConnection) -> None:
        with self._mutex:
            self._in_use.discard(connection)
        connection.close()
