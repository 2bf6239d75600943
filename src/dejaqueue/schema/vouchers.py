"""Vouchers: what is delivered, and can be sent, in place of a payload that is streamed.

    voucher:  12 mark · kind u8 · payload bytes u64 · SHA-256 of its list of parts · topic · sealed
    topic:    bytes u8 · UTF-8

Anybody reads what it is of; what is sealed is for brokers. A voucher for an upload that has begun
is of another kind, and has no bytes yet.

Room: schema. Pure.
Holds: what parses is a voucher in its form; whether it is genuine the brokers know.
See: payloads/voucher_seal.py, what is sealed; references.py, whose mark it has; docs/adr/0076.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from dejaqueue.errors import BadRequest
from dejaqueue.schema.references import MARK

VOUCHER: Final = 5
UPLOAD: Final = 6
"""Kinds, beside those of references."""
_VOUCHER_MARK: Final = MARK + bytes([VOUCHER])
_HEAD: Final = struct.Struct("<12sBQ32sB")
SEALED_BYTES_MIN: Final = 82
"""A nonce of 16 bytes, a key and a tag of 32, and a name."""
LIMIT: Final = "a voucher, as it was delivered or given for an upload"


class Voucher(NamedTuple):
    """What anybody can read of a voucher.

    Attributes:
        byte_count: of the payload.
        digest: SHA-256 of its list of parts.
        topic: whose message it was, or for which it was uploaded.
        sealed: the rest.
    """

    byte_count: int
    digest: bytes
    topic: str
    sealed: bytes


def is_voucher(payload: bytes) -> bool:
    """Whether a payload stands for one that is streamed, if brokers find it genuine."""
    if not payload.startswith(_VOUCHER_MARK):
        return False
    try:
        parse_voucher(payload)
    except BadRequest:
        return False
    return True


def parse_voucher(content: bytes, kind: int = VOUCHER, field: str = "voucher") -> Voucher:
    """What a voucher says; whether it is genuine the brokers know. Raises BadRequest."""
    try:
        mark, found, byte_count, digest, size = _HEAD.unpack_from(content)
        rest = content[_HEAD.size :]
        topic, sealed = rest[:size].decode(), rest[size:]
        if mark != MARK or found != kind or len(rest) < size:
            raise ValueError
        if len(sealed) < SEALED_BYTES_MIN:
            raise ValueError
    except (struct.error, ValueError):
        raise BadRequest(field, LIMIT, content[:32]) from None
    return Voucher(byte_count, digest, topic, sealed)


def voucher_head(kind: int, byte_count: int, digest: bytes, topic: str) -> bytes:
    """The part of a voucher that anybody reads."""
    named = topic.encode()
    return _HEAD.pack(MARK, kind, byte_count, digest, len(named)) + named
