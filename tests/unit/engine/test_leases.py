"""Leases: ends, extensions, what is forgotten. Not here: statuses of commands (test_apply)."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.leases import Leases, held_mask, settled_leases
from dejaqueue.engine.table import LEASED, SCHEDULED, MessageTable


def leased_table(ends_ms: list[int], layout: Layout = TINY) -> tuple[MessageTable, Leases]:
    """A table of leased rows, in one lease of id 7 by the first end."""
    table, leases = MessageTable(layout), Leases(layout)
    count = len(ends_ms)
    table.append(np.array(ends_ms, dtype=np.int64), 0)
    table.states[:count], table.attempts[:count] = LEASED, 1
    leases.add(7, np.arange(count), np.ones(count, dtype=np.uint16), min(ends_ms))
    return table, leases


def test_rows_whose_lease_ended_are_given_back_once() -> None:
    table, leases = leased_table([50, 50, 50])
    assert leases.expire(table, 49) is None
    ended = leases.expire(table, 50)
    assert ended is not None
    assert ended.tolist() == [0, 1, 2]
    assert table.states[:3].tolist() == [SCHEDULED] * 3
    assert leases.expire(table, 99) is None
    assert not leases.by_id


def test_extended_rows_end_later__the_others_do_not_wait_for_them() -> None:
    table, leases = leased_table([50, 50, 50])
    table.dues_ms[1] = 80
    ended = leases.expire(table, 60)
    assert ended is not None
    assert ended.tolist() == [0, 2]
    assert leases.next_end_ms(table) == 80
    ended = leases.expire(table, 80)
    assert ended is not None
    assert ended.tolist() == [1]


def test_rows_may_end_earlier_than_their_lease() -> None:
    table, leases = leased_table([50, 50, 50])
    table.dues_ms[2] = 20
    leases.ends_earlier(-1, np.array([2]), np.array([1], dtype=np.uint16), 20)
    assert leases.next_end_ms(table) == 20
    ended = leases.expire(table, 30)
    assert ended is not None
    assert ended.tolist() == [2]
    assert leases.next_end_ms(table) == 50


def test_the_next_end_is_exact__rows_settled_one_by_one() -> None:
    table, leases = leased_table([50, 50, 60, 70])
    for place, expected in ((1, 50), (0, 60), (2, 70), (3, None)):
        table.finish(np.array([place]))
        assert leases.next_end_ms(table) == expected


def test_asking_for_the_next_end_changes_nothing_that_counts() -> None:
    table, leases = leased_table([50, 60])
    table.finish(np.array([0]))
    assert [lease.lease_id for lease in leases.held(table)] == [7]
    assert leases.next_end_ms(table) == 60
    assert [lease.lease_id for lease in leases.held(table)] == [7]
    assert leases.by_id[7].sequences.tolist() == [0, 1]


def test_settled_leases_are_forgotten_before_they_pile_up() -> None:
    layout = Layout(slab_bits=3, sweep_rows_min=20, sweep_groups_min=8)
    table, leases = MessageTable(layout), Leases(layout)
    for lease_id in range(200):
        sequence = table.append(np.array([9_999]), 0)
        places = table.places(np.array([sequence]))
        table.states[places], table.attempts[places] = LEASED, 1
        leases.add(lease_id, np.array([sequence]), np.ones(1, dtype=np.uint16), 9_999)
        if lease_id != 3:
            table.finish(places)
        leases.sweep(table, 1)
    assert len(leases.by_id) < 30
    assert 3 in leases.by_id
    assert leases.next_end_ms(table) == 9_999


def test_a_row_is_held_with_its_attempt_only() -> None:
    table, leases = leased_table([50, 50])
    places = np.array([0, 1])
    assert held_mask(table, places, np.array([1, 2], dtype=np.uint16)).tolist() == [True, False]
    assert settled_leases(table, list(leases.by_id.values())) == []
    table.finish(places)
    assert settled_leases(table, list(leases.by_id.values())) == [leases.by_id[7]]


def test_dropping_twice_is_fine() -> None:
    leases = Leases(STANDARD)
    leases.add(1, np.array([0]), np.ones(1, dtype=np.uint16), 10)
    leases.drop(1)
    leases.drop(1)
    assert leases.row_count == 0


def test_the_lease_of_a_row_is_the_newest_with_its_attempt() -> None:
    leases = Leases(TINY)
    once, twice = np.ones(3, dtype=np.uint16), np.full(1, 2, dtype=np.uint16)
    leases.add(7, np.array([4, 2, 9]), once, 50)
    leases.add(8, np.array([2]), twice, 60)
    leases.add(9, np.array([5]), once[:1], 60)
    rows = np.array([9, 2, 5, 3, 77])
    assert leases.ids_of(rows, np.array([1, 2, 1, 1, 1], dtype=np.uint16)).tolist() == [
        7, 8, 9, -1, -1,
    ]  # fmt: skip
    assert leases.ids_of(np.array([2]), once[:1]).tolist() == [-1], "an attempt that is over"
    assert leases.ids_of(np.array([5]), twice).tolist() == [-1]
    assert Leases(TINY).ids_of(rows[:1], once[:1]).tolist() == [-1]


def test_only_so_many_leases_are_looked_through__the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leases, once = Leases(TINY), np.ones(1, dtype=np.uint16)
    for sequence in range(4):
        leases.add(sequence, np.array([sequence]), once, 50)
    monkeypatch.setattr("dejaqueue.engine.leases.LOOKED_LEASES_MAX", 2)
    assert leases.ids_of(np.arange(4), np.ones(4, dtype=np.uint16)).tolist() == [-1, -1, 2, 3]
    monkeypatch.setattr("dejaqueue.engine.leases.LOOKED_ROWS_MAX", 1)
    assert leases.ids_of(np.arange(4), np.ones(4, dtype=np.uint16)).tolist() == [-1, -1, -1, 3]
