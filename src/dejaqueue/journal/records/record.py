"""The bytes of a record: a fixed header, then entries as format.py writes them, little-endian.

    offset size field
         0    4 magic        u32  "DQR1"
         4    2 version      u16  1
         6    2 kind         u16  1 entries, 2 barrier (no entries)
         8    8 number       u64  of this record in its log
        16    8 identity     u64  of the log: drawn by its first append, the same in every record
        24    8 append_id    u64  drawn for each attempt to append
        32    4 part         u32  0 to parts - 1
        36    4 parts        u32  records of this append
        40    8 position     u64  of the append's first entry; of a barrier: what comes next
        48    4 entries      u32  entries of the append
        52    4 reserved     zero
        56    8 byte_count   u64  bytes of the append's entries, over all parts
        64    8 previous     u64  checksum of the record before, 0 for the first (the chain)
        72    4 body_bytes   u32  bytes after the header
        76    4 reserved     zero
        80    8 checksum     u64  xxh3_64 of the bytes 0 to 79 and of the body
        88    … body         this part of the entries' bytes

Room: journal. Knows bytes, no server.
Holds: decode(encode(x)) == x; garbage gives None and nothing else.
See: docs/internals/writing-a-journal.md; reading.py for what a sequence of records means.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import xxhash

from dejaqueue.journal.format import Piece

MAGIC: Final = int.from_bytes(b"DQR1", "little")
VERSION: Final = 1
HEADER_BYTES: Final = 88
CHECKSUM_OFFSET: Final = 80

_HEADER: Final = struct.Struct("<IHHQQQIIQI4xQQI4x")
_CHECKSUM: Final = struct.Struct("<Q")

assert _HEADER.size == CHECKSUM_OFFSET


class RecordKind(IntEnum):
    """What a record is (uint16). Numbers are for ever."""

    ENTRIES = 1
    BARRIER = 2


class RecordHead(NamedTuple):
    """What the header of a record says; see the table on top of this file."""

    kind: int
    number: int
    identity: int
    append_id: int
    part: int
    parts: int
    position: int
    entries: int
    byte_count: int
    previous: int
    body_bytes: int


class Record(NamedTuple):
    """A record that is what was written.

    Attributes:
        body: this part of the append's entries.
        checksum: its own; the next record carries it as `previous`.
    """

    head: RecordHead
    body: memoryview
    checksum: int


class Sealed(NamedTuple):
    """A record to be written.

    Attributes:
        pieces: its bytes, in order.
        checksum: its own.
    """

    pieces: list[Piece]
    checksum: int


def seal(head: RecordHead, body: Sequence[Piece]) -> Sealed:
    """The bytes of a record."""
    start = _HEADER.pack(MAGIC, VERSION, *head)
    state = xxhash.xxh3_64(start)
    for piece in body:
        state.update(piece)
    checksum = state.intdigest()
    return Sealed([start + _CHECKSUM.pack(checksum), *body], checksum)


def open_record(content: bytes | memoryview, number: int) -> Record | None:
    """The record of these bytes; None if they are not record `number` as it was written."""
    view = memoryview(content)
    if len(view) < HEADER_BYTES:
        return None
    magic, version, *facts = _HEADER.unpack_from(view)
    head = RecordHead(*facts)
    if (magic, version, head.number) != (MAGIC, VERSION, number):
        return None
    if len(view) != HEADER_BYTES + head.body_bytes or head.part >= head.parts:
        return None
    state = xxhash.xxh3_64(view[:CHECKSUM_OFFSET])
    state.update(view[HEADER_BYTES:])
    checksum = state.intdigest()
    if _CHECKSUM.unpack_from(view, CHECKSUM_OFFSET)[0] != checksum:
        return None
    return Record(head, view[HEADER_BYTES:], checksum)


def split(pieces: Sequence[Piece], byte_count_max: int) -> list[list[Piece]]:
    """The same bytes in as few stretches as possible, each within the bound; nothing is copied."""
    parts: list[list[Piece]] = [[]]
    room = byte_count_max
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            if room == 0:
                parts.append([])
                room = byte_count_max
            taken = view[:room]
            parts[-1].append(taken)
            room -= len(taken)
            view = view[len(taken) :]
    return parts
