"""Covers: pairs are sorted by key and then by sequence, whatever their span; numbers once each;
texts as codes."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine.arrays import Words, distinct, sort_pairs


@pytest.mark.parametrize("span", [0, 3, 1_000, 1 << 40, 1 << 62], ids=lambda s: f"span={s}")
@pytest.mark.parametrize("count", [0, 1, 2, 500, 5_000])
def test_pairs_are_sorted_by_key_then_sequence(span: int, count: int) -> None:
    rng = np.random.default_rng(count)
    keys = rng.integers(-span, span + 1, count)
    sequences = rng.permutation(count) + (1 << 46)
    found = sort_pairs(keys, sequences)
    expected = sorted(zip(keys.tolist(), sequences.tolist(), strict=True))
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == expected


def test_ties_of_far_apart_sequences_are_sorted_too() -> None:
    keys = np.array([5] * 100, dtype=np.int64)
    sequences = np.concatenate([np.array([1 << 62], dtype=np.int64), np.arange(98, -1, -1)])
    assert sort_pairs(keys, sequences)[1].tolist() == [*range(99), 1 << 62]


@pytest.mark.parametrize("count", [0, 1, 2, 1_000])
def test_numbers_are_given_once_ascending__and_stay_as_they_were(count: int) -> None:
    numbers = np.random.default_rng(count).integers(-count, count + 1, count)
    numbers.flags.writeable = False
    found = distinct(numbers)
    assert found.tolist() == sorted(set(numbers.tolist()))
    assert found.dtype == np.int64


def test_numbers_that_ascend_are_not_copied() -> None:
    numbers = np.arange(5)
    assert distinct(numbers) is numbers
    twice = np.array([1, 1, 2])
    assert distinct(twice).tolist() == [1, 2]


def test_rows_of_a_dictionary_are_taken_by_their_indices() -> None:
    words = Words(("a", "b", "c"), np.array([0, 1, 1, 2], dtype=np.int32))
    taken = words.take(np.array([3, 1], dtype=np.int64))
    assert [taken.names[index] for index in taken.indices.tolist()] == ["c", "b"]
