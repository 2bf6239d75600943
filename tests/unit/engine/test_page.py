"""Pages of the order index, across runs of all ages. Selections over them: test_engine.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.layout import STANDARD, TINY
from dejaqueue.engine.page import read_pages, scan_pages
from dejaqueue.engine.runs import SortedRuns

START = (-1, -1)


def all_alive(keys: Int64s, sequences: Int64s) -> Mask:
    return np.ones(keys.size, dtype=np.bool_)


LAYOUTS = {"many_runs": TINY, "long_runs": replace(TINY, seal_rows=60), "one_run": STANDARD}


@pytest.fixture(params=list(LAYOUTS.values()), ids=list(LAYOUTS))
def order(request: pytest.FixtureRequest) -> SortedRuns:
    """Sequences 0 to 199, each due at sequence * 7 % 50, in batches of seven."""
    order = SortedRuns(request.param)
    for first in range(0, 200, 7):
        sequences = np.arange(first, min(first + 7, 200))
        order.insert(sequences * 7 % 50, sequences)
    return order


def pairs_of(order: SortedRuns, until: int, page_rows: int = 5) -> list[tuple[int, int]]:
    pages = read_pages(order, START, until, page_rows, all_alive)
    return [
        pair
        for keys, sequences in pages
        for pair in zip(keys.tolist(), sequences.tolist(), strict=True)
    ]


EXPECTED = sorted((sequence * 7 % 50, sequence) for sequence in range(200))


@pytest.mark.parametrize("page_rows", [1, 5, 1_000])
def test_entries_come_by_key_then_sequence__each_once(order: SortedRuns, page_rows: int) -> None:
    assert pairs_of(order, 49, page_rows) == EXPECTED


@pytest.mark.parametrize("until", [-1, 0, 20, 49, 50])
def test_no_entry_has_a_key_after_the_last(order: SortedRuns, until: int) -> None:
    assert pairs_of(order, until) == [pair for pair in EXPECTED if pair[0] <= until]


def test_reading_goes_on_behind_any_pair(order: SortedRuns) -> None:
    for after in ((0, 0), (20, 110), (20, 9_999), (49, 9_999)):
        [*pages] = scan_pages(order, after, 49, 5, all_alive)
        came = [
            pair
            for keys, sequences, _ in pages
            for pair in zip(keys.tolist(), sequences.tolist(), strict=True)
        ]
        assert came == [pair for pair in EXPECTED if pair > after]


def test_a_page_is_complete_up_to_the_pair_it_names(order: SortedRuns) -> None:
    before, reached = START, []
    for keys, sequences, cut in scan_pages(order, START, 49, 5, all_alive):
        reached.append(cut)
        last = cut or (49, 9_999)
        expected = [pair for pair in EXPECTED if before < pair <= last]
        assert list(zip(keys.tolist(), sequences.tolist(), strict=True)) == expected
        before = last
    assert reached[-1] is None
    assert None not in reached[:-1]


def test_a_long_run_is_read_in_several_pages() -> None:
    order = SortedRuns(STANDARD)
    order.insert(np.arange(200), np.arange(200))
    sizes = [keys.size for keys, _, _ in scan_pages(order, START, 150, 20, all_alive)]
    assert sizes == [40, 40, 40, 31]


def test_entries_that_are_not_alive_are_left_out(order: SortedRuns) -> None:
    pages = read_pages(order, START, 49, 5, lambda keys, sequences: sequences % 3 == 0)
    came = [number for _, sequences in pages for number in sequences.tolist()]
    assert came == [sequence for _, sequence in EXPECTED if sequence % 3 == 0]


def test_an_entry_that_is_there_twice_comes_once() -> None:
    order = SortedRuns(TINY)
    for _ in range(3):
        order.insert(np.array([5, 6]), np.array([1, 2]))
    assert pairs_of(order, 9) == [(5, 1), (6, 2)]


def test_an_empty_index_has_no_pages() -> None:
    assert list(read_pages(SortedRuns(TINY), START, 9, 5, all_alive)) == []
