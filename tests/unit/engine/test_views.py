"""Views: what a partition's engines make of the same messages, and what they share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dejaqueue.engine import commands
from dejaqueue.engine.commands import Ack, Cancel, Decide, Enqueue, InView, Lease, Move, Nack
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import InternalError
from dejaqueue.model import MessageState, RowStatus, TagFilter


class Partition:
    """Views, and commands with times and positions that rise."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.views = PartitionViews(Engine(0))
        self.now_ms, self.position = 1_000, 0
        if rules is not None:
            self.apply(commands.Configure, rules.to_text())

    def apply(self, kind: Any, *values: Any, **more: Any) -> Any:
        self.now_ms += 1
        return self.views.apply(kind(self.now_ms, *values, **more))

    def open(
        self,
        name: str,
        *,
        live: bool = False,
        by_arrival: bool = False,
        takes: TagFilter | None = None,
        **more: Any,
    ) -> int:
        number, rules = self.views.next_number, Rules(takes=takes).to_text()
        about = (number, name, 7, rules, live, by_arrival, self.now_ms + 50)
        self.apply(commands.OpenView, *about, **more)
        return number

    def send(self, *dues_ms: int, **more: Any) -> list[int]:
        """New messages; their sequences."""
        self.position += 1
        effects = self.apply(Enqueue, self.position, np.array(dues_ms, dtype=np.int64), (), **more)
        first = effects.first_sequence
        return list(range(first, first + len(dues_ms)))

    def lease(self, view: int, count: int = 100) -> Any:
        self.position += 1
        self.now_ms += 1
        now_ms = self.now_ms
        command = Lease(now_ms, self.position, now_ms, count, now_ms + 1_000)
        effects = self.views.apply(InView(now_ms, view, command) if view else command)
        return effects.leased

    def ack(self, view: int, leased: Any) -> list[int]:
        """Locators that it freed."""
        self.now_ms += 1
        command = Ack(self.now_ms, leased.lease_id)
        effects = self.views.apply(InView(self.now_ms, view, command) if view else command)
        return list(effects.freed_locators.tolist())


def array(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def test_a_row_is_freed_by_the_last_view_that_is_done_with_it() -> None:
    partition = Partition()
    view = partition.open("a")
    [sequence] = partition.send(5)
    [locator] = partition.views.locators(array(sequence)).tolist()
    assert partition.ack(0, partition.lease(0)) == []
    assert partition.views.states(array(sequence)).tolist() == [MessageState.SCHEDULED]
    assert partition.ack(view, partition.lease(view)) == [locator]
    assert partition.views.locators(array(sequence)).tolist() == [-1]
    partition.views.check()


def test_without_named_views_it_is_the_unnamed_one() -> None:
    partition, alone = Partition(), Engine(0)
    sequence = partition.send(5)[0]
    alone.apply(Enqueue(partition.now_ms, 1, array(5), ()))
    assert partition.views.state_hash() == alone.state_hash()
    assert partition.views.now_ms == alone.now_ms
    assert partition.views.backlog(10) == (1, 10)
    assert partition.views.unnamed.state.finished is None
    assert partition.views.apply(Cancel(partition.now_ms, array(sequence))).freed_locators.size == 1


def test_a_change_is_for_all_views_or_for_none() -> None:
    partition = Partition()
    view, log = partition.open("a"), partition.open("log", by_arrival=True)
    one, two = partition.send(5_000, 5_000)
    leased = partition.lease(log)
    assert leased.sequences.tolist() == [one, two]  # whatever they are due
    moved = partition.apply(Move, array(one, two), dues_ms=array(9_000, 9_000))
    assert moved.statuses.tolist() == [RowStatus.LEASED] * 2
    assert partition.views.unnamed.dues(array(one)).tolist() == [5_000]
    partition.ack(log, leased)
    moved = partition.apply(Move, array(one, 77), dues_ms=array(9_000, 9_000))
    assert moved.statuses.tolist() == [RowStatus.OK, RowStatus.NOT_FOUND]
    for engine in (partition.views.unnamed, partition.views.named[view].engine):
        assert engine.dues(array(one, two)).tolist() == [9_000, 5_000]
    gone = partition.apply(Cancel, array(two, two))
    assert gone.statuses.tolist() == [RowStatus.OK, RowStatus.NOT_FOUND]
    assert gone.freed_locators.size == 1
    partition.views.check()


def test_a_lease_that_is_over_holds_nothing() -> None:
    partition = Partition()
    view = partition.open("a")
    [sequence] = partition.send(5)
    partition.lease(view)
    assert partition.apply(Cancel, array(sequence)).statuses.tolist() == [RowStatus.LEASED]
    partition.now_ms += 2_000
    assert partition.apply(Cancel, array(sequence)).statuses is None
    partition.views.check()


def test_what_is_staged_is_in_every_view_or_in_none() -> None:
    partition = Partition()
    early = commands.Stage("t/0/early", 9_000)
    [before] = partition.send(5, stage=early)
    view = partition.open("a")  # begins with what is undecided
    for commit in (True, False):
        stage = commands.Stage(f"t/0/{commit}", 9_000)
        [sequence] = partition.send(5, stage=stage)
        assert partition.lease(view) is None
        freed = partition.apply(Decide, stage.transaction, commit).freed_locators
        assert freed.size == (0 if commit else 1)
        for number in (0, view):
            leased = partition.lease(number)
            assert ([] if leased is None else leased.sequences.tolist()) == [sequence] * commit
    partition.apply(Decide, early.transaction, True)
    assert partition.lease(view).sequences.tolist() == [before]
    partition.views.check()


def test_an_ack_of_a_view_that_is_staged_is_known_to_the_unnamed_one() -> None:
    partition = Partition(Rules(unnamed=False))
    view = partition.open("a")
    partition.send(5)
    leased, stage = partition.lease(view), commands.Stage("t/0/x", 9_000)
    partition.apply(InView, view, Ack(partition.now_ms + 1, leased.lease_id, stage=stage))
    assert partition.views.unnamed.has_staged("t/0/x")
    assert partition.apply(Decide, "t/0/x", True).freed_locators.size == 1
    assert not partition.views.unnamed.has_staged("t/0/x")


def test_without_the_unnamed_one_messages_are_done_there_at_once() -> None:
    partition = Partition(Rules(unnamed=False))
    partition.position += 1
    effects = partition.apply(Enqueue, partition.position, array(5, 6), ())
    assert effects.freed_locators.size == 2  # nobody wants them
    view = partition.open("a")
    partition.send(5)
    assert partition.lease(0) is None
    assert partition.lease(view).sequences.tolist() == [2]
    partition.views.check()


def test_a_view_that_ends_frees_what_only_it_had() -> None:
    partition = Partition()
    view = partition.open("a")
    partition.send(5, 6)
    partition.ack(0, partition.lease(0, 1))
    assert partition.apply(commands.DropView, view).freed_locators.size == 1
    assert partition.views.find("a") is None
    with pytest.raises(InternalError):
        partition.apply(InView, view, Nack(partition.now_ms, -1, 1))
    assert partition.open("a") == view + 1
    with pytest.raises(InternalError):
        partition.apply(commands.OpenView, 9, "b", 1, Rules().to_text(), False, False, 0)


def test_a_copy_of_a_row_is_where_every_view_finds_it() -> None:
    partition = Partition()
    view = partition.open("a")
    one, two = partition.send(5, 6)
    partition.ack(0, partition.lease(0, 1))
    partition.ack(view, partition.lease(view, 1))
    partition.ack(0, partition.lease(0, 1))
    freed = partition.apply(commands.Relocate, 9, array(one, two)).freed_locators.tolist()
    assert freed == [1 << 20 | 1, 9 << 20]  # where it lay, and the copy of what is done
    assert partition.views.locators(array(one, two)).tolist() == [-1, 9 << 20 | 1]
    assert partition.views.live_in(9, 9, 10).tolist() == [two]
    assert [part.tolist() for part in partition.views.live_locators()] == [[9 << 20 | 1]]
    partition.views.check()


def test_keys_are_taken_while_any_view_is_not_done() -> None:
    partition = Partition()
    view = partition.open("a")
    [sequence] = partition.send(5, key_hashes=array(77))
    partition.ack(0, partition.lease(0))
    assert partition.views.find_keys(array(77, 78))[1].tolist() == [sequence]
    assert partition.views.has_key(lambda hashes: hashes == 77)
    # A new one replaces it in the view that still has it.
    [new] = partition.send(5, key_hashes=array(77), replaced=array(sequence))
    assert partition.lease(view).sequences.tolist() == [new]
    partition.views.check()
