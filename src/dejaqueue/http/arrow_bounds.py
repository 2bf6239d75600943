"""How large an Arrow stream becomes once it is read: asked before it is.

Room: http. A body of some kilobytes may hold gigabytes: Arrow's buffers can be compressed, and say
themselves how large they will be.
Holds: nothing is unpacked here; what is no Arrow stream raises ValueError and nothing else.
See: Arrow's format, Message.fbs: a message is a flatbuffer, and behind it a body of buffers.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

_DICTIONARY_BATCH: Final = 2
_RECORD_BATCH: Final = 3
_MESSAGE_KIND, _MESSAGE_HEADER = 1, 2
_DICTIONARY_ROWS = 1
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3


def unpacked_bytes(content: bytes) -> int:
    """Bytes of all buffers of a stream, unpacked. Raises ValueError, pa.ArrowInvalid."""
    total = 0
    reader = pa.ipc.MessageReader.open_stream(content)
    try:
        while True:
            try:
                message = reader.read_next_message()
            except StopIteration:
                return total
            body = message.body
            if body is not None:
                total += _bytes_of(memoryview(message.metadata), memoryview(body))
    except struct.error as wrong:
        raise ValueError(f"a message that ends too soon: {wrong}") from None


def _bytes_of(metadata: memoryview, body: memoryview) -> int:
    (root,) = struct.unpack_from("<I", metadata, 0)
    kind_at = _field(metadata, root, _MESSAGE_KIND)
    kind = metadata[kind_at] if 0 < kind_at < len(metadata) else 0
    rows = _table(metadata, root, _MESSAGE_HEADER)
    if kind == _DICTIONARY_BATCH and rows:
        rows = _table(metadata, rows, _DICTIONARY_ROWS)
    elif kind != _RECORD_BATCH:
        rows = 0
    if not rows or not _field(metadata, rows, _BATCH_COMPRESSION):
        return len(body)
    return _unpacked(metadata, rows, body)


def _unpacked(metadata: memoryview, rows: int, body: memoryview) -> int:
    """Each buffer begins with its length; -1 = it is not compressed."""
    at = _table(metadata, rows, _BATCH_BUFFERS)
    if not at:
        return 0
    (count,) = struct.unpack_from("<I", metadata, at)
    total = 0
    for number in range(count):
        offset, byte_count = struct.unpack_from("<qq", metadata, at + 4 + 16 * number)
        if byte_count == 0:
            continue
        if offset < 0:
            raise ValueError("a buffer begins before the body")
        (unpacked,) = struct.unpack_from("<q", body, offset)
        total += max(byte_count, unpacked)
    return total


def _field(table: memoryview, at: int, number: int) -> int:
    """Where a field of a flatbuffer's table is, 0 = it has none."""
    (back,) = struct.unpack_from("<i", table, at)
    place = at - back
    if place < 0:
        raise ValueError("a table without its description")
    (byte_count,) = struct.unpack_from("<H", table, place)
    if 4 + 2 * number >= byte_count:
        return 0
    (offset,) = struct.unpack_from("<H", table, place + 4 + 2 * number)
    return at + offset if offset else 0


def _table(table: memoryview, at: int, number: int) -> int:
    """Where the table or vector is that a field points to, 0 = none."""
    field = _field(table, at, number)
    if not field:
        return 0
    (offset,) = struct.unpack_from("<I", table, field)
    return field + int(offset)
