"""Covers: a strand is read piece by piece, each compared with the one before; what is held is let
go of from the beginning, and read again where it is not in memory; it is ended behind its last one.

Not covered: several strands, and what is applied of them (test_follower.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece, digest_of
from dejaqueue.broker.standby.strand_reader import LATE_PIECES, StrandReader
from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.segments.log_turn import LogSlice

COUNT_MAX = 1_000


def piece_of(number: int, previous: str, content: bytes = b"x") -> LogPiece:
    one = LogSlice("1", number - 1, number, memoryview(content))
    return LogPiece("c0/x", number, previous, "9f", 0, (one,), {"1": number})


def stored(root: Path, count: int) -> LogChain:
    chain, previous = LogChain(DirectoryBucket(root), "c0/x"), ""
    for number in range(1, count + 1):
        content = bytes(piece_of(number, previous).encode())
        assert chain.put_new(number, content)
        previous = digest_of(content)
    return chain


def read_all(reader: StrandReader, *, keeps: bool = True) -> Iterator[int]:
    while True:
        before = reader.read
        for piece, digest in reader.following(COUNT_MAX):
            reader.take(piece, digest, keeps=keeps)
            yield piece.number
        if reader.read == before:
            return


@pytest.mark.parametrize("count", [0, 1, LATE_PIECES, 5 * LATE_PIECES])
def test_all_pieces_are_read__few_and_many(tmp_path: Path, count: int) -> None:
    chain = stored(tmp_path, count)
    reader = StrandReader(chain, 0, "")
    assert list(read_all(reader)) == list(range(1, count + 1))
    assert (reader.read, reader.number, len(reader.held)) == (count, 0, count)
    if count:
        content = piece_of(count + 1, reader.read_previous).encode()
        assert chain.put_new(count + 1, content)
        assert list(read_all(reader)) == [count + 1]


@pytest.mark.parametrize("keeps", [True, False])
def test_what_is_held_is_given_in_order__and_let_go_of(tmp_path: Path, *, keeps: bool) -> None:
    reader = StrandReader(stored(tmp_path, 30), 0, "")
    list(read_all(reader, keeps=keeps))
    assert (reader.held[0].byte_count > 0) is keeps
    wanted = [one for one in reader.held if one.number % 3]
    assert [one.number for one in reader.contents(wanted)] == [one.number for one in wanted]
    reader.let_go(lambda held: held.number <= 10 or held.number == 20)
    assert (reader.number, len(reader.held)) == (10, 20)
    assert [one.number for one in reader.held if one.piece is None] == (
        [20] if keeps else list(range(11, 31))
    )
    reader.again()
    assert (reader.read, len(reader.held)) == (10, 0)
    assert list(read_all(reader)) == list(range(11, 31))


def test_a_piece_that_is_another_one_is_named(tmp_path: Path) -> None:
    chain = stored(tmp_path / "a", 3)
    broken = replace(piece_of(4, "ab" * 32))
    assert chain.put_new(4, broken.encode())
    reader = StrandReader(chain, 0, "")
    with pytest.raises(JournalDamaged, match="000000000004: does not follow the one before"):
        list(read_all(reader))
    chain = stored(tmp_path / "b", 3)
    reader = StrandReader(chain, 0, "")
    list(read_all(reader, keeps=False))
    chain.delete(range(2, 3))
    with pytest.raises(JournalDamaged, match="000000000002 is missing"):
        list(reader.contents(list(reader.held)))
    assert chain.put_new(2, piece_of(2, "", b"other").encode())
    with pytest.raises(JournalDamaged, match="000000000002: is another one than before"):
        list(reader.contents(list(reader.held)))


@pytest.mark.parametrize("count", [0, 3])
def test_a_strand_is_ended_behind_its_last_piece(tmp_path: Path, count: int) -> None:
    chain = stored(tmp_path, count)
    reader = StrandReader(chain, 0, "")
    list(read_all(reader))
    other = StrandReader(chain, 0, "")
    list(read_all(other))
    assert chain.put_new(count + 1, piece_of(count + 1, reader.read_previous).encode())
    assert not reader.seal("a1", "9f")  # its archiver was quicker
    list(read_all(reader))
    assert reader.seal("a1", "9f")
    assert reader.fence == "a1"
    end = chain.decode(count + 2, chain.stored(count + 2))
    assert (end.fence, end.slices, end.reached) == ("a1", (), {"1": count + 1})
    assert end.previous == reader.read_previous
    assert list(read_all(other)) == [count + 1, count + 2]
    assert (other.fence, other.read) == ("a1", count + 1)
    assert other.seal("a1", "9f")  # again: it is ended already
    assert chain.numbers().stop == count + 3


def test_an_empty_strand_is_ended(tmp_path: Path) -> None:
    chain = stored(tmp_path, 0)
    reader = StrandReader(chain, 0, "")
    assert reader.seal("a1", "9f")
    end = chain.decode(1, chain.stored(1))
    assert (end.fence, end.store, end.previous) == ("a1", "9f", "")
