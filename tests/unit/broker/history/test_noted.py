"""Pieces: what is recorded at once is cut by positions and by hours."""

from __future__ import annotations

import numpy as np

from dejaqueue.broker.history.noted import HOUR_MS, Noted, Piece
from dejaqueue.engine.effects import Change, Effects
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn
from dejaqueue.model import ChangeKind


def change(*sequences: int) -> Change:
    return Change(ChangeKind.ACKED, np.array(sequences), None, None, None, None)


def noted(place: int, at_ms: int) -> Noted:
    return Noted(place, at_ms, (change(1, 2),), None, 0, 2)


def test_what_was_seen_is_cut_off() -> None:
    piece = Piece(5, 9, 5, (noted(0, 10), noted(2, 10), noted(4, 11)))
    assert piece.rows == 6
    rest = piece.after(7)
    assert (rest.first, rest.last, [one.place for one in rest.noted]) == (8, 9, [4])
    assert rest.at_ms == 11


def test_no_piece_lies_in_two_hours() -> None:
    hour = HOUR_MS
    parts = (noted(0, hour - 1), noted(1, hour), noted(3, hour + 5), noted(4, 2 * hour))
    pieces = Piece(10, 20, 10, parts).by_hours()
    assert [(piece.first, piece.last) for piece in pieces] == [(10, 10), (11, 13), (14, 20)]
    assert [len(piece.noted) for piece in pieces] == [1, 2, 1]
    assert Piece(1, 2, 1, parts[:1]).by_hours() == [Piece(1, 2, 1, parts[:1])]


def test_a_gap_is_one_row() -> None:
    gap = Piece(1, 5, 0, (), missed=0, gap_at_ms=7)
    assert (gap.is_gap, gap.rows, gap.at_ms) == (True, 1, 7)


def test_keys_are_copied_and_a_lease_knows_how_far_ahead_it_was() -> None:
    content = bytearray(b"ab")
    entry = Entry(
        EntryKind.ENQUEUE,
        100,
        (0, 0, 0, 0),
        2,
        (np.array([1, 2]),),
        {"key": TextColumn(np.array([0, 1, 2], dtype=np.int32), memoryview(content))},
    )
    one = Noted.of(3, entry, Effects(changes=(change(0, 1),)))
    content[0] = 0
    assert one.keys is not None
    assert bytes(one.keys.data) == b"ab"
    assert (one.place, one.at_ms, one.rows, one.ahead_ms) == (3, 100, 2, 0)
    lease = Entry(EntryKind.LEASE, 100, (125, 1, 0, 0))
    assert Noted.of(0, lease, Effects(changes=(change(0),))).ahead_ms == 25
