"""Payloads that are streamed, as a client sends and reads them: part by part, a few ahead.

Room: client. Blocks; the asynchronous client calls it on other threads.
Holds: at most WINDOW parts are held on their way up, and AHEAD + 1 on their way down; each part
that is read is compared with the list of parts, and the list with the voucher, so that what is read
is what was sent, to its end, or an error; each part that is sent is compared by the broker with the
hash that was made here.
See: _aio/payload.py, what a program has; schema/vouchers.py; docs/wire.md, "Streamed payloads".
"""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, TypeVar

from dejaqueue import limits
from dejaqueue.client.link import backoff_ms
from dejaqueue.client.transport import Transport
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import BadRequest, TryLater
from dejaqueue.schema.payload_parts import LIST_INDEX, PartList, check_part, decode_part_list
from dejaqueue.schema.vouchers import parse_voucher

WINDOW: Final = 3
"""Parts that are on their way up at the same time; a fourth call may go beside them."""
AHEAD: Final = 2
"""Parts that are asked for and not read yet. Of more of them, or of several in one call, the rate
is the same and the memory is not."""
OnProgress: TypeAlias = Callable[[int], None]
"""Called with how many bytes more were sent or read."""
Answer = TypeVar("Answer")


class ReadableFile(Protocol):
    """A file, as far as it is needed here."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; b"" = the end."""
        ...


Source: TypeAlias = ReadableFile | Iterable[bytes]


def is_source(payload: object) -> TypeGuard[Source]:
    """Whether a payload is given as a file, or as an iterator of pieces."""
    if type(payload) is bytes or type(payload) is str or payload is None:
        return False
    return callable(getattr(payload, "read", None)) or isinstance(payload, Iterator)


class PartCalls:
    """Calls that may be repeated, several on their way, answered in their order.

    Args:
        retry_ms_max: how long a call is tried again that finds nobody.
    """

    def __init__(self, transport: Transport, clock: Clock, retry_ms_max: int) -> None:
        self.transport, self._clock, self._retry_ms_max = transport, clock, retry_ms_max

    def answer(self, call: Callable[[], Future[Answer]], begun: Future[Answer]) -> Answer:
        """What a call answers; one that may be tried later is."""
        until_us = self._clock.now_us() + self._retry_ms_max * 1_000
        failures = 0
        while True:
            try:
                return begun.result()
            except TryLater as busy:
                now_us = self._clock.now_us()
                pause_us = max(int(backoff_ms(failures)), busy.retry_after_ms) * 1_000
                failures += 1
                if now_us + pause_us > until_us:
                    raise
                self._clock.wait_until(now_us + pause_us, Wake())
                begun = call()

    def act(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call, and its answer."""

        def call() -> Future[dict[str, Any]]:
            return self.transport.action(name, body)

        return self.answer(call, call())


class Upload:
    """A payload on its way to the broker.

    Args:
        on_progress: called on the thread that writes.
    """

    def __init__(
        self, part_calls: PartCalls, topic: str, on_progress: OnProgress = lambda _: None
    ) -> None:
        self._exchange, self._topic, self._on_progress = part_calls, topic, on_progress
        self._held = bytearray()
        self._upload = ""
        self._digests: list[bytes] = []
        self._byte_count = 0
        self._sent: deque[tuple[Callable[[], Future[dict[str, Any]]], Future[Any], int]] = deque()

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Send more of it; waits while WINDOW parts are on their way. Raises BadRequest,
        Unavailable, ResourceExhausted."""
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise BadRequest("payload", "pieces of bytes", type(piece).__name__)
        if type(piece) is bytes and len(piece) == limits.PART_BYTES and not self._held:
            self._send(piece)  # what cannot change is sent from where it is
            return
        view = memoryview(piece)
        while view:
            room = limits.PART_BYTES - len(self._held)
            self._held += view[:room]
            view = view[room:]
            if len(self._held) == limits.PART_BYTES:
                self._send_held()

    def _send_held(self) -> None:
        content, self._held = self._held, bytearray()
        self._send(content)

    def _send(self, content: bytes | bytearray) -> None:
        if not self._upload:
            begun = self._exchange.act("begin_payload", {"topic": self._topic})
            self._upload = str(begun["upload"])
        digest = hashlib.sha256(content).digest()
        body = {
            "topic": self._topic,
            "upload": self._upload,
            "index": len(self._digests),
            "digest": base64.b64encode(digest).decode(),
            "content": content,
        }

        def call() -> Future[dict[str, Any]]:
            return self._exchange.transport.action("put_payload_part", body)

        while len(self._sent) >= WINDOW:
            self._next()
        self._sent.append((call, call(), len(content)))
        self._digests.append(digest)
        self._byte_count += len(content)

    def _next(self) -> None:
        call, begun, byte_count = self._sent.popleft()
        self._exchange.answer(call, begun)
        self._on_progress(byte_count)

    def finish(self) -> bytes:
        """End it: what is to be sent as the payload, its voucher; or, of a small one, itself."""
        if not self._upload and len(self._held) <= limits.UNSTREAMED_BYTES_MAX:
            self._on_progress(len(self._held))
            return bytes(self._held)
        if self._held:
            self._send_held()
        while self._sent:
            self._next()
        body = {
            "topic": self._topic,
            "upload": self._upload,
            "bytes": self._byte_count,
            "digests": base64.b64encode(b"".join(self._digests)).decode(),
        }
        ended = self._exchange.act("end_payload", body)
        voucher = base64.b64decode(ended["voucher"])
        expected = PartList(self._byte_count, limits.PART_BYTES, b"".join(self._digests)).digest
        if parse_voucher(voucher).digest != expected:
            raise BadRequest("voucher", "of what was sent", "another one")
        return voucher


def upload_all(
    part_calls: PartCalls, topic: str, source: Source, on_progress: OnProgress = lambda _: None
) -> bytes:
    """Send all of a source; what is to be sent as the payload. Raises as Upload.write."""
    upload = Upload(part_calls, topic, on_progress)
    read = getattr(source, "read", None)
    if callable(read):
        while piece := read(limits.PART_BYTES):
            upload.write(piece)
    else:
        for piece in source:  # type: ignore[union-attr]  # it is no file
            upload.write(piece)
    return upload.finish()


class Download:
    """A streamed payload on its way from the broker; read once, from its beginning.

    Args:
        voucher: as it was delivered.
    """

    def __init__(self, part_calls: PartCalls, voucher: bytes) -> None:
        self._exchange = part_calls
        parsed = parse_voucher(voucher, field="payload")
        self.byte_count = parsed.byte_count
        self._digest = parsed.digest
        self._asked = {"op": "payload", "topic": parsed.topic}
        self._asked["voucher"] = base64.b64encode(voucher).decode()
        self._parts: PartList | None = None
        self._next_index = self._given = 0
        self._begun: deque[tuple[Callable[[], Future[Any]], Future[Any]]] = deque()

    def _begin(self, index: int) -> None:
        ticket = {**self._asked, "first": index, "end": index + 1}

        def call() -> Future[Any]:
            return self._exchange.transport.rows(ticket)

        self._begun.append((call, call()))

    def _begin_ahead(self, count: int) -> None:
        while self._next_index < count and len(self._begun) < AHEAD:
            self._begin(self._next_index)
            self._next_index += 1

    def _take(self) -> bytes:
        table = self._exchange.answer(*self._begun.popleft())
        content: bytes = table.column("content")[0].as_py()
        return content

    def _list(self) -> PartList:
        if self._parts is None:
            self._begin(LIST_INDEX)
            self._parts = decode_part_list(self._take(), self._digest)
        return self._parts

    def next_part(self) -> bytes:
        """The next part; b"" = that was all.

        Raises:
            JournalDamaged: it is not what was sent. BadRequest: it is not there any more.
                Unavailable.
        """
        parts = self._list()
        self._begin_ahead(parts.count)
        if not self._begun:
            return b""
        content = self._take()
        self._begin_ahead(parts.count)
        check_part(parts, self._given, content)
        self._given += 1
        return content
