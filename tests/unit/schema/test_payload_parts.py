"""Covers: the list of a payload's parts: its sizes, its hashes, and what is none."""

from __future__ import annotations

import hashlib

import pytest

from dejaqueue import limits
from dejaqueue.errors import BadRequest, JournalDamaged
from dejaqueue.schema.payload_parts import (
    PartList,
    check_part,
    decode_part_list,
    new_part_list,
    part_count,
)

PART = limits.PART_BYTES


def digests_of(*parts: bytes) -> bytes:
    return b"".join(hashlib.sha256(part).digest() for part in parts)


def test_a_list_is_the_same_when_it_is_read() -> None:
    parts = new_part_list(PART + 3, digests_of(b"a", b"b"))
    read = decode_part_list(parts.encode(), parts.digest)
    assert read == parts
    assert (read.count, read.size_of(0), read.size_of(1)) == (2, PART, 3)
    check_part(read, 1, b"b")
    with pytest.raises(JournalDamaged, match="part 0 of a payload is not what was sent"):
        check_part(read, 0, b"b")


def test_another_list_is_refused() -> None:
    parts = new_part_list(2, digests_of(b"ab"))
    with pytest.raises(JournalDamaged, match="not what was stored"):
        decode_part_list(parts.encode() + b"x", parts.digest)
    short = PartList(PART + 1, PART, digests_of(b"ab"))
    with pytest.raises(JournalDamaged, match="another length"):
        decode_part_list(short.encode(), short.digest)


@pytest.mark.parametrize("byte_count", [0, -1, limits.STREAMED_BYTES_MAX + 1])
def test_sizes_have_limits(byte_count: int) -> None:
    with pytest.raises(BadRequest, match="bytes: a whole number from 1 to 5368709120"):
        new_part_list(byte_count, b"")


def test_there_are_as_many_hashes_as_parts() -> None:
    assert part_count(limits.STREAMED_BYTES_MAX) == 5_120
    with pytest.raises(BadRequest, match="digests: SHA-256 of 2 parts"):
        new_part_list(PART + 1, digests_of(b"a"))
