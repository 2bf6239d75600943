"""The parts of a payload that is streamed, and the list that says what each is.

    list:  payload bytes u64 · bytes of a part u32 · SHA-256 of each part, in their order

All parts but the last have the same size. The list's own SHA-256 is in the reference and in the
voucher, so whoever has one of these can tell for each part, alone, whether it is the right one in
the right place, and whether the last one is the last.

Room: schema. Pure.
Holds: a list that is read has as many parts as its payload takes.
See: payloads/streamed_store.py, which keeps them; vouchers.py.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from dejaqueue import limits
from dejaqueue.errors import BadRequest, JournalDamaged

_HEAD: Final = struct.Struct("<QI")
DIGEST_BYTES: Final = 32
LIST_INDEX: Final = -1
"""Stands for the list, where parts have their index."""


def part_count(byte_count: int, part_bytes: int = limits.PART_BYTES) -> int:
    """How many parts a payload takes.

    >>> part_count(0), part_count(1 << 20), part_count((1 << 20) + 1)
    (0, 1, 2)
    """
    return -(-byte_count // part_bytes)


@dataclass(frozen=True, slots=True)
class PartList:
    """What the parts of a payload are.

    Attributes:
        byte_count: of the payload.
        part_bytes: of each part but the last.
        digests: SHA-256 of each part, joined.
    """

    byte_count: int
    part_bytes: int
    digests: bytes

    @property
    def count(self) -> int:
        """How many parts there are."""
        return part_count(self.byte_count, self.part_bytes)

    def size_of(self, index: int) -> int:
        """Bytes of a part."""
        return min(self.part_bytes, self.byte_count - index * self.part_bytes)

    def is_part(self, index: int, content: bytes | memoryview) -> bool:
        """Whether these are the bytes of this part."""
        return hashlib.sha256(content).digest() == self.digest_of(index)

    def digest_of(self, index: int) -> bytes:
        """SHA-256 of a part."""
        return self.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]

    def encode(self) -> bytes:
        """As it is stored."""
        return _HEAD.pack(self.byte_count, self.part_bytes) + self.digests

    @property
    def digest(self) -> bytes:
        """SHA-256 of the list as it is stored."""
        return hashlib.sha256(self.encode()).digest()


def new_part_list(byte_count: int, digests: bytes) -> PartList:
    """The list of what was uploaded. Raises BadRequest: these are not its parts."""
    if not 0 < byte_count <= limits.STREAMED_BYTES_MAX:
        limit = f"a whole number from 1 to {limits.STREAMED_BYTES_MAX}"
        raise BadRequest("bytes", limit, byte_count)
    made = PartList(byte_count, limits.PART_BYTES, digests)
    if len(digests) != made.count * DIGEST_BYTES:
        limit = f"SHA-256 of {made.count} parts"
        raise BadRequest("digests", limit, f"{len(digests)} bytes")
    return made


def decode_part_list(content: bytes, digest: bytes) -> PartList:
    """A list as it was stored. Raises JournalDamaged: it is another one."""
    if hashlib.sha256(content).digest() != digest or len(content) < _HEAD.size:
        raise JournalDamaged("the list of a payload's parts is not what was stored")
    byte_count, part_bytes = _HEAD.unpack_from(content)
    found = PartList(byte_count, part_bytes, content[_HEAD.size :])
    if not found.part_bytes or len(found.digests) != found.count * DIGEST_BYTES:
        raise JournalDamaged("the list of a payload's parts has another length than they")
    return found


def check_part(parts: PartList, index: int, content: bytes | memoryview) -> None:
    """Raise JournalDamaged if these are not the bytes of a part."""
    if not parts.is_part(index, content):
        raise JournalDamaged(f"part {index} of a payload is not what was sent")
