"""A Flight stream as bytes: HTTP/2, gRPC and protobuf by hand, so that a message may hold anything.

No library of Arrow writes what is malformed; whoever attacks uses none. As much as a DoPut needs,
in plain text: one connection, one stream, headers without compression.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from types import TracebackType

from dejaqueue.wire import frames
from dejaqueue.wire.frames import Reply

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
FRAME_BYTES_MAX = 16_384
WINDOW_BYTES = (1 << 31) - 1 - 65_535
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _number(value: int) -> bytes:
    """A varint of protobuf."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _text(content: bytes) -> bytes:
    """A literal of HPACK, not compressed."""
    if len(content) < 127:
        return bytes([len(content)]) + content
    return b"\x7f" + _number(len(content) - 127) + content


def flight_data(
    metadata: bytes, body: bytes, app_metadata: bytes = b"", descriptor: bytes = b""
) -> bytes:
    """One FlightData of Arrow's Flight.proto."""
    parts = [_field(1, _field(2, descriptor) + b"\x08\x02")] if descriptor else []
    parts.append(_field(2, metadata))
    if app_metadata:
        parts.append(_field(3, app_metadata))
    parts.append(_field(1_000, body))
    return b"".join(parts)


class RawPut:
    """A DoPut stream that sends what it is given.

    Attributes:
        replies: frames that came.
        trailers: the bytes that ended the stream; None = it has not ended.
    """

    def __init__(self, port: int, timeout_seconds: float = 20, **command: object) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds)
        self._descriptor = json.dumps(command).encode()
        self._window = self._stream_window = 65_535
        self._data = b""
        self.replies: list[Reply] = []
        self.trailers: bytes | None = None
        self._write(SETTINGS, 0, 0, struct.pack(">HI", 4, (1 << 31) - 1), preface=_PREFACE)
        self._write(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_BYTES))
        headers = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": b"/arrow.flight.protocol.FlightService/DoPut",
            b":authority": b"localhost",
            b"content-type": b"application/grpc",
            b"te": b"trailers",
        }
        packed = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
        self._write(HEADERS, END_HEADERS, 1, packed)

    def __enter__(self) -> RawPut:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(
        self,
        metadata: bytes | bytearray,
        body: bytes | bytearray = b"",
        app_metadata: bytes = b"",
    ) -> None:
        """Send one message of Arrow."""
        message = flight_data(bytes(metadata), bytes(body), app_metadata, self._descriptor)
        self._descriptor = b""
        content = memoryview(b"\0" + struct.pack(">I", len(message)) + message)
        while content and self.trailers is None:
            while min(self._window, self._stream_window) <= 0 and self.trailers is None:
                self._read()
            room = min(self._window, self._stream_window, FRAME_BYTES_MAX)
            piece, content = content[:room], content[room:]
            self._window -= len(piece)
            self._stream_window -= len(piece)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._write(DATA, 0, 1, bytes(piece))

    def end(self) -> None:
        """Nothing more is sent."""
        if self.trailers is None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._write(DATA, END_STREAM, 1, b"")

    def wait(self, replies: int | None = None) -> None:
        """Read until there are so many replies; None = until the stream has ended.

        Raises:
            TimeoutError: nothing came.
        """
        while self.trailers is None and (replies is None or len(self.replies) < replies):
            self._read()

    def close(self) -> None:
        """Go away without a word."""
        self._socket.close()

    def _write(
        self, kind: int, flags: int, stream: int, content: bytes, preface: bytes = b""
    ) -> None:
        head = struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream)
        self._socket.sendall(preface + head + content)

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = self._socket.recv(count - len(found))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            found += piece
        return bytes(found)

    def _read(self) -> None:
        try:
            head = self._exactly(9)
            content = self._exactly(int.from_bytes(head[:3], "big"))
        except ConnectionResetError:
            self.trailers = self.trailers or b"the connection was closed"
            return
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._write(kind, ACK, 0, content if kind == PING else b"")
            if kind == SETTINGS:
                for at in range(0, len(content), 6):
                    name, value = struct.unpack_from(">HI", content, at)
                    if name == 4:
                        self._stream_window += value - 65_535
        elif kind == WINDOW_UPDATE:
            (more,) = struct.unpack(">I", content)
            if stream:
                self._stream_window += more
            else:
                self._window += more
        elif kind == DATA:
            self._data += content
            self._take_replies()
        elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
            self.trailers = content

    def _take_replies(self) -> None:
        while len(self._data) >= 5:
            (size,) = struct.unpack(">I", self._data[1:5])
            if len(self._data) < 5 + size:
                return
            message, self._data = self._data[5 : 5 + size], self._data[5 + size :]
            # PutResult has one field, the bytes of the reply.
            at, shift, length = 1, 0, 0
            while True:
                length |= (message[at] & 0x7F) << shift
                shift, at = shift + 7, at + 1
                if not message[at - 1] & 0x80:
                    break
            frame = frames.decode(memoryview(message)[at : at + length])
            assert isinstance(frame, Reply)
            self.replies.append(frame)
