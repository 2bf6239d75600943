"""Parts of a streamed payload that go between a client and the object store, past the broker.

The broker signs URLs, some parts ahead; each can be used for its one part alone. Whatever goes
wrong here, the part goes through the broker instead: nobody needs to reach the store.

Room: client. Blocks on threads of its own.
Holds: what is read is what the list of parts says, or an error; nothing goes in the clear for a
client whose connection to its broker is encrypted.
See: streamed.py, which falls back; store_connections.py; broker/payloads/signed_parts.py;
docs/adr/0110.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from dejaqueue.client.call_threads import CallThreads
from dejaqueue.client.replies import CLOCK
from dejaqueue.errors import BadRequest, JournalDamaged
from dejaqueue.schema.payload_parts import PartList

AT_ONCE: Final = 8
"""Parts on their way. Each is a MiB of memory, and a store answers after some tens of
milliseconds."""
SIGNED_AT_ONCE: Final = 64
"""Parts that are signed in one call, or as many as went before: they count as sent when they are
signed, and an upload may end with the next one."""
STALE_US: Final = 600_000_000
"""URLs that were signed longer ago are not used: a program may have stopped in between."""

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
        # Here: few programs stream payloads, and the standard library's HTTP takes 10 ms to load.
        from dejaqueue.client.store_connections import StoreConnections

        self._sign, self._count_max, self._is_secret = sign, count_max, is_secret
        self._signed: _SignedBatch | None = None
        self._threads = CallThreads(AT_ONCE)
        self._connections = StoreConnections()

    def put(self, index: int, content: bytes | bytearray) -> Future[None]:
        """Store a part; signing may raise here, what the store does is in the future."""
        url, headers = self._place_of(index)
        return self._threads.submit(lambda: self._connections.put(url, headers, content))

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
        self._connections.break_off()
        self._threads.close()  # whoever used a connection has closed it
        self._connections.close()

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

    def _get(
        self, url: SplitResult, headers: Mapping[str, str], index: int, parts: PartList
    ) -> bytes:
        """On a thread."""
        content = self._connections.get(url, headers, parts.size_of(index))
        if hashlib.sha256(content).digest() != parts.digest_of(index):
            raise JournalDamaged(f"part {index} of a payload is not what was sent")
        return content
