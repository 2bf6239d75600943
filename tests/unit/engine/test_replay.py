"""Seeking: what comes back and what is passed over. All of it at random: tests/model."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine import replay
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Ack, Configure, InView, Nack, Seek, SetTime
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.table import MessageTable
from dejaqueue.engine.view_snapshots import plan_views_snapshot, restore_views
from dejaqueue.model import MessageState, TopicKind
from tests.unit.engine.test_retention import retaining
from tests.unit.engine.test_views import array

ALL = (0, 1_000_000, 0)
"""All messages, from the beginning."""


def test_what_comes_back_is_what_it_was() -> None:
    partition, _ = retaining()
    words = Words(("x", "y"), np.array([0, 1], dtype=np.int32))
    partition.send(
        5, 7,
        key_hashes=array(11, 12), priorities=np.array([1, 2], np.uint16), groups=words, tags=words,
        payload_sizes=np.array([10, 20], np.uint32), senders=words,
    )  # fmt: skip
    engine, sequences = partition.views.unnamed, array(0, 1)
    asked = ("dues", "priorities", "locators")
    before = {name: getattr(engine, name)(sequences).tolist() for name in asked}
    leased = partition.lease(0)
    partition.ack(0, leased)
    partition.send(6, key_hashes=array(11))
    assert partition.apply(Seek, *ALL).freed_locators.size == 0
    assert {name: getattr(engine, name)(sequences).tolist() for name in asked} == before
    assert engine.senders(sequences).names == ("x", "y")  # type: ignore[union-attr]
    assert sorted(engine.group_counts()[0]) == ["x", "y"]
    assert engine.backlog(0)[1] == 30
    assert partition.views.find_keys(array(11, 12))[1].tolist() == [2]  # its key is another's
    assert engine.counts.replayed == 2
    again = partition.lease(0)
    assert (again.sequences.tolist(), again.attempts.tolist()) == ([0, 2, 1], [2, 1, 2])
    # Whoever had it before has it no more.
    stale = Ack(partition.now_ms, sequences=leased.sequences, attempts=leased.attempts)
    assert partition.views.apply(stale).statuses is not None
    assert engine.states(sequences).tolist() == [MessageState.LEASED] * 2
    partition.views.check()


def test_attempts_before_a_replay_do_not_count() -> None:
    partition, _ = retaining()
    partition.apply(Configure, Rules(max_attempts=2, backoff_ms=100, jitter_parts=0).to_text())
    partition.send(5)
    partition.ack(0, partition.lease(0))
    partition.apply(Seek, *ALL)
    engine = partition.views.unnamed
    for state, wait_ms in ((MessageState.SCHEDULED, 100), (MessageState.DEAD, 0)):
        leased = partition.lease(0)
        partition.now_ms += 1
        partition.views.apply(Nack(partition.now_ms, -1, leased.lease_id))
        assert engine.states(array(0)).tolist() == [state]
        if wait_ms:  # as after a first attempt
            assert engine.dues(array(0)).tolist() == [partition.now_ms + wait_ms]
        # A clock that is put right leaves the rest of the wait.
        partition.views.apply(SetTime(partition.now_ms, 0))
        partition.now_ms += 200
    partition.apply(Seek, *ALL)  # the dead stay dead
    assert engine.counts.dead == 1
    partition.views.check()


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR])
def test_orders_that_are_not_of_time(kind: TopicKind) -> None:
    partition, _ = retaining()
    partition.apply(Configure, Rules(kind=kind).to_text())
    partition.send(5, 6, 7, priorities=np.array([3, 1, 2], np.uint16))
    expected = partition.lease(0)
    partition.ack(0, expected)
    partition.apply(Seek, *ALL)
    assert partition.lease(0).sequences.tolist() == expected.sequences.tolist()
    partition.views.check()


def test_a_log_gives_what_came_back_before_what_waits() -> None:
    partition, _ = retaining()
    view = partition.open("log", by_arrival=True)
    partition.send(9_000, 8_000)
    partition.ack(view, partition.lease(view))
    partition.now_ms += 500
    partition.send(7_000)
    partition.now_ms += 500
    partition.views.apply(InView(partition.now_ms, view, Seek(partition.now_ms, *ALL)))
    partition.send(6_000)
    assert partition.lease(view).sequences.tolist() == [0, 1, 2, 3]
    partition.views.check()


def test_a_span_that_is_wider_than_what_there_is() -> None:
    partition, _ = retaining()
    partition.send(5)
    for span in ((7, 9), (0, 0), (9, 3)):
        assert partition.apply(Seek, *span, 0).freed_locators.size == 0
    assert partition.apply(Seek, 0, 100, 6).freed_locators.size == 0  # passed over, but retained
    assert partition.views.unnamed.counts.acked == 1
    state = partition.views.unnamed.state
    none = replay.returning(state, partition.now_ms, 6, array(0))
    assert none.tolist() == [False]  # it is before that place
    partition.views.check()


def test_rows_that_the_window_has_left_behind() -> None:
    partition, kept = retaining()
    # A window of its own, of small slabs, that has moved on.
    tiny = Layout(slab_bits=6, rebase_slabs_min=2)
    table = partition.views.unnamed.state.table
    assert isinstance(table, MessageTable)
    for engine in (partition.views.unnamed, kept.engine):
        engine.state.layout = tiny
        engine.state.table = MessageTable(tiny)
    for _ in range(40):
        partition.send(*[5] * 40)
        partition.ack(0, partition.lease(0, 40))
    engine = partition.views.unnamed
    assert engine.state.table.base > 64
    assert engine.live_from(0) == engine.next_sequence
    assert kept.engine.live_from(100) == 100
    meta, files = plan_views_snapshot(partition.views)
    partition.apply(Seek, 10, 20, 0)
    assert engine.state.table.base == 0
    assert engine.live_from(0) < 10
    partition.send(5)
    assert partition.lease(0, 1_000).sequences.tolist() == [*range(10, 20), 1_600]
    partition.views.check()
    # A snapshot of before is of before, and one of now has them.
    content = {name: bytes(part) for name, part in files if part is not None}
    before = restore_views(meta, lambda name: memoryview(content[name]), tiny)
    assert before.unnamed.counts.live == 0
    meta, files = plan_views_snapshot(partition.views)
    content |= {name: bytes(part) for name, part in files if part is not None}
    after = restore_views(meta, lambda name: memoryview(content[name]), tiny)
    assert after.state_hash() == partition.views.state_hash()
    after.check()
