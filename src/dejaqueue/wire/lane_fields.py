"""The fields of a SEND: what its messages have beside payload and due time.

    before the payloads' sizes   u32 which fields follow · [expires i64 × rows] ·
                                 [priorities u16 × rows] · sizes u32 × rows of each of
                                 [keys] [groups] [tags] [headers]
    behind them                  the texts, field by field; those of tags and headers as
                                 u32 bytes · text, one after the other, name and value in turn

Room: wire. No sockets.
Holds: decoding what `encode` made gives the same; garbage raises BadRequest or struct.error, and
takes no more memory than the frame.
See: docs/wire.md, "The lane"; lane.py, which has the rest of the frame.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise

from dejaqueue.errors import BadRequest
from dejaqueue.schema.row_fields import Fields

KEY, GROUP, PRIORITY, TAGS, HEADERS, EXPIRES = 1, 2, 4, 8, 16, 32
_ALL = 63
_TEXTS = (KEY, GROUP, TAGS, HEADERS)
_U32 = struct.Struct("<I")


@dataclass(slots=True)
class Heads:
    """What is in front of the texts.

    Attributes:
        sizes: bytes of the texts of each row, by field.
    """

    fields: Fields
    sizes: dict[int, tuple[int, ...]]


def encode(fields: Fields, rows: int) -> tuple[list[bytes], list[bytes]]:
    """What goes before the sizes of payloads, and behind them. Raises struct.error."""
    texts: dict[int, list[bytes]] = {}
    if fields.keys is not None:
        texts[KEY] = fields.keys
    if fields.groups is not None:
        texts[GROUP] = fields.groups
    if fields.tags is not None:
        texts[TAGS] = list(map(_listed, fields.tags))
    if fields.headers is not None:
        texts[HEADERS] = list(map(_listed, fields.headers))
    which = sum(texts)
    numbers = []
    if fields.expires_ms is not None:
        which |= EXPIRES
        numbers.append(struct.pack(f"<{rows}q", *fields.expires_ms))
    if fields.priorities is not None:
        which |= PRIORITY
        numbers.append(struct.pack(f"<{rows}H", *fields.priorities))
    sizes = [struct.pack(f"<{rows}I", *map(len, column)) for column in texts.values()]
    return [_U32.pack(which), *numbers, *sizes], [
        text for column in texts.values() for text in column
    ]


def _listed(texts: list[bytes]) -> bytes:
    return b"".join([part for text in texts for part in (_U32.pack(len(text)), text)])


def decode_heads(frame: bytes, at: int, rows: int) -> tuple[Heads, int]:
    """What is in front of the texts, and where it ends. Raises BadRequest, struct.error."""
    (which,) = _U32.unpack_from(frame, at)
    if not which or which & ~_ALL:
        raise BadRequest("frame.fields", f"from 1 to {_ALL}", which)
    at += _U32.size
    heads = Heads(Fields(), {})
    if which & EXPIRES:
        heads.fields.expires_ms = list(struct.unpack_from(f"<{rows}q", frame, at))
        at += 8 * rows
    if which & PRIORITY:
        heads.fields.priorities = list(struct.unpack_from(f"<{rows}H", frame, at))
        at += 2 * rows
    for field in _TEXTS:
        if which & field:
            heads.sizes[field] = struct.unpack_from(f"<{rows}I", frame, at)
            at += 4 * rows
    return heads, at


def decode_texts(frame: bytes, at: int, heads: Heads) -> tuple[Fields, int]:
    """The fields, and where the texts end. Raises BadRequest, struct.error."""
    fields = heads.fields
    for field, sizes in heads.sizes.items():
        ends = list(accumulate(sizes, initial=at))
        if ends[-1] > len(frame):
            raise BadRequest("frame", f"{ends[-1] - at} bytes of texts", len(frame) - at)
        at = ends[-1]
        texts = [frame[first:end] for first, end in pairwise(ends)]
        if field == KEY:
            fields.keys = texts
        elif field == GROUP:
            fields.groups = texts
        elif field == TAGS:
            fields.tags = list(map(_unlisted, texts))
        else:
            fields.headers = list(map(_pairs, texts))
    return fields, at


def _unlisted(content: bytes) -> list[bytes]:
    texts, at = [], 0
    while at < len(content):
        begin = at + _U32.size
        at = begin + _U32.unpack_from(content, at)[0]
        if at > len(content):
            raise BadRequest("frame", f"{at - begin} bytes of a text", len(content) - begin)
        texts.append(content[begin:at])
    return texts


def _pairs(content: bytes) -> list[bytes]:
    texts = _unlisted(content)
    if len(texts) % 2:
        raise BadRequest("frame", "a value for each name of a header", len(texts))
    return texts
