"""Covers: header, trailer and index of a segment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.format import Encoded
from dejaqueue.journal.interface import Entry, EntryKind
from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments.files import read_file
from dejaqueue.journal.segments.segment import (
    Segment,
    SegmentHead,
    SegmentList,
    SegmentTail,
    index_bytes,
    index_is_right,
)

U64 = st.integers(0, (1 << 64) - 1)


@given(st.integers(0, 65_535), U64, U64, U64, st.integers(0, 511))
def test_a_header_is_read_back_and_every_bit_counts(
    partition: int, topic: int, first: int, chain: int, bit: int
) -> None:
    head = SegmentHead(partition, topic, first, chain)
    content = bytearray(head.encode())
    assert len(content) == 64
    assert SegmentHead.decode(memoryview(content)) == head
    content[bit >> 3] ^= 1 << (bit & 7)
    assert SegmentHead.decode(memoryview(content)) is None
    assert SegmentHead.decode(memoryview(content)[:63]) is None


def test_a_trailer_must_fit_its_file() -> None:
    tail = SegmentTail(3, 200, 5, 6, 7, 8)
    body = bytes(200 + index_bytes(3))
    assert SegmentTail.decode(memoryview(body + tail.encode())) == tail
    assert SegmentTail.decode(memoryview(body + bytes(32) + tail.encode())) == tail  # a run
    assert SegmentTail.decode(memoryview(body + b"12345678" + tail.encode())) is None
    assert SegmentTail.decode(memoryview(tail.encode())) is None


def sealed_segment(files: MemoryFileSystem) -> Segment:
    path = Path("/00000000000000000011.segment")
    files.make_directory(path.parent)
    file = files.open(path, create=True)
    file.allocate(8192)
    segment = Segment(path, 11, 99, 8192)
    segment.attach(file)
    for place in range(5):
        owner = (7, 3 + place) if place < 3 else (8, place)
        segment.add(64 + 200 * place, 2 if place % 2 else 4, 10, 200, 1000 + place, owner)
    segment.seal()
    return segment


def test_entries_of_an_append_are_noted_as_if_one_by_one() -> None:
    path = Path("/00000000000000000001.segment")
    kinds = ((EntryKind.ENQUEUE, 3), (EntryKind.RELOCATE, 0), (EntryKind.LEASE, 2))
    entries = [Entry(kind, 0, rows=rows) for kind, rows in kinds]
    stored = [Encoded([], 200 + 8 * place, 7 + place) for place in range(3)]
    one_by_one, at_once = Segment(path, 1, 0, 1 << 20), Segment(path, 1, 0, 1 << 20)
    for _ in range(2):
        local = at_once.count + 1
        assert at_once.add_all(entries, stored, (5, local)) == 3
        for place, (entry, one) in enumerate(zip(entries, stored, strict=True)):
            one_by_one.add(
                one_by_one.used,
                entry.kind,
                entry.rows,
                one.byte_count,
                one.checksum,
                (5, local + place),
            )
    for name in ("count", "used", "chain", "readable_rows", "readable_bytes", "last"):
        assert getattr(at_once, name) == getattr(one_by_one, name), name
    assert at_once.offsets()[:6].tolist() == one_by_one.offsets()[:6].tolist()
    assert at_once.runs().tolist() == one_by_one.runs().tolist() == [(5, 1, 6, 6, 1248)]


def test_a_sealed_segment_says_what_it_holds() -> None:
    files = MemoryFileSystem()
    segment = sealed_segment(files)
    content = read_file(files, segment.path)
    assert len(content) == segment.byte_count == 64 + 1000 + index_bytes(5, runs=2) + 64
    tail = SegmentTail.decode(content)
    assert tail is not None
    assert index_is_right(content, tail)
    again = Segment(segment.path, 11, 99, len(content))
    again.adopt_tail(tail, content)
    assert (again.last, again.used, again.chain) == (15, 1064, 1004)
    assert (again.readable_rows, again.readable_bytes) == (20, 400)
    assert again.runs().tolist() == [(7, 3, 10, 3, 600), (8, 3, 10, 2, 400)]
    again.load(files)
    assert (again.offsets()[:5].astype(int) * 8).tolist() == [64, 264, 464, 664, 864]
    with pytest.raises(JournalDamaged, match="offset 264: an entry is not"):
        again.verify([1])


def test_a_damaged_index_is_refused() -> None:
    files = MemoryFileSystem()
    segment = sealed_segment(files)
    content = read_file(files, segment.path)
    tail = SegmentTail.decode(content)
    assert tail is not None
    content[1064] ^= 1
    again = Segment(segment.path, 11, 99, len(content))
    again.adopt_tail(tail, content)
    with pytest.raises(JournalDamaged, match="offset 1064: the index is damaged"):
        again.load(files)


def test_room_counts_index_and_trailer() -> None:
    segment = Segment(Path("x"), 1, 0, 1000)
    free = 1000 - 64 - 64
    assert segment.has_room(1, free - 8)
    assert not segment.has_room(1, free - 7)
    assert segment.has_room(100, free - 400 - 3 * 32, 3)
    assert not segment.has_room(100, free - 399 - 3 * 32, 3)


def test_positions_find_their_segment() -> None:
    listed = SegmentList(tuple(Segment(Path("x"), first, 0, 4096) for first in (5, 9, 30)))
    positions = np.array([0, 4, 5, 8, 9, 29, 30, 1 << 43])
    assert listed.places(positions).tolist() == [-1, -1, 0, 0, 1, 1, 2, 2]
