"""Covers: pieces as bytes: what was put in comes out, each flipped bit is found.

Not covered: pieces behind each other (test_log_chain.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dejaqueue.backup.log_pieces import (
    BUFFER_BYTES,
    LogPiece,
    PieceScratch,
    check_slice,
    digest_of,
    owned_entries,
)
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.log_turn import LogSlice, read_slice
from dejaqueue.testing.journal_conformance import fill


def some_slice() -> LogSlice:
    store = MemoryStore(shards=1)
    fill(store.open("t", 2), np.random.default_rng(1), 4, rows=3)
    (log,) = store.open_logs().values()
    return read_slice("0", log, 1, log.tail, 1 << 20)


def some_piece() -> LogPiece:
    one = some_slice()
    return LogPiece("chain", 7, "ab", "store", 5, (one,), {"0": one.last}, {"1f": "wrapped"})


def test_a_piece_is_what_it_was__in_memory_that_is_used_again() -> None:
    piece, buffer = some_piece(), PieceScratch()
    stored = piece.encode()
    assert LogPiece.decode("x", stored) == piece
    assert bytes(piece.encode(buffer)) == bytes(stored)
    small = LogPiece("chain", 8, digest_of(stored), "store", 0, ())
    assert LogPiece.decode("x", bytes(small.encode(buffer))) == small
    assert len(digest_of(stored)) == 64
    large = memoryview(bytes(BUFFER_BYTES + 1))
    assert len(buffer.fill([large])) == BUFFER_BYTES + 1
    assert bytes(small.encode(buffer)) == bytes(small.encode())


def test_what_is_not_what_was_stored_is_refused__wherever_it_is() -> None:
    stored = bytes(some_piece().encode())
    for at in (*range(400), *range(400, len(stored), 37), len(stored) - 1):
        if 12 <= at < 16:
            continue  # four bytes that mean nothing
        flipped = stored[:at] + bytes([stored[at] ^ 4]) + stored[at + 1 :]
        with pytest.raises(JournalDamaged, match="^x: "):
            LogPiece.decode("x", flipped)
    for cut in (b"", stored[:10], stored[:100], stored[:-1], stored + b"1"):
        with pytest.raises(JournalDamaged):
            LogPiece.decode("x", cut)


def test_entries_of_a_slice_are_whole__or_named() -> None:
    one = some_slice()
    check_slice(one, "x")
    found = list(owned_entries(one, "x"))
    assert [local for _, local, _ in found] == list(range(2, one.last + 1))
    wrong = [
        (one._replace(after=0), "entry 1 is missing"),
        (one._replace(last=9), "ends at 4, not at 9"),
        (one._replace(content=one.content[:-8]), "entry 4 is missing or cut off"),
        (one._replace(content=one.content[8:]), "entry 2 is missing"),
    ]
    for broken, text in wrong:
        with pytest.raises(JournalDamaged, match=text):
            list(owned_entries(broken, "x"))
    rotten = bytearray(one.content)
    rotten[-1] ^= 1
    piece = replace(some_piece(), slices=(one._replace(content=memoryview(rotten)),))
    with pytest.raises(JournalDamaged, match="is not what was written"):
        check_slice(LogPiece.decode("x", piece.encode()).slices[0], "x")
