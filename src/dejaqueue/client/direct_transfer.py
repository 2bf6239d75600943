"""Parts of a streamed payload that go between a client and the object store, past the broker.

The broker signs URLs, some parts ahead; each can be used for its one part alone. Whatever goes
wrong here, the part goes through the broker instead: nobody needs to reach the store.

Room: client. Blocks on threads of its own; knows HTTP as the standard library speaks it.
Holds: what is read is what the list of parts says, or an error; a connection is used by one thread
at a time; nothing goes in the clear for a client whose connection to its broker is encrypted.
See: streamed.py, which falls back; broker/payloads/signed_parts.py; docs/adr/0110.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from dejaqueue.client.call_threads import CallThreads
from dejaqueue.client.replies import CLOCK
from dejaqueue.errors import BadRequest, JournalDamaged, Unavailable
from dejaqueue.schema.payload_parts import PartList

AT_ONCE: Final = 8
"""Parts on their way. Each is a MiB of memory, and a store answers after some tens of
milliseconds."""
SIGNED_AT_ONCE: Final = 64
"""Parts that are signed in one call, or as many as went before: they count as sent when they are
signed, and an upload may end with the next one."""
STALE_US: Final = 600_000_000
"""URLs that were signed longer ago are not used: a program may have stopped in between."""
CONNECT_SECONDS_MAX: Final = 2.0
"""A store in a network that this program does not reach often does not even refuse."""
ANSWER_SECONDS_MAX: Final = 10.0
_DONE: Final = (200, 201)

Sign = Callable[[int, int], dict[str, Any]]
"""Asks the broker for the parts from one index to before another; its answer."""


class _SignedBatch(NamedTuple):
    """URLs of parts that follow each other."""

    first: int
    urls: list[str]
    headers: dict[str, str]
    signed_us: int


class DirectTransfer:
    """The parts of one payload.

    Args:
        sign: may raise any error of a call.
        count_max: there are no more parts.
        is_secret: whether only URLs with TLS may be used.
    """

    def __init__(self, sign: Sign, count_max: int, *, is_secret: bool) -> None:
        self._sign, self._count_max, self._is_secret = sign, count_max, is_secret
        self._signed: _SignedBatch | None = None
        self._threads = CallThreads(AT_ONCE)
        self._mutex = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._in_use: set[HTTPConnection] = set()
        self._closed = False
        self._context: ssl.SSLContext | None = None

    def put(self, index: int, content: bytes | bytearray) -> Future[None]:
        """Store a part; signing may raise here, what the store does is in the future."""
        url, headers = self._place_of(index)
        return self._threads.submit(lambda: self._put(url, headers, content))

    def get(self, index: int, parts: PartList) -> Future[bytes]:
        """A part that is what the list says; raises as `put`, with JournalDamaged for another."""
        url, headers = self._place_of(index)
        return self._threads.submit(lambda: self._get(url, headers, index, parts))

    def signed_list(self) -> PartList:
        """Ask for the first URLs to read from: the list of parts comes with them. Any error of a
        call."""
        answer = self._ask(0)
        digests = base64.b64decode(answer["digests"])
        return PartList(int(answer["bytes"]), int(answer["part_bytes"]), digests)

    def close(self) -> None:
        """Break off what is on its way. Twice is fine."""
        with self._mutex:
            self._closed = True
            connections = [*self._idle, *self._in_use]
            self._idle.clear()
        for connection in connections:
            with suppress(OSError, AttributeError):  # it may have none any more
                connection.sock.shutdown(socket.SHUT_RDWR)
        self._threads.close()  # whoever used one has closed it
        for connection in connections:
            connection.close()

    # --- URLs ---------------------------------------------------------------------------------

    def _ask(self, first: int) -> dict[str, Any]:
        now_us = CLOCK.now_us()
        count = min(max(first, AT_ONCE), SIGNED_AT_ONCE)
        answer = self._sign(first, min(first + count, self._count_max))
        self._signed = _SignedBatch(first, answer["urls"], answer["headers"], now_us)
        return answer

    def _place_of(self, index: int) -> tuple[SplitResult, Mapping[str, str]]:
        signed = self._signed
        if (
            signed is None
            or not 0 <= index - signed.first < len(signed.urls)
            or CLOCK.now_us() - signed.signed_us > STALE_US
        ):
            self._ask(index)
            signed = self._signed
            assert signed is not None, "it was asked for a moment ago"
        url = urlsplit(signed.urls[index - signed.first])
        if url.scheme not in ("https",) if self._is_secret else url.scheme not in ("http", "https"):
            raise BadRequest("url", "https, as the connection to the broker is", url.scheme)
        return url, signed.headers

    # --- requests, on threads -----------------------------------------------------------------

    def _put(
        self, url: SplitResult, headers: Mapping[str, str], content: bytes | bytearray
    ) -> None:
        self._asked(url, "PUT", headers, content, -1)

    def _get(
        self, url: SplitResult, headers: Mapping[str, str], index: int, parts: PartList
    ) -> bytes:
        content = self._asked(url, "GET", headers, None, parts.size_of(index))
        if hashlib.sha256(content).digest() != parts.digest_of(index):
            raise JournalDamaged(f"part {index} of a payload is not what was sent")
        return content

    def _asked(
        self,
        url: SplitResult,
        method: str,
        headers: Mapping[str, str],
        content: bytes | bytearray | None,
        byte_count: int,
    ) -> bytes:
        """One request; what it answers, which has so many bytes, or with -1 is of no interest."""
        while True:
            connection, is_fresh = self._connection(url)
            try:
                answer = self._answer(connection, url, method, headers, content, byte_count)
            except (OSError, HTTPException) as wrong:
                self._let_go(connection)
                if is_fresh or self._closed:
                    text = f"{method} at the payload store at {url.netloc} failed: {wrong!r}"
                    raise Unavailable(text) from wrong
                continue  # the store may have closed it while it was idle
            except BaseException:
                self._let_go(connection)
                raise
            return answer

    def _answer(
        self,
        connection: HTTPConnection,
        url: SplitResult,
        method: str,
        headers: Mapping[str, str],
        content: bytes | bytearray | None,
        byte_count: int,
    ) -> bytes:
        target = f"{url.path}?{url.query}"
        connection.request(method, target, body=content, headers=dict(headers))
        # Of a connection that the store ends, the answer alone has the socket.
        with connection.getresponse() as answer:
            if answer.status not in _DONE or (byte_count >= 0 and answer.length != byte_count):
                text = f"{method} at the payload store at {url.netloc}: status {answer.status}"
                raise Unavailable(f"{text}, {answer.length} bytes")
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
