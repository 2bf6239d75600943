"""Covers: what a command answers is copied out of the state, and says "nothing" in one way.

Not covered: what each command answers (test_apply.py), and how a history is made of changes
(tests/unit/broker/history).
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

from dejaqueue.engine.commands import Ack, Configure, Enqueue, Lease, Move, Nack
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.engine.effects import Change, Effects, Leased
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.rules import Rules
from dejaqueue.model import ChangeKind, Topic, TopicKind

DUES_MS = np.array([5, 5, 5], dtype=np.int64)
SEQUENCES = np.array([0, 1, 2], dtype=np.int64)


@pytest.fixture(params=tuple(TopicKind), ids=lambda kind: str(kind.name).lower())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Three messages with groups and priorities that were moved once; changes are noted."""
    kind: TopicKind = request.param
    engine = Engine(0, TINY)
    topic = Topic("t") if kind is TopicKind.TIMELINE else Topic("t", kind=kind)
    engine.apply(Configure(0, Rules.of(topic).to_text()))
    engine.note_changes(True)
    priorities = np.array([1, 2, 3], dtype=np.uint16)
    engine.apply(
        Enqueue(0, 1, DUES_MS, (), priorities=priorities, groups=of_runs([("a", 2), ("b", 1)]))
    )
    engine.apply(Move(1, SEQUENCES, groups=of_runs([("b", 1), ("c", 2)])))
    return engine


def leased_by(engine: Engine, now_ms: int) -> tuple[Leased, tuple[Change, ...]]:
    effects = engine.apply(Lease(now_ms, now_ms, now_ms, 9, 1_000))
    assert effects.leased is not None
    return effects.leased, effects.changes


def values(leased: Leased) -> list[object]:
    assert leased.priorities is not None
    assert leased.groups is not None
    return [
        leased.sequences.tolist(),
        leased.attempts.tolist(),
        leased.dues_ms.tolist(),
        leased.locators.tolist(),
        leased.priorities.tolist(),
        [leased.groups.names[index] for index in leased.groups.indices.tolist()],
    ]


def test_later_commands_do_not_change_what_a_lease_answered(engine: Engine) -> None:
    """A sender reads it on its own thread, while the worker goes on."""
    leased, _ = leased_by(engine, 5)
    before = copy.deepcopy(values(leased))
    engine.apply(Nack(6, 7, lease_id=leased.lease_id))
    engine.apply(
        Move(6, SEQUENCES, DUES_MS + 2, np.array([9, 9, 9], np.uint16), of_runs([("z", 3)]))
    )
    again, _ = leased_by(engine, 8)
    engine.apply(Ack(9, again.lease_id))
    assert values(leased) == before


def test_later_commands_do_not_change_what_a_history_was_told(engine: Engine) -> None:
    """The recorder encodes it on its own thread, later."""
    leased, changes = leased_by(engine, 5)
    [change] = changes
    assert change.kind is ChangeKind.DELIVERED
    assert change.dues_ms is not None
    assert change.attempts is not None
    before = change.sequences.tolist(), change.dues_ms.tolist(), change.attempts.tolist()
    engine.apply(Nack(6, 7, lease_id=leased.lease_id))
    again, _ = leased_by(engine, 8)
    assert again.attempts.tolist() == [2, 2, 2]
    after = change.sequences.tolist(), change.dues_ms.tolist(), change.attempts.tolist()
    assert after == before
    assert before[2] == [1, 1, 1]


def test_changes_of_one_command_are_not_those_of_the_next(engine: Engine) -> None:
    leased, first = leased_by(engine, 5)
    second = engine.apply(Ack(6, leased.lease_id)).changes
    assert [change.kind for change in first] == [ChangeKind.DELIVERED]
    assert [change.kind for change in second] == [ChangeKind.ACKED]


def test_nothing_freed_is_an_empty_column_that_nobody_can_write() -> None:
    """All effects that free nothing share it."""
    one, other = Effects(), Effects()
    assert one.freed_locators.size == 0
    assert one.freed_locators.dtype == np.dtype(np.int64)
    assert not one.freed_locators.flags.writeable
    assert np.concatenate([one.freed_locators, other.freed_locators]).size == 0


def test_effects_that_say_nothing_are_of_a_command_that_did_all_it_said() -> None:
    """No statuses = every row OK; and what did nothing is said, never guessed."""
    effects = Effects()
    assert effects.statuses is None
    assert effects.leased is None
    assert not effects.is_void
    assert effects.changes == ()
    assert effects.first_sequence < 0
