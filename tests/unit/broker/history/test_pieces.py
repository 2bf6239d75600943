"""Pieces: what is recorded at once is cut by positions and by hours."""

from __future__ import annotations

import numpy as np

from dejaqueue.broker.history.pieces import HOUR_MS, Piece
from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.engine.effects import Change
from dejaqueue.model import ChangeKind


def change(*sequences: int) -> Change:
    return Change(ChangeKind.ACKED, np.array(sequences), None, None, None, None)


def changes_of(entry_index: int, at_ms: int) -> EntryChanges:
    return EntryChanges(entry_index, at_ms, (change(1, 2),), None, 0, 2)


def test_what_was_seen_is_cut_off() -> None:
    piece = Piece(5, 9, 5, (changes_of(0, 10), changes_of(2, 10), changes_of(4, 11)))
    assert piece.rows == 6
    rest = piece.after(7)
    assert (rest.first, rest.last, [one.entry_index for one in rest.changes]) == (8, 9, [4])
    assert rest.at_ms == 11


def test_no_piece_lies_in_two_hours() -> None:
    hour = HOUR_MS
    parts = (
        changes_of(0, hour - 1),
        changes_of(1, hour),
        changes_of(3, hour + 5),
        changes_of(4, 2 * hour),
    )
    pieces = Piece(10, 20, 10, parts).by_hours()
    assert [(piece.first, piece.last) for piece in pieces] == [(10, 10), (11, 13), (14, 20)]
    assert [len(piece.changes) for piece in pieces] == [1, 2, 1]
    assert Piece(1, 2, 1, parts[:1]).by_hours() == [Piece(1, 2, 1, parts[:1])]


def test_a_gap_is_one_row() -> None:
    gap = Piece(1, 5, 0, (), missed=0, gap_at_ms=7)
    assert (gap.is_gap, gap.rows, gap.at_ms) == (True, 1, 7)
