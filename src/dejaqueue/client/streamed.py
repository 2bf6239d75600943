"""Payloads that are streamed, as a client sends and reads them: part by part, a few ahead.

A large one goes between this program and the object store directly, where the broker signs URLs for
that and the store is reached from here; each part for which that fails goes through the broker.

Room: client. Blocks; the asynchronous client calls it on other threads.
Holds: at most WINDOW parts are held on their way up, and AHEAD + 1 on their way down, or AT_ONCE
that go directly; each part that is read is compared with the list of parts, and the list with the
voucher, so that what is read is what was sent, to its end, or an error; each part that is sent
through the broker is compared there with the hash that was made here.
See: direct_transfer.py; _aio/payload.py, what a program has; docs/wire.md, "Streamed payloads".
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeGuard, TypeVar

from dejaqueue import limits
from dejaqueue.client.direct_transfer import AT_ONCE, DirectTransfer
from dejaqueue.client.link import backoff_ms
from dejaqueue.client.transport import Transport
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import BadRequest, DejaQError, JournalDamaged, TryLater
from dejaqueue.schema.payload_parts import (
    LIST_INDEX,
    PartList,
    check_part,
    decode_part_list,
    part_count,
)
from dejaqueue.schema.vouchers import parse_voucher

log = logging.getLogger("dejaqueue.client")

WINDOW: Final = 3
"""Parts that are on their way up at the same time; a fourth call may go beside them."""
AHEAD: Final = 2
"""Parts that are asked for and not read yet. Of more of them, or of several in one call, the rate
is the same and the memory is not."""
DIRECT_FROM: Final = 8
"""Parts before this one go through the broker: for so few a connection of its own does not pay."""
DIRECT_AGAIN_US: Final = 60_000_000
"""After a part could not go directly, so long none does."""
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
        where: the broker's URL.
    """

    def __init__(
        self, transport: Transport, clock: Clock, retry_ms_max: int, where: str = ""
    ) -> None:
        self.transport, self._clock, self._retry_ms_max = transport, clock, retry_ms_max
        self._is_secret = where.startswith("dejaqs:")
        self._direct_from_us = 0

    # --- past the broker ------------------------------------------------------------------------

    def direct(self, name: str, body: dict[str, Any], count_max: int) -> DirectTransfer | None:
        """What parts may go by directly; None = none do for now.

        Args:
            name, body: the call that signs URLs of parts.
        """
        if not self.is_direct:
            return None

        def sign(first: int, end: int) -> dict[str, Any]:
            asked = {**body, "first": first, "end": end}
            return self.transport.action(name, asked, repeats=True).result()

        return DirectTransfer(sign, count_max, is_secret=self._is_secret)

    @property
    def is_direct(self) -> bool:
        """Whether to try it."""
        return self._clock.now_us() >= self._direct_from_us

    def leave_direct(self, wrong: DejaQError) -> None:
        """It failed: have parts go through the broker for a time."""
        if self.is_direct:
            log.info("streamed payloads go through the broker for now: %s", wrong)
        self._direct_from_us = self._clock.now_us() + DIRECT_AGAIN_US

    # --- through the broker ---------------------------------------------------------------------

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


class _SentPart(NamedTuple):
    """A part on its way up.

    Attributes:
        call: sends it through the broker.
        begun: the answer to that; None = it was not called.
        stored: what the object store says; None = it was not asked.
    """

    call: Callable[[], Future[dict[str, Any]]]
    begun: Future[dict[str, Any]] | None
    stored: Future[None] | None
    byte_count: int


class Upload:
    """A payload on its way to the broker.

    Args:
        on_progress: called on the thread that writes.
        once: its voucher is sent in one message, so that no other one needs these parts.
    """

    def __init__(
        self,
        part_calls: PartCalls,
        topic: str,
        on_progress: OnProgress = lambda _: None,
        *,
        once: bool = False,
    ) -> None:
        self._exchange, self._topic, self._on_progress = part_calls, topic, on_progress
        self._once = once
        self._held = bytearray()
        self._upload = ""
        self._digests: list[bytes] = []
        self._byte_count = 0
        self._sent: deque[_SentPart] = deque()
        self._direct: DirectTransfer | None = None

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
            self._begin()
        index, digest = len(self._digests), hashlib.sha256(content).digest()
        body = {
            "topic": self._topic,
            "upload": self._upload,
            "index": index,
            "digest": base64.b64encode(digest).decode(),
            "content": content,
        }

        def call() -> Future[dict[str, Any]]:
            return self._exchange.transport.action("put_payload_part", body)

        is_direct = index >= DIRECT_FROM and self._direct is not None and self._exchange.is_direct
        while len(self._sent) >= (AT_ONCE if is_direct else WINDOW):
            self._next()
        stored = self._put(index, content) if is_direct else None
        begun = call() if stored is None else None
        self._sent.append(_SentPart(call, begun, stored, len(content)))
        self._digests.append(digest)
        self._byte_count += len(content)

    def _begin(self) -> None:
        asked = {"topic": self._topic} | ({"once": True} if self._once else {})
        begun = self._exchange.act("begin_payload", asked)
        self._upload = str(begun["upload"])
        if begun.get("direct"):
            body = {"topic": self._topic, "upload": self._upload}
            count_max = part_count(limits.STREAMED_BYTES_MAX)
            self._direct = self._exchange.direct("sign_upload", body, count_max)

    def _put(self, index: int, content: bytes | bytearray) -> Future[None] | None:
        """Have a part go directly; None = it cannot."""
        assert self._direct is not None, "it was begun"
        try:
            return self._direct.put(index, content)
        except DejaQError as wrong:
            self._exchange.leave_direct(wrong)
            return None

    def _next(self) -> None:
        sent = self._sent.popleft()
        begun = sent.begun
        if sent.stored is not None:
            try:
                sent.stored.result()
            except DejaQError as wrong:
                self._exchange.leave_direct(wrong)
                begun = sent.call()
        if begun is not None:
            self._exchange.answer(sent.call, begun)
        self._on_progress(sent.byte_count)

    def close(self) -> None:
        """Send no more of it. Twice is fine."""
        if self._direct is not None:
            self._direct.close()

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
    part_calls: PartCalls,
    topic: str,
    source: Source,
    on_progress: OnProgress = lambda _: None,
    *,
    once: bool = False,
) -> bytes:
    """Send all of a source; what is to be sent as the payload. Arguments and errors as Upload."""
    upload = Upload(part_calls, topic, on_progress, once=once)
    read = getattr(source, "read", None)
    try:
        if callable(read):
            while piece := read(limits.PART_BYTES):
                upload.write(piece)
        else:
            for piece in source:  # type: ignore[union-attr]  # it is no file
                upload.write(piece)
        return upload.finish()
    finally:
        upload.close()


class _AskedPart(NamedTuple):
    """A part on its way down; as _SentPart."""

    call: Callable[[], Future[Any]]
    begun: Future[Any] | None
    read: Future[bytes] | None


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
        self._begun: deque[_AskedPart] = deque()
        self._direct: DirectTransfer | None = None
        count = part_count(self.byte_count)
        if count > DIRECT_FROM:
            body = {key: value for key, value in self._asked.items() if key != "op"}
            self._direct = part_calls.direct("sign_payload", body, count)

    def _begin(self, index: int) -> None:
        ticket = {**self._asked, "first": index, "end": index + 1}

        def call() -> Future[Any]:
            return self._exchange.transport.rows(ticket)

        read = self._get(index)
        self._begun.append(_AskedPart(call, call() if read is None else None, read))

    def _get(self, index: int) -> Future[bytes] | None:
        """Have a part come directly; None = it cannot."""
        if self._direct is None or self._parts is None or not self._exchange.is_direct:
            return None
        try:
            return self._direct.get(index, self._parts)
        except DejaQError as wrong:
            self._exchange.leave_direct(wrong)
            return None

    def _begin_ahead(self, count: int) -> None:
        while self._next_index < count and len(self._begun) < self._ahead:
            self._begin(self._next_index)
            self._next_index += 1

    @property
    def _ahead(self) -> int:
        return AHEAD if self._direct is None or not self._exchange.is_direct else AT_ONCE

    def _take(self) -> bytes:
        asked = self._begun.popleft()
        begun = asked.begun
        if asked.read is not None:
            try:
                return asked.read.result()
            except DejaQError as wrong:
                # Also another part than it should be: who knows what answers at that address.
                self._exchange.leave_direct(wrong)
        table = self._exchange.answer(asked.call, begun or asked.call())
        content: bytes = table.column("content")[0].as_py()
        if self._parts is not None:
            check_part(self._parts, self._given, content)
        return content

    def _list(self) -> PartList:
        if self._parts is None:
            self._parts = self._direct_list()
        if self._parts is None:
            self._begin(LIST_INDEX)
            self._parts = decode_part_list(self._take(), self._digest)
        return self._parts

    def _direct_list(self) -> PartList | None:
        """The list as it comes with the first URLs; None = there are none."""
        if self._direct is None:
            return None
        try:
            parts = self._direct.signed_list()
        except DejaQError as wrong:
            self._exchange.leave_direct(wrong)
            return None
        if parts.digest != self._digest:
            raise JournalDamaged("the list of a payload's parts is not what was stored")
        return parts

    def next_part(self) -> bytes:
        """The next part; b"" = that was all.

        Raises:
            JournalDamaged: it is not what was sent. BadRequest: it is not there any more.
                Unavailable.
        """
        parts = self._list()
        self._begin_ahead(parts.count)
        if not self._begun:
            self.close()
            return b""
        content = self._take()
        self._given += 1
        self._begin_ahead(parts.count)
        return content

    def close(self) -> None:
        """Ask for no more of it. Twice is fine."""
        if self._direct is not None:
            self._direct.close()
