"""What is known of cold payloads."""

from __future__ import annotations

import numpy as np

from dejaqueue.broker.shard.cold_index import ColdIndex
from dejaqueue.schema.references import Reference


def test_messages_are_added_to_their_objects() -> None:
    index, first, second = ColdIndex(), Reference("a", 5, b""), Reference("b", 6, b"")
    assert index.row_count == 0
    index.add(first, np.array([1, 2]))
    index.add(second, np.array([3]))
    index.add(first, np.array([7]))
    assert index.objects["a"].sequences.tolist() == [1, 2, 7]
    assert index.objects["b"].whole == second
    assert index.row_count == 4
