"""Covers: what is counted as live, and that records of two partitions share nothing.

Not covered: which command counts what (test_apply.py, test_decisions.py), and how records are
stored (test_snapshot.py).
"""

from __future__ import annotations

from dataclasses import asdict, fields

import numpy as np
import pytest

from dejaqueue.engine.commands import Ack, Bury, Cancel, Decide, Enqueue, Lease, Nack, Stage
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.records import Counts, DeadGroup, Staged

STATES = ("scheduled", "leased", "dead", "staged", "staged_acks")
STAGE = Stage("t/0/1", 900)


@pytest.mark.parametrize("name", STATES)
def test_a_message_in_a_state_is_live(name: str) -> None:
    assert Counts(**{name: 3}).live == 3


@pytest.mark.parametrize(
    "name", [field.name for field in fields(Counts) if field.name not in STATES]
)
def test_what_happened_is_no_message(name: str) -> None:
    """Totals only rise: one that were counted as live would fill a topic for ever."""
    assert Counts(**{name: 3}).live == 0


def test_live_is_what_the_table_holds__whatever_state_the_messages_are_in() -> None:
    """One message in each state, two that are done, against the rows of the table."""
    engine = Engine(0, TINY)
    one = np.array([1], dtype=np.uint16)
    engine.apply(Enqueue(0, 1, np.zeros(6, dtype=np.int64), ()))
    engine.apply(Lease(1, 2, 1, 4, 1_000))
    engine.apply(Ack(1, sequences=np.array([0]), attempts=one))
    engine.apply(Ack(1, sequences=np.array([1]), attempts=one, stage=STAGE))
    engine.apply(Nack(1, -1, sequences=np.array([2]), attempts=one, bury=True))
    engine.apply(Enqueue(1, 3, np.zeros(1, dtype=np.int64), (), stage=STAGE))
    engine.apply(Cancel(1, np.array([5])))
    counts = engine.counts
    assert [getattr(counts, name) for name in STATES] == [1, 1, 1, 1, 1]
    assert counts.live == sum(part.size for part in engine.live_sequences()) == 5
    engine.apply(Bury(2, 0))
    engine.apply(Decide(2, "t/0/1", commit=False))
    assert counts.live == sum(part.size for part in engine.live_sequences())
    assert (counts.buried, counts.aborted, counts.live) == (1, 1, 3)


def test_two_transactions_do_not_share_what_they_staged() -> None:
    one, other = Staged(900), Staged(900)
    one.enqueued.append(np.array([1]))
    one.acked.append(np.array([2]))
    one.replaced.append(np.array([3]))
    assert (other.enqueued, other.acked, other.replaced) == ([], [], [])


def test_the_dead_go_to_the_dead_letter_topic__unless_another_one_is_named() -> None:
    assert DeadGroup(np.array([1]), "nacked", 5).destination == ""


def test_counts_begin_at_nothing_and_are_whole_numbers() -> None:
    """They go into a snapshot and into the hash of the state as they are."""
    assert set(asdict(Counts()).values()) == {0}
    assert {type(value) for value in asdict(Counts()).values()} == {int}
