"""Covers: what all commands are: values that carry their time, each known to engine and journal.

Not covered: what each command does (test_apply.py, test_decisions.py, tests/model), and each
one's form in the journal, field by field (tests/unit/broker/shard/test_entries.py).
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import get_args

import numpy as np
import pytest

from dejaqueue.engine import commands
from dejaqueue.engine.commands import (
    NO_LEASE,
    Ack,
    Command,
    Enqueue,
    Extend,
    Lease,
    Move,
    Nack,
    Stage,
)
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY
from dejaqueue.errors import InternalError
from dejaqueue.model import MessageState, RowStatus

EVERY = get_args(Command)
DUES_MS = np.array([5, 5, 5], dtype=np.int64)
SEQUENCES = np.array([0, 1, 2], dtype=np.int64)


def fields(kind: type) -> tuple[dataclasses.Field[object], ...]:
    assert dataclasses.is_dataclass(kind)
    return dataclasses.fields(kind)


def test_every_command_of_the_module_is_one_that_an_engine_may_be_given() -> None:
    """One that is left out of the union would be checked by no type, and met at replay first."""
    with_time = {
        one
        for _, one in inspect.getmembers(commands, inspect.isclass)
        if one.__module__ == commands.__name__
        and dataclasses.is_dataclass(one)
        and "now_ms" in {field.name for field in fields(one)}
    }
    assert with_time == set(EVERY)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_a_command_says_first_when_it_is_given(kind: type) -> None:
    """The engine reads the time of any command, and the journal writes it before all else."""
    first = fields(kind)[0]
    assert (first.name, first.type) == ("now_ms", "int")
    assert first.default is dataclasses.MISSING


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_a_command_is_never_changed__after_it_was_given(kind: type) -> None:
    """The worker applies it and the committer writes it, at the same time."""
    required = [field for field in fields(kind) if field.default is dataclasses.MISSING]
    command = kind(*(7 for _ in required))
    for field in fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(command, field.name, 8)
    assert not hasattr(command, "__dict__")


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_an_engine_knows_each_command_by_its_time(kind: type) -> None:
    """A command from before the last one is refused, whichever it is; SetTime alone may be."""
    engine = Engine(0, TINY)
    engine.apply(commands.OpenEpoch(100, 1))
    required = [field for field in fields(kind) if field.default is dataclasses.MISSING]
    command = kind(99, *(7 for _ in required[1:]))
    if kind is commands.SetTime:
        engine.apply(command)
        assert engine.now_ms == 99
        return
    with pytest.raises(InternalError, match="command of 99 after one of 100"):
        engine.apply(command)
    assert engine.applied_count == 1


@pytest.fixture
def engine() -> Engine:
    """Messages 0, 1 and 2, leased at 5 as lease 2."""
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, DUES_MS, ()))
    engine.apply(Lease(5, 2, 5, 9, 1_000))
    return engine


def states(engine: Engine) -> set[MessageState]:
    return {MessageState(state) for state in engine.states(SEQUENCES).tolist()}


def test_what_a_command_leaves_out_is_the_default() -> None:
    """An Enqueue of due times alone: priority as it is, no key, group, tag, sender or end."""
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, DUES_MS, ()))
    assert engine.priorities(SEQUENCES) is None
    assert engine.expires(SEQUENCES) is None
    assert engine.senders(SEQUENCES) is None
    assert engine.is_keyless(0)
    assert engine.group_counts()[0] == engine.tag_set_counts()[0] == []
    assert engine.backlog(mean_payload_bytes=10) == (3, 30)
    assert states(engine) == {MessageState.SCHEDULED}


def test_no_lease_is_the_number_of_no_lease__so_rows_are_named_one_by_one(engine: Engine) -> None:
    """A lease's number is the position of its entry, and positions are not below 0."""
    assert NO_LEASE < 0
    effects = engine.apply(Ack(6, sequences=SEQUENCES[:1], attempts=np.array([1], np.uint16)))
    assert effects.statuses is None or effects.statuses.tolist() == [int(RowStatus.OK)]
    assert (engine.counts.acked, engine.counts.leased) == (1, 2)


def test_a_nack_that_says_no_more_has_the_messages_come_back(engine: Engine) -> None:
    """Neither buried nor released, unless it is said."""
    engine.apply(Nack(6, 50, lease_id=2))
    assert states(engine) == {MessageState.SCHEDULED}
    assert engine.dues(SEQUENCES).tolist() == [50, 50, 50]
    assert not engine.dead


def test_an_extend_names_a_whole_lease_by_its_number(engine: Engine) -> None:
    engine.apply(Extend(6, 2_000, lease_id=2))
    assert engine.dues(SEQUENCES).tolist() == [2_000, 2_000, 2_000]


def test_a_new_lease_expects_no_number_of_rows__a_replayed_one_does(engine: Engine) -> None:
    """-1 is no number that a replay could expect."""
    engine.apply(Nack(6, 50, lease_id=2))
    command = Lease(60, 3, 60, 2, 1_000)
    with pytest.raises(InternalError, match="leased 2 messages where 0 were before"):
        engine.apply(dataclasses.replace(command, count_expected=0))
    other = Engine(0, TINY)
    other.apply(Enqueue(0, 1, DUES_MS, ()))
    leased = other.apply(command).leased
    assert leased is not None
    assert leased.sequences.tolist() == [0, 1]


def test_a_move_of_a_time_leaves_priority_and_group_alone() -> None:
    engine = Engine(0, TINY)
    groups = of_runs([("a", 3)])
    priorities = np.array([1, 2, 3], dtype=np.uint16)
    engine.apply(Enqueue(0, 1, DUES_MS, (), priorities=priorities, groups=groups))
    engine.apply(Move(1, SEQUENCES, dues_ms=DUES_MS + 90))
    kept = engine.priorities(SEQUENCES)
    assert kept is not None
    assert kept.tolist() == [1, 2, 3]
    assert engine.group_counts()[0] == ["a"]
    assert engine.dues(SEQUENCES).tolist() == [95, 95, 95]


def test_two_stages_of_one_transaction_are_one_value() -> None:
    """It is looked up by what it says: batches of it come with stages of their own."""
    assert Stage("t/0/1", 900) == Stage("t/0/1", 900)
    assert len({Stage("t/0/1", 900), Stage("t/0/1", 900), Stage("t/0/2", 900)}) == 2
