"""Arrow's stream format as parts that can be changed: messages, and where each buffer is described.

A message is a flatbuffer, `metadata`, and behind it a `body` of buffers. Nothing here judges what
the parts hold.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

CONTINUATION = 0xFFFFFFFF
SCHEMA, DICTIONARY, BATCH = 1, 2, 3


@dataclass(slots=True)
class Message:
    """One message of a stream."""

    metadata: bytearray
    body: bytearray

    @property
    def kind(self) -> int:
        """SCHEMA, DICTIONARY or BATCH."""
        (root,) = struct.unpack_from("<I", self.metadata, 0)
        at = _field(self.metadata, root, 1)
        return self.metadata[at] if at else 0

    def nodes(self) -> list[int]:
        """Where in the metadata each column's (rows, nulls) are: two int64."""
        return self._structs(1)

    def buffers(self) -> list[int]:
        """Where in the metadata each buffer's (offset, bytes) are: two int64."""
        return self._structs(2)

    def extent(self, at: int) -> tuple[int, int]:
        """What stands at a place of `nodes` or `buffers`."""
        first, second = struct.unpack_from("<qq", self.metadata, at)
        return first, second

    def _structs(self, number: int) -> list[int]:
        (root,) = struct.unpack_from("<I", self.metadata, 0)
        rows = _table(self.metadata, root, 2)
        if self.kind == DICTIONARY:
            rows = _table(self.metadata, rows, 1)
        elif self.kind != BATCH:
            return []
        at = _table(self.metadata, rows, number)
        (count,) = struct.unpack_from("<I", self.metadata, at)
        return [at + 4 + 16 * place for place in range(count)]


def _field(content: bytearray, at: int, number: int) -> int:
    (back,) = struct.unpack_from("<i", content, at)
    (size,) = struct.unpack_from("<H", content, at - back)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", content, at - back + 4 + 2 * number)
    return at + offset if offset else 0


def _table(content: bytearray, at: int, number: int) -> int:
    field = _field(content, at, number)
    (offset,) = struct.unpack_from("<I", content, field)
    return int(field + offset)


def messages_of(
    *batches: pa.RecordBatch, compression: str | None = None, deltas: bool = False
) -> list[Message]:
    """The messages of a stream of these batches."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=deltas)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    found: list[Message] = []
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return found
        body = b"" if message.body is None else message.body.to_pybytes()
        found.append(Message(bytearray(message.metadata.to_pybytes()), bytearray(body)))


def stream_of(messages: list[Message]) -> bytes:
    """The bytes of a stream."""
    parts = []
    for message in messages:
        padding = -len(message.metadata) % 8
        size = len(message.metadata) + padding
        parts.append(struct.pack("<II", CONTINUATION, size) + message.metadata + bytes(padding))
        parts.append(bytes(message.body))
    return b"".join([*parts, struct.pack("<II", CONTINUATION, 0)])


def replaced(messages: list[Message], old: bytes, new: bytes) -> list[Message]:
    """The messages with the last place where `old` stands in a body overwritten."""
    assert len(old) == len(new)
    for message in reversed(messages):
        at = message.body.rfind(old)
        if at >= 0:
            message.body[at : at + len(new)] = new
            return messages
    raise AssertionError(f"{old!r} stands nowhere")
