"""The table of transitions and what apply does, held together cell by cell."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine import commands
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.transitions import REFUSALS, TRANSITIONS, statuses_by_state
from dejaqueue.model import MessageState, RowStatus

ROW = np.zeros(1, dtype=np.int64)
FIRST = np.ones(1, dtype=np.uint16)

COMMANDS: dict[str, commands.Command] = {
    "enqueue": commands.Enqueue(100, 9, ROW, ()),
    "lease": commands.Lease(100, 9, 100, 5, 900),
    "move": commands.Move(100, ROW, ROW + 50),
    "cancel": commands.Cancel(100, ROW),
    "ack": commands.Ack(100, -1, ROW, FIRST),
    "nack": commands.Nack(100, 300, -1, ROW, FIRST),
    "extend": commands.Extend(100, 800, -1, ROW, FIRST),
    "lease end": commands.OpenEpoch(500, 1),
    "life end": commands.OpenEpoch(1_000, 1),
    "nack as dead": commands.Nack(100, 300, -1, ROW, FIRST, "broken", bury=True),
    "bury": commands.Bury(100, 0),
    "stage": commands.Enqueue(100, 9, ROW, (), stage=commands.Stage("t", 900)),
    "commit": commands.Decide(100, "t", commit=True),
    "abort": commands.Decide(100, "t", commit=False),
    "stage ack": commands.Ack(100, -1, ROW, FIRST, commands.Stage("t", 900)),
    "relocate": commands.Relocate(100, 9, ROW),
}


def engine_with_message(state: MessageState) -> Engine:
    """An engine whose message of sequence 0 is in that state; it was leased once unless new."""
    engine = Engine(0, TINY)
    if state is MessageState.DONE:
        return engine
    stage = commands.Stage("t", 900)
    if state is MessageState.STAGED:
        engine.apply(commands.Enqueue(100, 1, ROW, (), stage=stage))
        return engine
    engine.apply(commands.Enqueue(100, 1, ROW, (), expires_ms=ROW + 1_000))
    engine.apply(commands.Lease(100, 2, 100, 1, 500 if state is MessageState.LEASED else 5_000))
    if state is MessageState.SCHEDULED:
        engine.apply(commands.Nack(100, 100, 2))
    elif state is MessageState.DEAD:
        engine.apply(commands.Nack(100, 100, 2, bury=True))
    elif state is MessageState.STAGED_ACK:
        engine.apply(commands.Ack(100, 2, stage=stage))
    return engine


def test_every_command_of_the_table_is_tried() -> None:
    assert {name for _, name in TRANSITIONS} | {name for _, name in REFUSALS} == set(COMMANDS)


@pytest.mark.parametrize("state", MessageState, ids=lambda state: state.name)
@pytest.mark.parametrize("name", COMMANDS)
def test_each_cell_of_the_table_is_what_apply_does(state: MessageState, name: str) -> None:
    engine = engine_with_message(state)
    effects = engine.apply(COMMANDS[name])
    after = MessageState(int(engine.states(ROW)[0]))
    expected = TRANSITIONS.get((state, name))
    if (state, name) == (MessageState.LEASED, "life end"):
        expected = MessageState.DEAD  # its lease ended before
    assert after is (state if expected is None else expected) or name in ("enqueue", "stage")
    refusal = REFUSALS.get((state, name))
    if refusal is not None:
        assert expected is None
        assert effects.statuses is not None
        assert effects.statuses.tolist() == [refusal]
    elif effects.statuses is not None:
        assert effects.statuses.tolist() == [RowStatus.OK]
    engine.check()


def test_no_cell_is_both_done_and_refused() -> None:
    assert not set(TRANSITIONS) & set(REFUSALS)


def test_producers_are_refused_alike_by_every_command_of_theirs() -> None:
    # apply.py looks statuses of move, cancel and depart up in one array.
    assert statuses_by_state("move").tolist() == statuses_by_state("cancel").tolist()
    assert statuses_by_state("cancel")[MessageState.LEASED] == RowStatus.LEASED


def test_a_command_that_the_tables_do_not_know_has_no_statuses() -> None:
    with pytest.raises(KeyError):
        statuses_by_state("enqueue")
