"""Covers: which append has which entries, what is live, and what may be dropped."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.errors import InternalError
from dejaqueue.journal.interface import Int64s
from dejaqueue.journal.records import ledger as module
from dejaqueue.journal.records.ledger import Ledger, Stand


def filled(appends: int, entries: int = 2, rows: int = 10, gap: int = 0) -> Ledger:
    """Appends of some entries each, every one in a record of its own."""
    ledger = Ledger()
    ledger.adopt_nothing()
    for number in range(appends):
        add(ledger, entries, rows, gap)
        assert len(ledger) == number + 1
    return ledger


def add(ledger: Ledger, entries: int = 2, rows: int = 10, gap: int = 0) -> None:
    before = ledger.stand
    number = before.number + gap
    after = Stand(number + 1, number * 10, before.position + entries, number * 100)
    ledger.add(
        after, entries=entries, byte_count=1_000, rows=rows, readable_bytes=800, parts=1,
        number=number, chain_before=before.chain,
    )  # fmt: skip


def locators(*positions: int, rows: int = 10) -> Int64s:
    at = np.array(positions, dtype=np.int64)
    return np.asarray((at[:, None] << 20 | np.arange(rows)).ravel())


def test_entries_are_found_in_their_appends() -> None:
    ledger = filled(5, gap=1)
    assert ledger.tail == 10
    places = ledger.places(np.array([0, 1, 2, 3, 9, 10, 11, 1 << 40], dtype=np.int64))
    assert places.tolist() == [-1, 0, 0, 1, 4, 4, -1, -1]
    found = ledger.holding(np.array([9, 3, 4, 99], dtype=np.int64))
    assert found["number"].tolist() == [4, 10]
    assert found["position"].tolist() == [3, 9]
    assert ledger.chain_at(3) == (3, 200)
    assert ledger.chain_at(4) == (5, 400)
    assert ledger.chain_at(11) == (11, 1_000)
    assert ledger.chain_at(12) is None
    assert ledger.chain_before(4) == (3, 200)
    assert ledger.chain_before(50) == (11, 1_000)
    assert ledger.chain_before(0) is None


def test_a_beginning_without_live_rows_is_given_back() -> None:
    ledger = filled(5)
    assert ledger.give_back(10) is None
    ledger.free(locators(1))
    assert ledger.give_back(10) == 2
    assert ledger.byte_count == 4_000
    ledger.free(locators(5))
    assert ledger.give_back(10) is None, "the one before it is live"
    ledger.free(locators(3))
    assert ledger.give_back(5) == 3, "entry 6 may be needed for replay"
    assert ledger.give_back(6) == 4
    ledger.free(locators(7, 9))
    assert ledger.give_back(10) == 6, "nothing is left but the number of the next"
    assert (len(ledger), ledger.byte_count, ledger.first_position) == (0, 0, 11)
    add(ledger)
    assert (len(ledger), ledger.first_position) == (1, 11)


def test_rows_are_freed_once() -> None:
    ledger = filled(3)
    ledger.free(locators(3))
    with pytest.raises(InternalError):
        ledger.free(locators(3))
    ledger.free(locators(0, 99))  # gone long ago, or never there


def test_adopt_counts_and_a_mostly_dead_beginning_is_sparse() -> None:
    ledger = filled(10)
    assert ledger.sparse(20) is None
    live = np.concatenate([locators(1, rows=3), locators(19)])
    ledger.adopt(iter([live[:2], live[2:]]))
    assert ledger.give_back(20) is None
    ranges = ledger.sparse(18)
    assert ranges is not None
    assert ranges.tolist() == [[1, 18]]
    assert ledger.sparse(1) is None
    ledger.free(locators(1, rows=3))
    assert ledger.give_back(20) == 10
    assert ledger.sparse(20) is None


def test_a_snapshot_brings_it_back() -> None:
    ledger = filled(7)
    for position, number, first in ((0, 1, 1), (1, 1, 1), (2, 2, 3), (5, 3, 5), (13, 7, 13)):
        ordinal, stand = ledger.stand_after(position)
        assert (ordinal, stand.number, stand.position) == (number - 1, number, first)
    end, stand = ledger.stand_after(14)
    assert (end, stand) == (7, ledger.stand)
    base, blocks = ledger.blocks(end)
    again = Ledger.restored(base, [block.content for block in blocks], stand)
    add(again)
    add(ledger)
    again.adopt(iter([locators(1, 3)]))
    assert (again.tail, len(again), again.byte_count) == (16, 8, 8_000)
    positions = np.arange(20, dtype=np.int64)
    assert again.places(positions).tolist() == ledger.places(positions).tolist()
    empty = Ledger.restored(0, [], Stand())
    assert (empty.tail, len(empty)) == (0, 0)


def test_blocks_never_change_and_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)
    ledger = filled(9, entries=1)
    known = {block.name: block.content for block in ledger.blocks(9)[1]}
    assert list(known) == ["appends-0-4", "appends-4-8", "appends-8-9"]
    for position in range(1, 9):
        ledger.free(locators(position))
        ledger.give_back(position)
    base, blocks = ledger.blocks(9)
    assert base == 8
    assert {block.name: block.content for block in blocks}.items() <= known.items()
    assert ledger.places(np.array([7, 8, 9], dtype=np.int64)).tolist() == [-1, -1, 0]
    for _ in range(200):
        add(ledger, entries=1)
    assert ledger.tail == 209
    assert ledger.holding(np.array([209], dtype=np.int64))["number"].tolist() == [209]
