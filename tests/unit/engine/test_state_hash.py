"""The state hash sees everything that counts, and nothing else (rule 13)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dejaqueue.engine.commands import Ack, Enqueue, Lease, Move, SubBatch
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY


def filled() -> Engine:
    engine = Engine(0, TINY)
    batches = (SubBatch("p", 1, 4),)
    engine.apply(Enqueue(0, 1, np.arange(4), batches, np.arange(4)))
    engine.apply(Lease(5, 2, 1, 9, 80))
    return engine


CHANGES: dict[str, Callable[[Engine], object]] = {
    "due": lambda e: e.state.table.dues_ms.__setitem__(3, 99),
    "state": lambda e: e.state.table.states.__setitem__(3, 2),
    "attempts": lambda e: e.state.table.attempts.__setitem__(3, 2),
    "locator": lambda e: e.state.table.locators.__setitem__(3, 2),
    "time": lambda e: setattr(e.state, "now_ms", 6),
    "epoch": lambda e: setattr(e.state, "epoch", 1),
    "a count": lambda e: setattr(e.state.counts, "moved", 1),
    "a lease": lambda e: e.state.leases.drop(2),
    "an answer": lambda e: e.state.producers.remember(SubBatch("p", 2, 1), 4, 5),
    "silence": lambda e: e.state.producers.remember(SubBatch("p", 1, 4), 0, 6),
    "a key": lambda e: e.state.table.key_hashes.__setitem__(3, 7),
    "sequences": lambda e: e.state.table.append(np.array([5]), 5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_part_counts(name: str) -> None:
    engine = filled()
    CHANGES[name](engine)
    assert engine.state_hash() != filled().state_hash()


def test_equal_commands_give_equal_hashes() -> None:
    assert filled().state_hash() == filled().state_hash()


def test_remains_do_not_count__dead_entries_and_settled_leases() -> None:
    one, other = filled(), filled()
    for engine in (one, other):
        engine.apply(Move(6, np.array([3]), np.array([50])))
        engine.apply(Ack(6, -1, np.array([0, 1]), np.array([1, 1], dtype=np.uint16)))
    one.state.leases.drop(2)
    one.next_due_ms()
    one.state.order.sort_young(None)
    assert one.state_hash() == other.state_hash()
