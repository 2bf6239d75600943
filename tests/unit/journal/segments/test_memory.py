"""Covers: the array over all maps."""

from __future__ import annotations

import numpy as np

from dejaqueue.journal.segments.memory import SPACE, address_of


def test_memory_is_seen_by_address() -> None:
    array = np.arange(1000, dtype=np.int32)
    start = address_of(array)
    assert SPACE.words[(start >> 2) + np.array([3, 999, 0])].tolist() == [3, 999, 0]
    assert SPACE.anywhere[np.array([start + 4, start + 8])].tolist() == [1, 2]
    assert SPACE.flags[start + 4 : start + 8].tolist() == [1, 0, 0, 0]
    assert not SPACE.words.flags.writeable
