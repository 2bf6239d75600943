"""Covers: a record comes back as it was written, or not at all."""

from __future__ import annotations

import numpy as np

from dejaqueue.journal.records.record import HEADER_BYTES, RecordHead, open_record, seal, split

HEAD = RecordHead(1, 7, 2**63 + 5, 2**64 - 1, 1, 3, 40, 9, 1_000, 2**64 - 2, 12)


def test_a_record_comes_back() -> None:
    sealed = seal(HEAD, [b"twelve", memoryview(b" bytes")])
    record = open_record(b"".join(sealed.pieces), 7)
    assert record is not None
    assert record.head == HEAD
    assert bytes(record.body) == b"twelve bytes"
    assert record.checksum == sealed.checksum


def test_no_altered_bit_is_taken() -> None:
    content = b"".join(seal(HEAD, [b"twelve bytes"]).pieces)
    for at in range(len(content)):
        for bit in (0x01, 0x80):
            altered = bytearray(content)
            altered[at] ^= bit
            assert open_record(bytes(altered), 7) is None
    assert open_record(content, 8) is None
    for cut in (0, 10, HEADER_BYTES - 1, HEADER_BYTES, len(content) - 1):
        assert open_record(content[:cut], 7) is None
    assert open_record(content + b"x", 7) is None


def test_split_keeps_the_bytes_and_the_bound() -> None:
    random = np.random.default_rng(1)
    pieces = [random.bytes(int(size)) for size in (0, 5, 100, 1, 0, 37, 64)]
    whole = b"".join(pieces)
    for most in (1, 7, 64, len(whole), 1_000):
        parts = [b"".join(part) for part in split(pieces, most)]
        assert b"".join(parts) == whole
        assert len(parts) == -(-len(whole) // most)
        assert all(0 < len(part) <= most for part in parts)
