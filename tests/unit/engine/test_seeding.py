"""What a view begins with, in pieces. Step by step against a model: tests/model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.seeding import Seeding, may_finish
from dejaqueue.engine.view_snapshots import plan_views_snapshot, restore_views
from dejaqueue.errors import InternalError
from dejaqueue.model import TagFilter
from tests.unit.engine.test_views import Partition, array

FAR = 10**9


def piece(partition: Partition, view: int, span: int) -> list[int]:
    """Give a view its next piece; all that it has by then."""
    partition.apply(commands.SeedView, view, span)
    partition.views.check()
    return live(partition, view)


def live(partition: Partition, view: int) -> list[int]:
    parts = partition.views.named[view].engine.live_sequences()
    return [sequence for part in parts for sequence in part.tolist()]


def test_a_view_gets_what_it_begins_with_piece_by_piece() -> None:
    partition = Partition()
    partition.send(*[FAR] * 5)
    view = partition.open("a", live=True, in_pieces=True)
    assert live(partition, view) == []
    partition.send(7)
    assert live(partition, view) == [5]  # what comes in is in it at once
    assert piece(partition, view, 2) == [0, 1, 5]
    assert piece(partition, view, 2) == [0, 1, 2, 3, 5]
    assert partition.views.named[view].seeding is not None
    assert piece(partition, view, 2) == [0, 1, 2, 3, 4, 5]
    assert partition.views.named[view].seeding is None
    for number in (view, view + 1):
        with pytest.raises(InternalError):
            partition.apply(commands.SeedView, number, 2)


def test_what_is_done_elsewhere_before_its_turn_is_not_lost() -> None:
    partition = Partition()
    partition.send(1, 2, 3, 4, FAR)
    view = partition.open("a", live=True, in_pieces=True)
    leased = partition.lease(0, 2)
    assert partition.ack(0, leased) == []  # the rows stay
    assert live(partition, view) == [0, 1]
    partition.now_ms += 100  # what was leased is due
    partition.ack(view, partition.lease(view, 1))
    assert live(partition, view) == [1]
    partition.apply(commands.Cancel, array(2))  # a producer takes it back from all
    assert piece(partition, view, 10) == [1, 3, 4]  # what is done here does not come again


@pytest.mark.parametrize("what", ["bury", "staged ack", "seek", "redrive", "drop"])
def test_whatever_ends_a_message_elsewhere(what: str) -> None:
    partition = Partition()
    other = partition.open("other")
    partition.send(1, 2)
    leased = partition.lease(0, 1)
    partition.ack(other, partition.lease(other))
    if what == "bury":
        partition.apply(commands.Nack, -1, leased.lease_id, bury=True)
    view = partition.open("a", live=True, in_pieces=True)
    if what == "bury":
        partition.apply(commands.Bury, 0)
    elif what == "staged ack":
        partition.apply(commands.Ack, leased.lease_id, stage=commands.Stage("x", FAR))
        partition.apply(commands.Decide, "x", commit=True)
    elif what == "seek":
        partition.apply(commands.Nack, 1, leased.lease_id)
        partition.apply(commands.Seek, 0, 100, FAR)
        assert partition.views.unnamed.counts.live == 0
    elif what == "redrive":
        partition.apply(commands.Nack, 1, leased.lease_id)
        now_ms = partition.now_ms
        partition.views.apply(commands.InView(now_ms, 0, commands.Cancel(now_ms, array(0))))
    else:
        partition.apply(commands.DropView, other)
        assert live(partition, view) == [0, 1]
        return
    assert piece(partition, view, 100) == [0, 1]


def test_what_is_retained_and_forgotten_before_its_turn() -> None:
    partition = Partition()
    rules = '{"kind":"timeline","keeps":true}'
    partition.apply(commands.OpenView, 1, "", 0, rules, False, False, 0)
    partition.send(1, 2, 3)
    partition.ack(0, partition.lease(0))
    view = partition.open("a", live=True, kept_from_ms=0, in_pieces=True)
    partition.apply(commands.Forget, 2)
    assert live(partition, view) == [0, 1]
    assert piece(partition, view, 100) == [0, 1, 2]


def test_what_is_undecided_is_in_it_from_the_first() -> None:
    partition = Partition()
    stage = commands.Stage("x", FAR)
    partition.send(1, 2, stage=stage)
    view = partition.open("a", live=True, in_pieces=True)
    partition.apply(commands.Decide, "x", commit=True)
    assert live(partition, view) == [0, 1]
    partition.ack(view, partition.lease(view, 1))
    assert piece(partition, view, 100) == [1]


def test_it_goes_on_after_a_snapshot() -> None:
    partition = Partition()
    partition.send(*range(1, 9))
    view = partition.open("a", live=True, in_pieces=True)
    partition.ack(0, partition.lease(0, 3))
    partition.now_ms += 100
    partition.ack(view, partition.lease(view, 2))
    piece(partition, view, 1)
    meta, files = plan_views_snapshot(partition.views)
    stored: dict[str, Any] = {
        name: memoryview(bytes(content)) for name, content in files if content is not None
    }
    found = restore_views(meta, stored.__getitem__)
    assert found.state_hash() == partition.views.state_hash()
    partition.views = found
    assert piece(partition, view, 100) == [2, 3, 4, 5, 6, 7]


def test_its_tags_decide_what_it_begins_with() -> None:
    partition = Partition()
    words = Words(("", "eu"), np.array([0, 1, 0, 1], dtype=np.int32))
    partition.send(1, 2, 3, 4, tags=words)
    view = partition.open("a", live=True, takes=TagFilter(any_of=("eu",)), in_pieces=True)
    assert piece(partition, view, 100) == [1, 3]
    partition.send(1, 2, 3, 4, tags=words)
    assert live(partition, view) == [1, 3, 5, 7]
    assert partition.views.named[view].engine.counts.scheduled == 4


def test_values_are_runs_and_what_is_over_is_forgotten() -> None:
    seeding = Seeding(5, 100_000, None, 7, None)
    assert seeding.out_of_turn(array(99_999, 3, 8, 7, 8, 200_000)).tolist() == [7, 8, 99_999]
    assert seeding.out_of_turn(array(8, 9)).tolist() == [9]
    values = seeding.to_values()
    assert values == [5, 100_000, None, 7, None, [[7, 3], [99_999, 1]]]
    assert Seeding.from_values(values).to_values() == values
    source = Engine(0)
    source.apply(commands.Enqueue(1, 1, np.ones(100_000, dtype=np.int64), ()))
    assert seeding.turn([source], 50_000).size == 50_000 - 3
    assert not seeding.is_done
    assert seeding.to_values()[5] == [[99_999, 1]]
    assert len(seeding.seen) == 1
    seeding.turn([source], 50_000)
    assert seeding.is_done


def test_what_a_command_may_finish() -> None:
    partition = Partition()
    partition.send(1, 2, 3)
    leased = partition.lease(0, 2)
    engines = {0: partition.views.unnamed}
    ack = commands.Ack(1, leased.lease_id)
    assert may_finish(ack, engines, None).tolist() == [0, 1]
    assert may_finish(commands.InView(1, 0, ack), engines, None).tolist() == [0, 1]
    assert may_finish(commands.InView(1, 9, ack), engines, None).tolist() == []
    assert may_finish(commands.Seek(1, 1, 99, 0), engines, None).tolist() == [1, 2]
    assert may_finish(commands.OpenEpoch(1, 1), engines, None).tolist() == []
