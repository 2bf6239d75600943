"""Covers: which append has which entries, what is live, and what may be dropped."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.errors import InternalError
from dejaqueue.journal.interface import Int64s
from dejaqueue.journal.records import append_index as module
from dejaqueue.journal.records.append_index import AppendIndex, ReadCursor


def filled(appends: int, entries: int = 2, rows: int = 10, gap: int = 0) -> AppendIndex:
    """Appends of some entries each, every one in a record of its own."""
    append_index = AppendIndex()
    append_index.adopt_nothing()
    for number in range(appends):
        add(append_index, entries, rows, gap)
        assert len(append_index) == number + 1
    return append_index


def add(append_index: AppendIndex, entries: int = 2, rows: int = 10, gap: int = 0) -> None:
    before = append_index.stand
    number = before.number + gap
    after = ReadCursor(number + 1, number * 10, before.position + entries, number * 100)
    append_index.add(
        after, entries=entries, byte_count=1_000, rows=rows, readable_bytes=800, parts=1,
        number=number, chain_before=before.chain,
    )  # fmt: skip


def locators(*positions: int, rows: int = 10) -> Int64s:
    at = np.array(positions, dtype=np.int64)
    return np.asarray((at[:, None] << 20 | np.arange(rows)).ravel())


def test_entries_are_found_in_their_appends() -> None:
    append_index = filled(5, gap=1)
    assert append_index.tail == 10
    places = append_index.places(np.array([0, 1, 2, 3, 9, 10, 11, 1 << 40], dtype=np.int64))
    assert places.tolist() == [-1, 0, 0, 1, 4, 4, -1, -1]
    found = append_index.holding(np.array([9, 3, 4, 99], dtype=np.int64))
    assert found["number"].tolist() == [4, 10]
    assert found["position"].tolist() == [3, 9]
    assert append_index.chain_at(3) == (3, 200)
    assert append_index.chain_at(4) == (5, 400)
    assert append_index.chain_at(11) == (11, 1_000)
    assert append_index.chain_at(12) is None
    assert append_index.chain_before(4) == (3, 200)
    assert append_index.chain_before(50) == (11, 1_000)
    assert append_index.chain_before(0) is None


def test_a_beginning_without_live_rows_is_given_back() -> None:
    append_index = filled(5)
    assert append_index.give_back(10) is None
    append_index.free(locators(1))
    assert append_index.give_back(10) == 2
    assert append_index.byte_count == 4_000
    append_index.free(locators(5))
    assert append_index.give_back(10) is None, "the one before it is live"
    append_index.free(locators(3))
    assert append_index.give_back(5) == 3, "entry 6 may be needed for replay"
    assert append_index.give_back(6) == 4
    append_index.free(locators(7, 9))
    assert append_index.give_back(10) == 6, "nothing is left but the number of the next"
    assert (len(append_index), append_index.byte_count, append_index.first_position) == (0, 0, 11)
    add(append_index)
    assert (len(append_index), append_index.first_position) == (1, 11)


def test_rows_are_freed_once() -> None:
    append_index = filled(3)
    append_index.free(locators(3))
    with pytest.raises(InternalError):
        append_index.free(locators(3))
    append_index.free(locators(0, 99))  # gone long ago, or never there


def test_adopt_counts_and_a_mostly_dead_beginning_is_sparse() -> None:
    append_index = filled(10)
    assert append_index.sparse(20) is None
    live = np.concatenate([locators(1, rows=3), locators(19)])
    append_index.adopt(iter([live[:2], live[2:]]))
    assert append_index.give_back(20) is None
    ranges = append_index.sparse(18)
    assert ranges is not None
    assert ranges.tolist() == [[1, 18]]
    assert append_index.sparse(1) is None
    append_index.free(locators(1, rows=3))
    assert append_index.give_back(20) == 10
    assert append_index.sparse(20) is None


def test_a_snapshot_brings_it_back() -> None:
    append_index = filled(7)
    for position, number, first in ((0, 1, 1), (1, 1, 1), (2, 2, 3), (5, 3, 5), (13, 7, 13)):
        ordinal, stand = append_index.stand_after(position)
        assert (ordinal, stand.number, stand.position) == (number - 1, number, first)
    end, stand = append_index.stand_after(14)
    assert (end, stand) == (7, append_index.stand)
    base, blocks = append_index.blocks(end)
    again = AppendIndex.restored(base, [block.content for block in blocks], stand)
    add(again)
    add(append_index)
    again.adopt(iter([locators(1, 3)]))
    assert (again.tail, len(again), again.byte_count) == (16, 8, 8_000)
    positions = np.arange(20, dtype=np.int64)
    assert again.places(positions).tolist() == append_index.places(positions).tolist()
    empty = AppendIndex.restored(0, [], ReadCursor())
    assert (empty.tail, len(empty)) == (0, 0)


def test_blocks_never_change_and_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)
    append_index = filled(9, entries=1)
    known = {block.name: block.content for block in append_index.blocks(9)[1]}
    assert list(known) == ["appends-0-4", "appends-4-8", "appends-8-9"]
    for position in range(1, 9):
        append_index.free(locators(position))
        append_index.give_back(position)
    base, blocks = append_index.blocks(9)
    assert base == 8
    assert {block.name: block.content for block in blocks}.items() <= known.items()
    assert append_index.places(np.array([7, 8, 9], dtype=np.int64)).tolist() == [-1, -1, 0]
    for _ in range(200):
        add(append_index, entries=1)
    assert append_index.tail == 209
    assert append_index.holding(np.array([209], dtype=np.int64))["number"].tolist() == [209]


def test_what_lies_up_to_a_position_is_told() -> None:
    append_index = filled(5)  # entries 1 and 2, 3 and 4, …
    assert (append_index.first_number, append_index.end_of(np.array([3, 6]))) == (1, 6)
    assert append_index.end_of(np.array([99])) == append_index.end_of(np.array([], np.int64)) == 0
    assert (append_index.bytes_to(0), append_index.bytes_to(4)) == (0, 2_000)
    append_index.free(locators(1))
    append_index.free(locators(5))
    assert append_index.live_to(2) is None
    found = append_index.live_to(6)
    assert found is not None
    assert found.tolist() == [[3, 4]]
    append_index.give_back(10)
    assert append_index.first_number == 2
    assert append_index.bytes_to(4) == 1_000
    append_index.free(locators(3, 7, 9))
    assert append_index.give_back(10) == append_index.first_number == 6
    assert append_index.live_to(10) is None


def test_before_it_is_known_what_is_live_nothing_is() -> None:
    append_index = AppendIndex()
    add(append_index)
    assert append_index.live_to(2) is None


def test_appends_are_read_in_runs() -> None:
    append_index = filled(5)
    assert append_index.run(4, 11, 2_500).tolist() == [3, 5]
    assert append_index.run(4, 11, 1).tolist() == [3]
    assert append_index.run(4, 6, 9_000).tolist() == [3, 5]
    assert append_index.run(4, 5, 9_000).tolist() == [3]
    assert append_index.run(9, 11, 9_000).tolist() == [9]


def test_it_is_known_up_to_where_something_is_dead() -> None:
    append_index = AppendIndex()
    add(append_index)
    assert append_index.dead_to() is None, "live rows were not counted yet"
    append_index = filled(5)
    assert append_index.dead_to() == 0
    append_index.free(locators(5, rows=1))
    assert append_index.dead_to() == 6
    append_index.free(locators(1))
    assert append_index.dead_to() == 6
    append_index.free(locators(3))
    append_index.give_back(10)
    assert append_index.first_position == 5
    assert append_index.dead_to() == 6
    append_index.free(locators(5)[1:])
    append_index.give_back(10)
    assert append_index.first_position == 7
    assert append_index.dead_to() == 6, "what was given back was something"
