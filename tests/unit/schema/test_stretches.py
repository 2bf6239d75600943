"""Covers: what is left of stretches of positions without others."""

from __future__ import annotations

from dejaqueue.schema.stretches import without


def test_without_takes_away_what_overlaps() -> None:
    assert without([(1, 10)], [(1, 10)]) == []
    assert without([(1, 10), (20, 30)], [(5, 25)]) == [(1, 4), (26, 30)]
    assert without([(3, 2)], []) == []
