"""The key index finds live messages, all of them and no other, however it lies in memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from dejaqueue.engine import key_index
from dejaqueue.engine.key_index import KeyIndex
from dejaqueue.engine.layout import STANDARD, TINY, Layout

SMALLEST = Layout(key_bucket_bits=0)
LAYOUTS = pytest.mark.parametrize(
    "layout", [SMALLEST, TINY, STANDARD], ids=["smallest", "tiny", "standard"]
)


class Rows:
    """A table of messages, as far as the index looks into it."""

    def __init__(self, count: int, base: int = 0) -> None:
        self.base = base
        self.hashes = np.zeros(count, dtype=np.int64)
        self.live = np.zeros(count, dtype=np.bool_)
        self.next_sequence = base

    def add(self, hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        sequences = np.arange(self.next_sequence, self.next_sequence + hashes.size)
        self.hashes[sequences - self.base] = hashes
        self.live[sequences - self.base] = True
        self.next_sequence += hashes.size
        return sequences

    def live_key_hashes(self, sequences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        inside = (sequences >= self.base) & (sequences < self.next_sequence)
        places = np.where(inside, sequences - self.base, 0)
        return np.where(inside & self.live[places], self.hashes[places], 0)

    def with_hash(self, key_hash: int) -> list[int]:
        return (np.flatnonzero(self.live & (self.hashes == key_hash)) + self.base).tolist()


def check(index: KeyIndex, rows: Rows, wanted: npt.NDArray[np.int64]) -> None:
    places, found = index.candidates(wanted, rows)
    expected = [
        (place, sequence)
        for place, key_hash in enumerate(wanted.tolist())
        if key_hash
        for sequence in rows.with_hash(key_hash)
    ]
    assert list(zip(places.tolist(), found.tolist(), strict=True)) == expected


@LAYOUTS
@pytest.mark.parametrize("base", [0, (1 << 32) - 700, 1 << 40])
def test_lookups_find_exactly_the_live_messages(layout: Layout, base: int) -> None:
    """Many have equal hashes, more than there are slots for them."""
    rng = np.random.default_rng(9)
    index, rows = KeyIndex(layout), Rows(6_000, base)
    for first in range(0, 6_000, 60):
        hashes = rng.integers(0, 300, 60)  # 0: no key
        index.insert(hashes, rows.add(hashes), rows)
        rows.live[rng.integers(0, first + 60, 50)] = False
        check(index, rows, rng.integers(-2, 320, 20))


@LAYOUTS
def test_every_key_is_found_while_the_index_grows(layout: Layout) -> None:
    rng = np.random.default_rng(3)
    index, rows = KeyIndex(layout), Rows(30_000)
    hashes = rng.integers(-(1 << 63), (1 << 63) - 1, 30_000)
    for first in range(0, 30_000, 500):
        part = hashes[first : first + 500]
        index.insert(part, rows.add(part), rows)
        places, found = index.candidates(hashes[: first + 500], rows)
        assert np.array_equal(places, np.arange(first + 500))
        assert np.array_equal(found, np.arange(first + 500))
        assert index.candidates(hashes[first + 500 :], rows)[0].size == 0


@pytest.mark.parametrize(("small_rows", "byte_count"), [(50_000, 12), (1 << 20, 22)])
def test_it_takes_12_bytes_a_key_at_most__but_a_small_one_may_take_more(
    monkeypatch: pytest.MonkeyPatch, small_rows: int, byte_count: int
) -> None:
    """With the 8 of the hash in the table of messages: 20."""
    monkeypatch.setattr(key_index, "_SMALL_ROWS", small_rows)
    rng = np.random.default_rng(4)
    index, rows = KeyIndex(), Rows(400_000)
    for first in range(0, 400_000, 1_000):
        hashes = rng.integers(1, (1 << 63) - 1, 1_000)
        index.insert(hashes, rows.add(hashes), rows)
        if first >= 200_000 and not index.is_moving:
            assert 5 * index.slot_count <= byte_count * rows.next_sequence


def test_a_key_that_is_replaced_again_and_again_takes_no_more_room() -> None:
    index, rows = KeyIndex(), Rows(20_000)
    key = np.array([77])
    for sequence in range(20_000):
        if sequence:
            rows.live[sequence - 1] = False
        index.insert(key, rows.add(key), rows)
    check(index, rows, key)
    assert index.slot_count == STANDARD_BLOCK_SLOTS
    assert index.lost_count == 0


STANDARD_BLOCK_SLOTS = 8 << STANDARD.key_bucket_bits


@LAYOUTS
def test_done_messages_make_room__keyed_messages_come_and_go(layout: Layout) -> None:
    rng = np.random.default_rng(5)
    index, rows = KeyIndex(layout), Rows(60_000)
    for first in range(0, 60_000, 20):
        hashes = rng.integers(1, (1 << 63) - 1, 20)
        index.insert(hashes, rows.add(hashes), rows)
        rows.live[: max(0, first - 200)] = False
    check(index, rows, rows.hashes[-400:])
    assert index.slot_count <= max(2_000, 2 * STANDARD_BLOCK_SLOTS)


def test_two_messages_2_to_the_32_apart_are_told_apart() -> None:
    """The index keeps half of a sequence; the table of messages knows the rest."""
    index, rows = KeyIndex(TINY), Rows(4)

    class Far:
        base = 0
        next_sequence = (1 << 32) + 4

        def live_key_hashes(self, sequences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            near = sequences < 4
            far = sequences >= 1 << 32
            places = np.where(near | far, sequences & 3, 0)
            return np.where(near, 11 + places, np.where(far, 21 + places, 0))

    far = Far()
    near_hashes, far_hashes = np.arange(11, 15), np.arange(21, 25)
    index.insert(near_hashes, np.arange(4), rows)
    index.insert(far_hashes, np.arange(4) + (1 << 32), far)
    assert index.candidates(near_hashes, far)[1].tolist() == [0, 1, 2, 3]
    assert index.candidates(far_hashes, far)[1].tolist() == [(1 << 32) + n for n in range(4)]


def test_an_empty_index_finds_nothing() -> None:
    places, found = KeyIndex().candidates(np.array([1, 2]), Rows(1))
    assert (places.size, found.size) == (0, 0)
