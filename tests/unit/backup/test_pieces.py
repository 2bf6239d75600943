"""Covers: entries as a piece and back, and every flipped bit and lost entry of one."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.backup.pieces import MAGIC, PIECE_BYTES, PieceWriter, read_entries
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn


def entry(number: int, payload: bytes = b"payload") -> Entry:
    offsets = np.array([0, len(payload)], dtype=np.int32)
    ints = (np.array([number], dtype=np.int64),)
    texts = {"payload": TextColumn(offsets, payload)}
    return Entry(EntryKind.ENQUEUE, 1_000 + number, (7, 0, 0, 0), 1, ints, texts)


def written(*numbers: int) -> bytes:
    writer = PieceWriter()
    for number in numbers:
        writer.add(number, 3, entry(number))
    assert (writer.last, writer.until_ms) == (numbers[-1], 1_000 + numbers[-1])
    assert len(writer.content()) == writer.byte_count
    return writer.content()


def test_entries_are_read_as_they_were_added() -> None:
    found = list(read_entries(written(5, 6, 7), "a"))
    assert [(position, epoch) for position, epoch, _ in found] == [(5, 3), (6, 3), (7, 3)]
    assert bytes(found[2][2].texts["payload"].data) == b"payload"
    assert found[2][2].ints[0].tolist() == [7]


def test_a_piece_is_full_at_its_size() -> None:
    writer = PieceWriter()
    writer.add(1, 1, entry(1, bytes(PIECE_BYTES - 1_000)))
    assert not writer.is_full
    writer.add(2, 1, entry(2, bytes(1_000)))
    assert writer.is_full


def test_a_flipped_bit_is_found_wherever_it_is() -> None:
    content = written(1, 2)
    for at in range(len(content)):
        spoilt = bytearray(content)
        spoilt[at] ^= 4
        with pytest.raises(JournalDamaged):
            list(read_entries(bytes(spoilt), "a"))


def test_an_entry_that_was_taken_out_is_missed() -> None:
    whole = written(1, 2, 3)
    size = (len(whole) - len(MAGIC)) // 3
    cut = whole[: len(MAGIC) + size] + whole[len(MAGIC) + 2 * size :]
    with pytest.raises(JournalDamaged, match=f"a, offset {len(MAGIC) + size}: an entry is missing"):
        list(read_entries(cut, "a"))
