"""The client's lane: single messages over a plain stream beside Flight; and a stream's frames.

Room: client. One connection for all topics; knows frames and sockets, not batches of Arrow.
Holds: one thread reads; whoever sends writes; a future of a broken lane ends with Unavailable;
`close` twice is fine. A broker without a lane, or whose port cannot be reached, costs one attempt a
minute.
See: docs/wire.md, "The express lane"; http/lane.py for the other side; flight_transport.py, which
asks; lane_consume.py for consumers.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from urllib.parse import urlsplit

from dejaqueue.client.credentials import Tls
from dejaqueue.client.flight_errors import as_seen
from dejaqueue.client.replies import CLOSE_SECONDS_MAX, Replies
from dejaqueue.client.row_batch import RowBatch
from dejaqueue.errors import BadRequest, DejaQError, InternalError, Unavailable
from dejaqueue.wire import lane
from dejaqueue.wire.descriptors import Address, WriteStream, encode_address
from dejaqueue.wire.frames import Reply, StreamError
from dejaqueue.wire.lane import LaneAddress

CONNECT_SECONDS_MAX = 2.0
"""To connect and to be let in: somebody waits who could send by Flight meanwhile."""
_CHUNK_BYTES = 1 << 18
_HEAD_BYTES_MAX = 1 << 16
_NUMBERS = 1 << 32


class PlainConnection:
    """A connection as it is."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, content: bytes) -> None:
        """Write all of it. By one thread at a time."""
        self._connection.sendall(content)

    def receive(self) -> bytes:
        """What came; b"" = nothing comes any more."""
        return self._connection.recv(_CHUNK_BYTES)

    def shut(self) -> None:
        """End it; whoever reads gets b""."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give it back."""
        self._connection.close()


class SecureConnection(PlainConnection):
    """The same over TLS, for one thread that reads and others that write.

    OpenSSL takes one call at a time for a connection, and a read of Python's own would keep it for
    as long as nothing comes: so the socket is read without it.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, name: str) -> None:
        super().__init__(connection)
        self._mutex = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                if not (content := super().receive()):
                    raise OSError("closed in the middle of a handshake") from None
                self._incoming.write(content)
        self._flush()

    def _flush(self) -> None:
        """Send what the handshake has to say."""
        if content := self._outgoing.read():
            super().send(content)

    def send(self, content: bytes) -> None:
        """Write all of it."""
        with self._mutex:
            self._tls.write(content)
            content = self._outgoing.read()
        super().send(content)  # without the mutex: whoever reads makes room for what is written

    def receive(self) -> bytes:
        """What came; b"" = nothing comes any more."""
        while True:
            with self._mutex:
                try:
                    return self._tls.read(_CHUNK_BYTES)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return b""
            if not (content := super().receive()):
                return b""
            with self._mutex:
                self._incoming.write(content)


def frames_of(connection: PlainConnection, held: bytes) -> Iterator[bytes]:
    """The frames that come, until nothing comes any more.

    Args:
        held: what came before.
    """
    while True:
        at, end, missing = 0, len(held), 0
        while end - at >= lane.LENGTH_BYTES:
            begin = at + lane.LENGTH_BYTES
            length = lane.length_of(held, at)
            if end - begin < length:
                missing = length - (end - begin)
                break
            at = begin + length
            yield held[begin:at]
        parts = [held[at:]] if at < end else []
        while True:  # joined once, however many pieces a long frame comes in
            if not (content := connection.receive()):
                return
            parts.append(content)
            missing -= len(content)
            if missing <= 0:
                break
        held = parts[0] if len(parts) == 1 else b"".join(parts)


def how_it_ended(read: Callable[[], None]) -> DejaQError:
    """Read all that comes on a lane; why no more does."""
    try:
        read()
    except (OSError, ValueError) as wrong:  # ValueError: closed by this side
        return Unavailable(f"the lane broke: {wrong}")
    except DejaQError as wrong:
        return wrong
    except Exception as wrong:  # noqa: BLE001 - whatever it is, the lane is over
        return InternalError(f"the lane failed with {wrong!r}")
    return Unavailable("the broker closed the lane")


class Lane(Replies):
    """An open lane for single messages.

    Args:
        rest: what came behind the answer to the upgrade.
        sent: told that something was sent that is answered.
        has_fields: as LaneAddress has it.
    """

    def __init__(
        self,
        connection: PlainConnection,
        rest: bytes,
        sent: Callable[[], None],
        *,
        has_fields: bool = True,
    ) -> None:
        super().__init__()
        self.has_fields = has_fields
        self._connection = connection
        self._held = rest
        self._sent = sent
        self._numbers = itertools.count(1)
        self.start("lane", self._read)

    @property
    def is_over(self) -> bool:
        """Nothing can be sent any more."""
        return self.closing or self.end is not None

    def send(self, address: bytes, batch: RowBatch) -> Future[Reply]:
        """Send messages; their reply, or Unavailable if the lane breaks first."""
        with self.mutex:
            number = next(self._numbers) % _NUMBERS
            reply = self.register(number)
            if reply.done() or self.closing:
                self.pending.pop(number, None)
                if not reply.done():
                    reply.set_exception(Unavailable("the lane is closed"))
                return reply
            frame = lane.encode_send(
                number,
                address,
                batch.num_rows,
                batch.content,
                has_dues=batch.has_dues,
                has_fields=batch.has_fields,
            )
            try:
                self._connection.send(frame)
            except (OSError, ValueError):
                self._connection.shut()  # the reading thread ends all that wait
        self._sent()
        return reply

    def _read(self) -> None:
        self.ended(how_it_ended(lambda: self._answer(frames_of(self._connection, self._held))))
        with self.mutex:  # nobody writes any more
            self._connection.close()

    def _answer(self, contents: Iterator[bytes]) -> None:
        for content in contents:
            frame = lane.decode_reply(content)
            if isinstance(frame, StreamError):
                raise as_seen(frame.error)
            if not isinstance(frame, Reply):
                raise InternalError(f"a lane got a {type(frame).__name__}")
            self.answer(frame)

    def close(self) -> None:
        """Wait for what is on its way, then close. Twice is fine."""
        with self.mutex:
            self.closing = True
            left = list(self.pending.values())
        for reply in left:
            with suppress(TimeoutError):
                reply.exception(CLOSE_SECONDS_MAX)
        self._connection.shut()
        self.join()

    def ended(self, error: DejaQError | None) -> None:
        """No reply comes any more."""
        self._connection.shut()  # first: a thread that cannot write holds the mutex
        super().ended(error)


class LaneChannel:
    """Single messages of one producer to one topic, on a lane with those of others."""

    def __init__(self, lane_of_all: Lane, stream: WriteStream) -> None:
        self._lane = lane_of_all
        self._names = encode_address(Address(stream.topic, stream.producer))[lane.LENGTH_BYTES :]
        self._on_way: set[Future[Reply]] = set()

    def send(self, number: int, batch: RowBatch) -> Future[Reply]:
        """Send messages; their reply, or Unavailable if the lane breaks first (outcome unknown)."""
        reply = self._lane.send(number.to_bytes(4, "little") + self._names, batch)
        self._on_way.add(reply)
        reply.add_done_callback(self._on_way.discard)
        return reply

    def close(self) -> None:
        """Wait for replies of what was sent. Twice is fine."""
        with suppress(TimeoutError):
            for reply in self._on_way.copy():
                reply.exception(CLOSE_SECONDS_MAX)


def connect(
    url: str,
    place: LaneAddress,
    headers: list[tuple[bytes, bytes]],
    tls: Tls | None,
) -> tuple[PlainConnection, bytes] | None:
    """Open a lane of a broker; None = it cannot be had.

    Args:
        url: the broker's, as `dejaq://host:7464`.
        headers: that show who calls.

    Returns:
        The connection, and what came behind the answer to the upgrade.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        raw = socket.create_connection((host, place.port), CONNECT_SECONDS_MAX)
    except OSError:
        return None
    rest = None
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = PlainConnection(raw)
        if parts.scheme == "dejaqs":
            tls = tls or Tls()
            connection = SecureConnection(raw, tls.context(), tls.server_name or host)
        named = [*headers, (lane.NAME.encode(), place.name.encode())]
        rest = _upgraded(connection, f"{host}:{place.port}", named)
        raw.settimeout(None)
    except (OSError, ValueError, BadRequest):
        rest = None
    if rest is None:
        raw.close()
        return None
    return connection, rest


def _upgraded(
    connection: PlainConnection, host: str, headers: list[tuple[bytes, bytes]]
) -> bytes | None:
    """Ask for the lane; what came behind the answer, None = there is none."""
    asked = [f"GET {lane.PATH} HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\n".encode()]
    asked.append(f"upgrade: {lane.PROTOCOL}\r\n".encode())
    asked += [name + b": " + value + b"\r\n" for name, value in headers]
    connection.send(b"".join([*asked, b"\r\n"]))
    answer = b""
    while b"\r\n\r\n" not in answer:
        content = connection.receive()
        if not content or len(answer) > _HEAD_BYTES_MAX:
            return None
        answer += content
    head, _, rest = answer.partition(b"\r\n\r\n")
    return rest if head.startswith(b"HTTP/1.1 101 ") else None
