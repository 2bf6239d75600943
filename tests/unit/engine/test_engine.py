"""The door of the engine: questions, stories. What commands do is in test_apply."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from dejaqueue.engine import commands
from dejaqueue.engine import engine as engine_module
from dejaqueue.engine.commands import Ack, Cancel, Command, Enqueue, Lease, Move, Relocate
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.message_filter import Selection
from dejaqueue.errors import InternalError
from dejaqueue.model import MessageState


def int64s(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.fixture(params=[TINY, STANDARD], ids=["tiny", "standard"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Forty messages due at 100 - sequence // 2, of entries 1 to 4."""
    engine = Engine(3, request.param)
    for position in range(1, 5):
        sequences = np.arange(position * 10 - 10, position * 10)
        engine.apply(Enqueue(0, position, 100 - sequences // 2, (), sequences % 5))
    return engine


def test_the_example_of_the_door_plate_runs() -> None:
    assert doctest.testmod(engine_module).failed == 0


def test_an_empty_engine_waits_for_nothing() -> None:
    engine = Engine(0)
    assert (engine.next_due_ms(), engine.next_expiry_ms(), engine.next_sequence) == (None, None, 0)
    sequences, reached = engine.page(Selection(), after=(-1, -1), limit=5, rows_max=9)
    assert (sequences.size, reached) == (0, None)
    sequences, following = engine.find(Selection(), first=0, end=9, limit=5, rows_max=9)
    assert (sequences.size, following) == (0, None)
    assert engine.due_count(9) == 0
    assert engine.live_in(1, 9, 5).size == 0
    assert list(engine.live_locators()) == []
    assert engine.find_keys(int64s(5))[0].size == 0
    engine.check()


def test_the_dispatcher_is_told_when_to_wake(engine: Engine) -> None:
    assert engine.next_due_ms() == 81
    engine.apply(Lease(81, 9, 81, 5, 300))
    assert (engine.next_due_ms(), engine.next_expiry_ms()) == (82, 300)
    engine.apply(Ack(81, 9))
    assert engine.next_expiry_ms() is None


def test_what_was_cancelled_or_moved_is_not_waited_for(engine: Engine) -> None:
    engine.apply(Cancel(0, int64s(38)))
    assert engine.next_due_ms() == 81
    engine.apply(Move(0, int64s(39), int64s(500)))
    assert engine.next_due_ms() == 82


def test_pages_go_on_where_the_last_one_ended(engine: Engine) -> None:
    found: list[int] = []
    wanted = Selection(due_to_ms=96)
    after: tuple[int, int] | None = (-1, -1)
    while after is not None:
        page, after = engine.page(wanted, after=after, limit=7, rows_max=1_000)
        assert page.size == 7 or after is None
        found += page.tolist()
    assert found == sorted(range(10, 40), key=lambda s: (100 - s // 2, s))
    assert engine.due_count(95) == 30


def test_leased_messages_are_in_pages_by_the_end_of_their_lease(engine: Engine) -> None:
    engine.apply(Lease(82, 9, 82, 4, 400))
    engine.apply(Lease(83, 10, 83, 2, 350))
    wanted = Selection(states=(MessageState.LEASED,), due_to_ms=401)
    page, reached = engine.page(wanted, after=(-1, -1), limit=4, rows_max=9)
    assert (page.tolist(), reached) == ([34, 35, 36, 37], (400, 37))
    page, reached = engine.page(wanted, after=(400, 36), limit=9, rows_max=9)
    assert (page.tolist(), reached) == ([37, 38, 39], None)
    assert engine.leased_rows(10) is not None
    engine.apply(Ack(83, 10))
    assert engine.leased_rows(10) is None


def test_keys_find_live_messages_only(engine: Engine) -> None:
    engine.apply(Cancel(0, int64s(7, 12)))
    places, sequences = engine.find_keys(int64s(99, 2, 0))
    assert places.tolist() == [1] * 6
    assert sequences.tolist() == [2, 17, 22, 27, 32, 37]


def test_live_rows_are_found_for_the_journal(engine: Engine) -> None:
    engine.apply(Cancel(0, int64s(12, 14)))
    engine.apply(Relocate(0, 9, int64s(13)))
    assert engine.live_in(2, 2, 4).tolist() == [18, 19, 16, 17]
    assert engine.live_in(2, 2, 99).tolist() == [18, 19, 16, 17, 15, 10, 11]
    locators = np.concatenate(list(engine.live_locators()))
    sequences = np.concatenate(list(engine.live_sequences()))
    assert sequences.tolist() == [s for s in range(40) if s not in (12, 14)]
    assert locators.tolist() == engine.locators(sequences).tolist()
    assert engine.states(int64s(12, 13)).tolist() == [MessageState.DONE, MessageState.SCHEDULED]


def test_an_internal_error_tells_what_was_done_before() -> None:
    engine = Engine(0, TINY)
    engine.apply(Enqueue(5, 1, int64s(1, 2), ()))
    engine.apply(Cancel(6, int64s(1)))
    with pytest.raises(InternalError) as caught:
        engine.apply(Lease(7, 3, 7, 5, 900, count_expected=2))
    assert caught.value.story == ["5 Enqueue 1", "6 Cancel 1", "7 Lease 3"]
    assert "7 Lease 3" in str(caught.value)


def test_the_story_is_short() -> None:
    engine = Engine(0, TINY)
    for now_ms in range(500):
        engine.apply(Cancel(now_ms, int64s(1)))
    assert len(engine.story()) == 64


def test_layouts_do_not_change_the_outcome() -> None:
    """Rule 13, for a backlog that seals runs and empties slabs in one layout and not in another."""
    middle = Layout(slab_bits=6, seal_rows=200, draw_rows=64, sweep_rows_min=50, key_bucket_bits=2)
    rng = np.random.default_rng(4)
    engines = [Engine(0, TINY), Engine(0, middle), Engine(0, STANDARD)]
    for turn in range(200):
        count = int(rng.integers(0, 40))
        dues_ms, hashes = rng.integers(turn, turn + 90, count), rng.integers(0, 50, count)
        picked = rng.integers(0, 1 + engines[0].next_sequence, 8)
        commands: list[Command] = [
            Enqueue(turn, turn, dues_ms, (), hashes),
            Move(turn, picked, rng.integers(turn, turn + 200, 8)),
            Cancel(turn, picked[:2]),
            Lease(turn, turn, turn, 30, turn + 3),
        ]
        if turn % 3:
            commands.append(Ack(turn, turn - 1))
        for command in commands:
            answers = [engine.apply(command) for engine in engines]
            leased = [None if a.leased is None else a.leased.sequences.tolist() for a in answers]
            assert leased[0] == leased[1] == leased[2]
    assert len({engine.state_hash() for engine in engines}) == 1
    for engine in engines:
        engine.check()


def test_staged_transactions_are_told_until_they_are_decided() -> None:
    engine = Engine(0)
    for position, name in enumerate(("x", "y"), 1):
        stage = commands.Stage(name, 1_000 * position)
        engine.apply(commands.Enqueue(10, position, np.array([5, 6]), (), stage=stage))
    assert engine.staged_ends() == {"x": 1_000, "y": 2_000}
    assert engine.staged() == {"x": (1_000, 2, 0), "y": (2_000, 2, 0)}
    engine.apply(commands.Remember(10, "x", commit=True, participants="t/0"))
    engine.apply(commands.Decide(10, "x", commit=True))
    assert (engine.staged_count, engine.has_staged("x"), engine.has_staged("y")) == (1, False, True)
    assert dict(engine.decisions) == {"x": (True, "t/0")}
