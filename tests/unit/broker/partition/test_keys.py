"""Keys that repeat within a batch, and keys against what is stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.broker.partition.keys import find_repeats


def test_the_first_of_equal_keys_is_named() -> None:
    keys = pa.array(["a", "b", "a", "", "a", ""])
    hashes = np.array([11, 22, 11, 0, 11, 0])
    firsts = find_repeats(keys, hashes)
    assert firsts is not None
    assert firsts.tolist() == [-1, -1, 0, -1, 0, -1]


def test_equal_hashes_of_other_texts_repeat_nothing() -> None:
    firsts = find_repeats(pa.array(["a", "b"]), np.array([5, 5]))
    assert firsts is not None
    assert firsts.tolist() == [-1, -1]


def test_no_keys_at_all() -> None:
    assert find_repeats(pa.array(["", ""]), np.array([0, 0])) is None
