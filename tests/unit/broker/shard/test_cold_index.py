"""What is known of cold payloads."""

from __future__ import annotations

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.shard.cold_index import ColdIndex, needed_ms
from dejaqueue.engine.commands import Ack, Cancel, InView
from dejaqueue.schema.references import Reference
from tests.unit.engine.test_views import Partition


def test_messages_are_added_to_their_objects() -> None:
    index, first, second = ColdIndex(), Reference("a", 5, b""), Reference("b", 6, b"")
    assert index.row_count == 0
    index.add(first, np.array([1, 2]))
    index.add(second, np.array([3]))
    index.add(first, np.array([7]))
    assert index.objects["a"].sequences.tolist() == [1, 2, 7]
    assert index.objects["b"].whole == second
    assert index.row_count == 4


def test_when_a_message_is_needed_first_in_any_view() -> None:
    partition = Partition()
    partition.open("later")
    number = partition.open("log", by_arrival=True)
    [soon, late] = partition.send(5_000, 9_000)
    both, end = np.array([soon, late]), limits.INSTANT_MS_MAX + 1
    arrived_ms = int(needed_ms(partition.views, both)[0])
    assert arrived_ms <= partition.now_ms, "in a view by arrival it is due when it comes"
    leased = partition.lease(number)
    assert needed_ms(partition.views, both).tolist() == [0, 0]
    partition.apply(InView, number, Ack(partition.now_ms + 1, leased.lease_id))
    assert needed_ms(partition.views, both).tolist() == [5_000, 9_000]
    partition.apply(Cancel, both[:1])
    assert needed_ms(partition.views, both).tolist() == [end, 9_000]
