"""Bugs that are planted on purpose: a check that finds none of them proves nothing.

Each is a change of one place of the broker, made by a monkeypatch, of the kind that a tired
programmer makes. A mutant that nothing finds is a hole in the tests, not a harmless bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.partition import duplicates, enqueueing, leasing, settling, taking
from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.shard.commit import Commits, Group
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.clock import Discipline
from dejaqueue.engine import apply, commands, engine, leases, snapshot
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.leases import Leases
from dejaqueue.engine.producers import Producers
from dejaqueue.engine.table import LEASED
from dejaqueue.journal.interface import Append
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.testing.faulty_journal import FaultyFile

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


# --- durability -----------------------------------------------------------------------------------


@mutant
def answers_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    inner = Commits._begin

    def begin(self: Commits, group: Group) -> Append:
        replies, group.replies = group.replies, []
        for reply_to, reply in replies:
            reply_to(reply)
        return inner(self, group)

    patch.setattr(Commits, "_begin", begin)


@mutant
def delivers_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    inner = Commits._begin

    def begin(self: Commits, group: Group) -> Append:
        pushes, group.pushes = group.pushes, []
        for consumer, push in pushes:
            self._send(consumer, push)
        return inner(self, group)

    patch.setattr(Commits, "_begin", begin)


@mutant
def a_group_that_waited_for_an_append_is_left_to_the_next_request(
    patch: pytest.MonkeyPatch,
) -> None:
    patch.setattr(Partition, "_at_once", lambda self: self.core.clock.now_us())


@mutant
def does_not_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FaultyFile, "sync", lambda self: None)


@mutant
def truncates_too_much_after_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    inner = SegmentJournal.put_snapshot

    def put(self: SegmentJournal, position: int, *rest: Any) -> None:
        inner(self, position + 1, *rest)

    patch.setattr(SegmentJournal, "put_snapshot", put)


@mutant
def forgets_acks_in_the_journal(patch: pytest.MonkeyPatch) -> None:
    inner = settling.settle

    def settle(core: PartitionCore, *rest: Any) -> None:
        entries = list(core.commits.group.entries)
        inner(core, *rest)
        if core.engine.now_ms % 3 == 0:
            core.commits.group.entries[:] = entries

    patch.setattr(taking, "settle", settle)


# --- time -----------------------------------------------------------------------------------------


@mutant
def delivers_three_milliseconds_early(patch: pytest.MonkeyPatch) -> None:
    inner = PartitionCore.now_ms
    patch.setattr(PartitionCore, "now_ms", lambda self: inner(self) + 3)


@mutant
def leases_ahead_to_clients_that_do_not_hold(patch: pytest.MonkeyPatch) -> None:
    inner = leasing._dispatch_to

    def dispatch_to(core: PartitionCore, dispatcher: Dispatcher, wanted: Any) -> bool:
        for consumer in dispatcher._consumers:
            consumer.ahead_ms = 25
        return inner(core, dispatcher, wanted)

    patch.setattr(leasing, "_dispatch_to", dispatch_to)


@mutant
def ends_leases_early(patch: pytest.MonkeyPatch) -> None:
    inner = Leases.add

    def add(self: Leases, lease_id: int, sequences: Any, attempts: Any, end_ms: int) -> None:
        inner(self, lease_id, sequences, attempts, end_ms - 200)

    patch.setattr(Leases, "add", add)
    expire = Leases.expire
    patch.setattr(Leases, "expire", lambda self, table, now_ms: expire(self, table, now_ms + 200))


@mutant
def never_ends_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leases, "expire", lambda self, table, now_ms: None)
    patch.setattr(apply, "next_end_ms", lambda state: None)


@mutant
def believes_a_clock_that_jumps(patch: pytest.MonkeyPatch) -> None:
    inner = Discipline.__init__

    def init(self: Discipline, jump_us: int, grace_us: int, *rest: Any) -> None:
        inner(self, jump_us, 0, *rest)

    patch.setattr(Discipline, "__init__", init)


@mutant
def stands_still_after_a_clock_that_jumped(patch: pytest.MonkeyPatch) -> None:
    """The wall clock is believed, and a partition waits for it where it goes back."""

    def at(self: Discipline, wall_us: int, elapsed_us: int) -> int:
        self._last_us = max(self._last_us, wall_us)
        return self._last_us

    patch.setattr(Discipline, "at", at)
    patch.setattr(PartitionCore, "keep_time", lambda self: None)


# --- state ----------------------------------------------------------------------------------------


@mutant
def accepts_stale_hands(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        leases, "held_mask", lambda table, places, attempts: table.states[places] == LEASED
    )
    patch.setattr(apply, "held_mask", leases.held_mask)


@mutant
def forgets_every_tenth_cancel(patch: pytest.MonkeyPatch) -> None:
    inner = apply.cancel

    def cancel(state: Any, command: commands.Cancel) -> Any:
        if command.now_ms % 10 == 0:
            statuses = np.zeros(len(command.sequences), np.uint8)
            return Effects(statuses=statuses)
        return inner(state, command)

    patch.setitem(engine._STEPS, commands.Cancel, cancel)


@mutant
def forgets_some_moves(patch: pytest.MonkeyPatch) -> None:
    inner = apply.move

    def move(state: Any, command: commands.Move) -> Any:
        if command.now_ms % 3 == 0:
            statuses = np.zeros(len(command.sequences), np.uint8)
            return Effects(statuses=statuses)
        return inner(state, command)

    patch.setitem(engine._STEPS, commands.Move, move)


@mutant
def forgets_what_producers_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producers, "answer", lambda self, name, number: None)


@mutant
def loses_producers_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot, "_restore_producers", lambda state, name, read: None)


@mutant
def takes_keys_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(duplicates, "resolve_batch", lambda core, merged, now_ms: None)
    patch.setattr(enqueueing, "resolve_batch", duplicates.resolve_batch)


# --- liveness -------------------------------------------------------------------------------------


@mutant
def loses_credit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "give_back", lambda self, consumer, rows: None)
    inner = Dispatcher.credit

    def credit(self: Dispatcher, consumer: Any, rows: int, now_us: int) -> None:
        if consumer.delivered_count % 7 != 3 or consumer.delivered_count < 5:
            inner(self, consumer, rows, now_us)

    patch.setattr(Dispatcher, "credit", credit)


@mutant
def wakes_nobody_when_a_message_is_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_next_us", lambda self: None)


@mutant
def goes_on_after_another_reading(patch: pytest.MonkeyPatch) -> None:
    """The engine is ahead of the journal after an append that failed, and is kept."""

    def fail(self: Partition, error: Any) -> None:
        self.core.commits.abandon(error)
        self.core.commits._error = None

    patch.setattr(Partition, "_fail", fail)


# --- senders --------------------------------------------------------------------------------------


@mutant
def reaches_what_another_one_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        engine.Engine, "sent_by", lambda self, sequences, sender: self.states(sequences) != 0
    )


@mutant
def replaces_what_another_one_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(duplicates, "_foreign", lambda engine, live, owner: None)
