"""What commands answer, row by row: the plain cases. The model machine covers mixtures."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.engine.commands import (
    Ack,
    Cancel,
    Enqueue,
    Extend,
    Lease,
    Move,
    Nack,
    OpenEpoch,
    Relocate,
    SubBatch,
)
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.snapshot import plan_snapshot, restore
from dejaqueue.errors import InternalError
from dejaqueue.model import RowStatus

OK, NOT_FOUND = int(RowStatus.OK), int(RowStatus.NOT_FOUND)
IS_LEASED, LOST = int(RowStatus.LEASED), int(RowStatus.LEASE_LOST)


def int64s(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def uint16s(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint16)


@pytest.fixture
def engine() -> Engine:
    """Five messages, due at 10, 20, 20, 5, 99; stored in entry 1."""
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, int64s(10, 20, 20, 5, 99), ()))
    return engine


def lease(engine: Engine, now_ms: int, count: int = 9, end_ms: int = 1_000) -> list[int]:
    leased = engine.apply(Lease(now_ms, 50 + now_ms, now_ms, count, end_ms)).leased
    return [] if leased is None else leased.sequences.tolist()


def test_messages_come_in_order_of_due_time_then_sequence(engine: Engine) -> None:
    """Rule 7; and rule 2: none that is due later."""
    assert lease(engine, 20) == [3, 0, 1, 2]


def test_a_lease_tells_when_rows_became_due_and_where_they_are(engine: Engine) -> None:
    leased = engine.apply(Lease(20, 7, 20, 2, 500)).leased
    assert leased is not None
    assert (leased.lease_id, leased.lease_end_ms) == (7, 500)
    assert leased.dues_ms.tolist() == [5, 10]
    assert leased.attempts.tolist() == [1, 1]
    assert leased.locators.tolist() == [(1 << 20) + 3, 1 << 20]


def test_a_lease_of_nothing_leaves_no_trace__unless_a_lease_ended_meanwhile(engine: Engine) -> None:
    lease(engine, 20, end_ms=30)
    before = engine.state_hash()
    effects = engine.apply(Lease(29, 9, 29, 5, 100))
    assert effects.leased is None
    assert effects.is_void
    assert (engine.state_hash(), engine.now_ms, engine.counts.expired) == (before, 20, 0)
    effects = engine.apply(Lease(60, 9, 60, 0, 100))
    assert effects.leased is None
    assert not effects.is_void
    assert (engine.now_ms, engine.counts.expired) == (60, 4)


def test_a_replayed_lease_must_hand_out_as_many(engine: Engine) -> None:
    with pytest.raises(InternalError, match="leased 4 messages where 3 were before"):
        engine.apply(Lease(20, 7, 20, 9, 500, count_expected=3))


def test_a_message_is_back_at_its_lease_end__with_the_next_attempt(engine: Engine) -> None:
    """Rule 5."""
    lease(engine, 5, end_ms=40)
    leased = engine.apply(Lease(40, 8, 40, 9, 500)).leased
    assert leased is not None
    assert leased.sequences.tolist() == [0, 1, 2, 3]
    assert leased.attempts.tolist() == [1, 1, 1, 2]
    assert leased.dues_ms.tolist() == [10, 20, 20, 40]
    assert engine.counts.redelivered == 1


def test_acked_rows_free_their_room_and_never_come_back(engine: Engine) -> None:
    """Rule 6."""
    lease(engine, 20, end_ms=30)
    effects = engine.apply(Ack(21, -1, int64s(3, 0), uint16s(1, 1)))
    assert effects.statuses is None
    assert effects.freed_locators.tolist() == [(1 << 20) + 3, 1 << 20]
    assert lease(engine, 98) == [1, 2]


def test_stale_hands_are_refused_row_by_row(engine: Engine) -> None:
    """Rule 4: the lease ended; the attempt is an older one; the row is there twice."""
    lease(engine, 5, end_ms=8)
    lease(engine, 20)
    rows = int64s(3, 3, 0, 0, 4, 77, -1), uint16s(1, 2, 1, 1, 1, 1, 1)
    effects = engine.apply(Ack(21, -1, *rows))
    assert effects.statuses is not None
    assert effects.statuses.tolist() == [LOST, OK, OK, LOST, LOST, LOST, LOST]


@pytest.mark.parametrize("command", [Ack(20, 70), Nack(20, 30, 70), Extend(20, 900, 70)])
def test_a_whole_lease_is_settled_by_its_id(engine: Engine, command: Ack | Nack | Extend) -> None:
    lease(engine, 20)
    assert engine.apply(command).statuses is None
    if isinstance(command, Extend):
        assert engine.next_expiry_ms() == 900
    else:
        assert engine.next_expiry_ms() is None
        again = engine.apply(command).statuses
        assert again is not None
        assert again.tolist() == [LOST]


def test_a_whole_lease_settles_rows_that_were_extended_singly(engine: Engine) -> None:
    lease(engine, 20, end_ms=40)
    engine.apply(Extend(21, 90, -1, int64s(0), uint16s(1)))
    engine.apply(Ack(22, -1, int64s(1), uint16s(1)))
    effects = engine.apply(Ack(50, 70))
    assert effects.statuses is not None
    assert effects.statuses.tolist() == [LOST, OK, LOST, LOST]
    assert engine.counts.acked == 2


def test_an_unknown_lease_is_one_lost_row(engine: Engine) -> None:
    for command in (Ack(1, 5), Nack(1, 9, 5), Extend(1, 9, 5)):
        statuses = engine.apply(command).statuses
        assert statuses is not None
        assert statuses.tolist() == [LOST]


def test_nacked_rows_come_back_when_they_were_told_to(engine: Engine) -> None:
    lease(engine, 5)
    engine.apply(Nack(6, 15, 55))
    assert lease(engine, 14) == [0]
    assert lease(engine, 15) == [3]


def test_moved_messages_come_at_their_new_time__the_last_row_decides(engine: Engine) -> None:
    """Rule 9."""
    lease(engine, 5)
    sequences, dues_ms = int64s(4, 4, 3, 0, 88, -1), int64s(50, 7, 1, 400, 1, 1)
    statuses = engine.apply(Move(6, sequences, dues_ms)).statuses
    assert statuses is not None
    assert statuses.tolist() == [OK, OK, IS_LEASED, OK, NOT_FOUND, NOT_FOUND]
    assert engine.next_due_ms() == 7
    assert engine.dues(int64s(4, 0)).tolist() == [7, 400]
    assert engine.counts.moved == 2


def test_moves_do_not_change_the_column_that_was_given(engine: Engine) -> None:
    dues_ms = int64s(50)
    engine.apply(Move(6, int64s(4), dues_ms))
    dues_ms[0] = 1
    assert engine.next_due_ms() == 5
    assert lease(engine, 49) == [3, 0, 1, 2]


def test_cancelled_messages_are_gone__the_first_row_counts(engine: Engine) -> None:
    lease(engine, 5)
    effects = engine.apply(Cancel(6, int64s(2, 3, 2, -1)))
    assert effects.statuses is not None
    assert effects.statuses.tolist() == [OK, IS_LEASED, NOT_FOUND, NOT_FOUND]
    assert effects.freed_locators.tolist() == [(1 << 20) + 2]
    assert lease(engine, 98) == [0, 1]


def test_a_message_whose_lease_ended_can_be_moved(engine: Engine) -> None:
    lease(engine, 5, end_ms=8)
    assert engine.apply(Move(8, int64s(3), int64s(60))).statuses is None


def test_relocated_rows_free_the_old_place__done_ones_the_new(engine: Engine) -> None:
    engine.apply(Cancel(1, int64s(2)))
    effects = engine.apply(Relocate(2, 9, int64s(3, 2, 0, 3)))
    first, old = 9 << 20, 1 << 20
    assert sorted(effects.freed_locators.tolist()) == [old, old + 3, first + 1, first + 3]
    assert engine.locators(int64s(3, 2, 0)).tolist() == [first, -1, first + 2]


def test_attempts_stop_at_their_limit() -> None:
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, int64s(0), ()))
    engine.state.table.attempts[0] = limits.ATTEMPTS_MAX - 1
    for now_ms in (1, 2, 3):
        leased = engine.apply(Lease(now_ms, now_ms, now_ms, 1, now_ms + 1)).leased
        assert leased is not None
        assert leased.attempts.tolist() == [limits.ATTEMPTS_MAX]


def test_enqueue_of_a_group_commit_answers_each_producer() -> None:
    """Rule 10."""
    engine = Engine(0, TINY)
    batches = (SubBatch("a", 1, 2), SubBatch("", 0, 1), SubBatch("b", 7, 0, (0,), (5,), (4,)))
    engine.apply(Enqueue(0, 1, int64s(1, 2, 3), batches))
    first, second = engine.answer("a", 1), engine.answer("b", 7)
    assert first is not None
    assert second is not None
    assert (first.first_sequence, first.count) == (0, 2)
    assert (second.first_sequence, second.count, second.refused_ids) == (3, 0, (5,))


def test_sub_batches_must_add_up() -> None:
    with pytest.raises(InternalError, match="do not add up"):
        Engine(0, TINY).apply(Enqueue(0, 1, int64s(1, 2), (SubBatch("a", 1, 3),)))


def test_time_and_epochs_do_not_run_backwards(engine: Engine) -> None:
    engine.apply(OpenEpoch(10, 4))
    with pytest.raises(InternalError, match="epoch 3 after epoch 4"):
        engine.apply(OpenEpoch(11, 3))
    with pytest.raises(InternalError, match="command of 9 after one of 10"):
        engine.apply(Cancel(9, int64s(0)))
    assert (engine.epoch, engine.now_ms) == (4, 10)


def test_rows_or_a_lease_must_be_named(engine: Engine) -> None:
    with pytest.raises(InternalError, match="neither a lease nor rows"):
        engine.apply(Ack(1))


def test_codes_of_senders_without_messages_are_used_again__alike_after_a_snapshot() -> None:
    def send(engine: Engine, *names: str) -> None:
        runs = of_runs([(name, 1) for name in names])
        dues_ms = np.full(len(names), 10, dtype=np.int64)
        batches = (SubBatch("", 0, len(names)),)
        position = engine.next_sequence + 1
        engine.apply(Enqueue(5, position, dues_ms, batches, senders=runs))

    first = Engine(0)
    names = [f"sender {number}" for number in range(1_100)]
    send(first, *names)
    first.apply(Cancel(5, np.arange(50, 1_100)))
    meta, files = plan_snapshot(first)
    contents = {name: memoryview(content or b"") for name, content in files}
    second = restore(meta, contents.__getitem__)
    for engine in (first, second):
        send(engine, "new", names[7], "newer")
        assert np.flatnonzero(engine.sent_by(np.arange(1_103), names[7])).tolist() == [7, 1_101]
        assert np.flatnonzero(engine.sent_by(np.arange(1_103), "newer")).tolist() == [1_102]
        assert len(engine.state.senders) == 1_101  # codes that were free
        engine.check()
    assert first.state_hash() == second.state_hash()
