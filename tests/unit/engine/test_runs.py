"""SortedRuns against a sorted list: ties, dead entries, repeats, draws, sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.page import read_pages
from dejaqueue.engine.runs import SortedRuns, first_to_merge

FAR = 1 << 60


def int64s(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def everything(keys: np.ndarray, sequences: np.ndarray) -> np.ndarray:
    return np.ones(keys.size, dtype=np.bool_)


def test_runs_that_shrank_are_merged_wherever_they_stand() -> None:
    lengths: list[Any] = [range(100), range(20), range(20), range(20), range(3)]
    assert first_to_merge(lengths) == 1
    lengths = [range(9), range(4), range(2)]
    assert first_to_merge(lengths) == 2


class Board:
    """Where each message is: what makes an entry alive."""

    def __init__(self, count: int) -> None:
        self.keys = np.full(count, -1, dtype=np.int64)

    def is_alive(self, keys: np.ndarray, sequences: np.ndarray) -> np.ndarray:
        alive: np.ndarray = self.keys[sequences] == keys
        return alive

    def expected(self) -> list[tuple[int, int]]:
        live = np.flatnonzero(self.keys >= 0)
        return sorted(zip(self.keys[live].tolist(), live.tolist(), strict=True))


LAYOUTS = {
    "tiny": TINY,
    "middle": Layout(seal_rows=300, draw_rows=64, young_batches_max=4, sweep_rows_min=50),
    "standard": STANDARD,
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("span", [4, 300, 1 << 40], ids=lambda s: f"span={s}")
def test_it_is_a_sorted_list__random_inserts_moves_removals_pops(
    layout: Layout, seed: int, span: int
) -> None:
    rng = np.random.default_rng(seed)
    board, order, used = Board(4_000), SortedRuns(layout), 0
    for _ in range(150):
        what = int(rng.integers(0, 6))
        if what <= 1 and used < 3_900:
            count = int(rng.integers(1, 60))
            sequences = np.arange(used, used + count)
            used += count
            board.keys[sequences] = rng.integers(0, span, count)
            order.insert(board.keys[sequences].copy(), sequences)
        elif what == 2 and used:
            live = np.flatnonzero(board.keys >= 0)
            if live.size:
                moved = rng.choice(live, min(live.size, 30), replace=False)
                board.keys[moved] = rng.integers(0, span, moved.size)
                order.insert(board.keys[moved].copy(), moved)
        elif what == 3 and used:
            board.keys[rng.integers(0, used, 10)] = -1
        else:
            count, until = int(rng.integers(1, 80)), int(rng.integers(0, span + 1))
            expected = [pair for pair in board.expected() if pair[0] <= until][:count]
            keys, sequences = order.pop(count, until, board.is_alive)
            assert list(zip(keys.tolist(), sequences.tolist(), strict=True)) == expected
            board.keys[sequences] = -1
        expected = board.expected()
        assert order.head(board.is_alive) == (expected[0][0] if expected else None)
        order.sweep(board.is_alive, len(expected))
    pages = read_pages(order, (-1, -1), FAR, 50, board.is_alive)
    paged = [pair for page in pages for pair in zip(*map(np.ndarray.tolist, page), strict=True)]
    assert paged == board.expected()
    keys, sequences = order.pop(4_000, FAR, board.is_alive)
    assert list(zip(keys.tolist(), sequences.tolist(), strict=True)) == board.expected()


def test_a_message_that_was_moved_away_and_back_comes_out_once() -> None:
    board, order = Board(2), SortedRuns(TINY)
    board.keys[:] = 5
    for _ in range(20):
        order.insert(int64s(5, 5), int64s(0, 1))
    assert order.pop(1, 9, board.is_alive)[1].tolist() == [0]
    board.keys[0] = -1
    assert order.pop(9, 9, board.is_alive)[1].tolist() == [1]


def test_a_repeat_is_not_taken_for_a_message__at_the_edge_of_a_look() -> None:
    board, order = Board(2), SortedRuns(STANDARD)
    board.keys[:] = 5
    order.insert(int64s(5, 5, 5, 5), int64s(0, 0, 1, 1))
    assert order.pop(3, 9, board.is_alive)[1].tolist() == [0, 1]


def test_sweeping_keeps_memory_bounded__the_same_messages_moved_for_ever() -> None:
    board, order = Board(20), SortedRuns(TINY)
    rng = np.random.default_rng(1)
    for turn in range(500):
        board.keys[:] = 100 + turn % 2 if turn % 3 else rng.integers(0, 200, 20)
        order.insert(board.keys.copy(), np.arange(20))
        for _ in range(4):
            order.sweep(board.is_alive, 20)
    assert order.entry_count < 200


def test_pops_draw_a_bounded_part_of_the_sealed_runs() -> None:
    layout = Layout(seal_rows=1_000, draw_rows=256, young_batches_max=1)
    order = SortedRuns(layout)
    rng = np.random.default_rng(3)
    for first in range(0, 20_000, 1_000):
        order.insert(rng.integers(0, 1 << 40, 1_000), np.arange(first, first + 1_000))
    assert len(order.sealed) >= 15
    small_before = sum(map(len, order.small))
    order.pop(10, FAR, everything)
    assert sum(map(len, order.small)) - small_before < 1_000


def test_a_hot_instant_in_one_run_is_drawn_piece_by_piece() -> None:
    order = SortedRuns(Layout(seal_rows=1_000, draw_rows=256, young_batches_max=1))
    for first in range(0, 10_000, 1_000):
        order.insert(np.full(1_000, 77), np.arange(first, first + 1_000))
    popped = [order.pop(100, 77, everything)[1] for _ in range(100)]
    assert np.concatenate(popped).tolist() == list(range(10_000))
    assert order.pop(1, 77, everything)[1].size == 0


def test_young_batches_stay_unsorted_until_their_time() -> None:
    order = SortedRuns(STANDARD)
    order.insert(int64s(900, 800), int64s(0, 1))
    order.insert(int64s(10, 950), int64s(2, 3))
    assert order.pop(5, 500, everything)[1].tolist() == [2]
    assert len(order.young) == 1
    assert order.head(everything) == 800
