"""Covers: the bytes of containers: heads, where records are, damage."""

from __future__ import annotations

import pytest

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.records.bucket.container import (
    decode_head,
    encode_records,
    encode_taken,
    head_bytes,
)

PARTS = [("a", 5, [b"five", b"", b"seven"]), ("b", 1, [b"one"])]


def test_a_head_says_where_the_records_are() -> None:
    content = encode_records(PARTS)
    head = decode_head(content[: head_bytes(content, "here")], "here")
    assert head.taken == []
    found = []
    for run in head.runs:
        at = run.offset
        for size in run.sizes:
            found.append(content[at : at + size])
            at += size
    assert [(run.ownership, run.first) for run in head.runs] == [("a", 5), ("b", 1)]
    assert found == [b"five", b"", b"seven", b"one"]
    assert at == len(content)


def test_what_takes_ownerships_has_no_records() -> None:
    content = encode_taken(["a", "b"], "life")
    assert decode_head(content, "here") == ([], ["a", "b"])
    assert head_bytes(content, "here") == len(content)


@pytest.mark.parametrize("at", range(head_bytes(encode_records(PARTS), "here")))
def test_a_bit_that_flips_is_found(at: int) -> None:
    content = bytearray(encode_records(PARTS))
    content[at] ^= 0x10
    with pytest.raises(JournalDamaged, match=r"here: "):
        decode_head(bytes(content), "here")


def test_what_is_too_short_is_no_container() -> None:
    with pytest.raises(JournalDamaged, match="here: is no container"):
        head_bytes(b"DQB1", "here")
