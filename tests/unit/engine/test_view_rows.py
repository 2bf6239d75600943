"""The first messages of a view that begins when there are messages already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Enqueue, Stage
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.invariants import check
from dejaqueue.engine.view_rows import begin, pass_over, seed, stage, taken_in, undecided
from dejaqueue.model import TagFilter
from tests.unit.engine.test_views import Partition, array


def test_rows_are_what_they_were() -> None:
    partition = Partition()
    words = Words(("x", "y"), np.array([0, 1, 0], dtype=np.int32))
    partition.position += 1
    command = Enqueue(
        1_010,
        1,
        array(5_000, 6_000, 7_000),
        (),
        key_hashes=array(11, 0, 13),
        priorities=np.array([1, 2, 3], np.uint16),
        groups=words,
        tags=words,
        expires_ms=array(0, 9_000, 0),
        payload_sizes=np.array([10, 20, 30], np.uint32),
        senders=words,
    )
    partition.now_ms = 1_010
    source = partition.views.unnamed
    partition.views.apply(command)
    partition.open("a", live=True)
    view = partition.views.named[1].engine
    sequences = array(0, 1, 2)
    for asked in ("dues", "states", "locators", "priorities", "expires"):
        theirs, own = getattr(source, asked)(sequences), getattr(view, asked)(sequences)
        assert own.tolist() == theirs.tolist(), asked
    senders = view.senders(sequences)
    assert senders is not None
    assert [senders.names[index] for index in senders.indices] == ["x", "y", "x"]
    assert sorted(view.group_counts()[0]) == ["x", "y"]
    assert sorted(view.tag_set_counts()[0]) == ["x", "y"]
    assert view.backlog(0) == source.backlog(0) == (3, 60)
    assert view.find_keys(array(13))[1].tolist() == [2]
    assert view.next_expiry_ms() == 9_000
    partition.views.check()


def test_what_is_leased_elsewhere_is_due_as_the_command_says_and_gaps_are_none() -> None:
    partition = Partition()
    partition.send(5, 6, 7)
    partition.ack(0, partition.lease(0, 1))
    partition.lease(0, 1)
    view = partition.open("a", live=True)
    engine = partition.views.named[view].engine
    assert engine.counts.enqueued == engine.counts.scheduled == 2
    assert engine.dues(array(1, 2)).tolist() == [partition.now_ms - 1 + 50, 7]
    assert partition.send(8) == [3]
    partition.views.check()


def test_what_is_undecided_is_known() -> None:
    partition = Partition()
    source = partition.views.unnamed.state
    assert undecided(source).tolist() == []
    partition.send(5, 6)
    partition.send(7, stage=Stage("x", 9_000))
    assert undecided(source).tolist() == [2]
    view = Engine(0).state
    begin(view, 2, 3)
    view.configure(replace(view.rules, ids_from=3))
    seed(view, [source], array(2), held_due_ms=0, arrived_ms=None)
    stage(view, source)
    assert view.counts.staged == 1
    assert view.table.next_sequence == 3
    assert list(view.staged) == ["x"]
    check(view)


def test_what_is_not_for_a_view_is_done() -> None:
    partition = Partition()
    words = Words(("", "eu", "us"), np.array([0, 1, 2, 1], dtype=np.int32))
    partition.send(5, 6, 7, 8, tags=words)
    state = partition.views.unnamed.state
    takes = TagFilter(any_of=("eu",))
    assert taken_in([Engine(0).state, state], array(0, 1, 2, 3), takes).tolist() == [
        False,
        True,
        False,
        True,
    ]
    state.configure(replace(state.rules, takes=takes))
    assert pass_over(state, array(0, 1, 2)).size == 2
    assert state.counts.scheduled == state.counts.acked == 2
    state.configure(replace(state.rules, takes=None, unnamed=False))
    assert pass_over(state, array(1, 2, 3)).size == 2
    check(state)
