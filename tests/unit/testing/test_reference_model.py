"""Covers: the model against examples worked out by hand from the rules, not against the engine.

Where both had one misunderstanding, tests/model would not see it. Not covered: mixtures of
commands, and that the engine does the same (tests/model).
"""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine.commands import (
    Ack,
    Bury,
    Cancel,
    Configure,
    Decide,
    Enqueue,
    Lease,
    Move,
    Nack,
    Relocate,
    SetTime,
    Stage,
    SubBatch,
)
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.engine.rules import Rules
from dejaqueue.model import MessageState, RowStatus, TagFilter, Topic, TopicKind
from dejaqueue.testing.reference_model import Outcome, ReferenceModel

OK, NOT_FOUND = int(RowStatus.OK), int(RowStatus.NOT_FOUND)
IS_LEASED, LOST = int(RowStatus.LEASED), int(RowStatus.LEASE_LOST)
ROW = 1 << 20


def int64s(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def model_of(**topic: object) -> ReferenceModel:
    model = ReferenceModel()
    topic.setdefault("backoff_ms", 0)
    model.apply(Configure(0, Rules.of(Topic("t", **topic)).to_text()))  # type: ignore[arg-type]
    return model


def leased(model: ReferenceModel, now_ms: int, count: int = 9, **more: object) -> list[int]:
    """The sequences that a lease of 100 ms hands out."""
    command = Lease(now_ms, now_ms, now_ms, count, now_ms + 100, **more)  # type: ignore[arg-type]
    return [row[0] for row in model.apply(command).leased or []]


@pytest.fixture
def model() -> ReferenceModel:
    """Five messages, due at 10, 20, 20, 5, 99; stored in entry 1."""
    model = model_of()
    model.apply(Enqueue(0, 1, int64s(10, 20, 20, 5, 99), ()))
    return model


def test_a_timeline_is_in_order_of_due_time_then_id(model: ReferenceModel) -> None:
    """Rules 2, 7."""
    outcome = model.apply(Lease(20, 7, 20, 3, 500))
    assert outcome.leased == [(3, 1, 5, ROW + 3), (0, 1, 10, ROW), (1, 1, 20, ROW + 1)]
    assert leased(model, 21) == [2]
    assert leased(model, 98) == []
    assert model.next_due_ms() == 99


def test_a_lease_of_nothing_changes_nothing(model: ReferenceModel) -> None:
    assert model.apply(Lease(4, 7, 4, 9, 500)) == Outcome(is_void=True)
    assert model.now_ms == 0


def test_a_lease_that_ended_gives_its_messages_back__and_the_old_hand_is_stale(
    model: ReferenceModel,
) -> None:
    """Rules 4, 5."""
    assert leased(model, 10) == [3, 0]
    assert model.next_expiry_ms() == 110
    assert model.apply(
        Ack(109, sequences=int64s(3), attempts=np.array([1], np.uint16))
    ).statuses == [OK]
    assert leased(model, 110, count=1) == [1], "it is in order behind what was due before"
    assert model.apply(Ack(110, lease_id=10)).statuses == [LOST], "none of its rows is held"
    assert model.live[0].attempts == 1


def test_a_message_without_attempts_left_is_dead__until_it_is_buried() -> None:
    model = model_of(max_attempts=2)
    model.apply(Enqueue(0, 1, int64s(5), ()))
    assert leased(model, 5) == [0]
    model.apply(Nack(6, 6, lease_id=5))
    assert leased(model, 6) == [0]
    model.apply(Nack(7, 7, lease_id=6, reason="why"))
    assert model.dead == {0: ("why", [0])}
    assert leased(model, 1_000) == []
    assert model.apply(Bury(1_001, 0)).freed == [ROW]
    assert model.live == {}


def test_a_consumer_that_went_before_it_looked_wears_nothing_out() -> None:
    model = model_of(max_attempts=1)
    model.apply(Enqueue(0, 1, int64s(5), ()))
    leased(model, 5)
    model.apply(Nack(6, 6, lease_id=5, release=True))
    assert leased(model, 6) == [0]


def test_a_message_dies_when_its_time_is_over__but_not_in_somebodys_hands() -> None:
    model = model_of()
    model.apply(Enqueue(0, 1, int64s(5, 5), (), expires_ms=int64s(50, 60)))
    assert leased(model, 5, count=1) == [0]
    assert model.next_expiry_ms() == 60
    model.apply(Cancel(60, int64s(99)))
    assert model.dead == {0: ("expired", [1])}
    assert model.live[0].state is MessageState.LEASED
    model.apply(Cancel(105, int64s(99)))
    assert model.dead[1] == ("expired", [0])


def test_what_is_leased_or_gone_cannot_be_moved_or_cancelled(model: ReferenceModel) -> None:
    """Rules 6, 9; of a sequence named twice, a cancel takes the first row and a move the last."""
    leased(model, 5)
    outcome = model.apply(Cancel(6, int64s(3, 0, 0, 77)))
    assert (outcome.statuses, outcome.freed) == ([IS_LEASED, OK, NOT_FOUND, NOT_FOUND], [ROW])
    moved = model.apply(Move(6, int64s(1, 0, 1), dues_ms=int64s(50, 50, 60)))
    assert moved.statuses == [OK, NOT_FOUND, OK]
    assert model.live[1].due_ms == 60


def test_a_priority_topic_hands_out_the_most_urgent__and_ages_what_waits() -> None:
    """A wait of 10 is worth a level: what waited 25 is two levels before what is due now."""
    model = model_of(kind=TopicKind.PRIORITY, ageing_ms=10)
    priorities = np.array([5, 4, 6], dtype=np.uint16)
    model.apply(Enqueue(0, 1, int64s(0, 25, 0), (), priorities=priorities))
    assert leased(model, 30) == [0, 2, 1]
    still = model_of(kind=TopicKind.PRIORITY)
    still.apply(Enqueue(0, 1, int64s(0, 25, 0), (), priorities=priorities))
    assert leased(still, 30) == [1, 0, 2]


def test_a_fair_topic_goes_round__by_weight() -> None:
    """Rule 8: with weight 2 a group gets two turns for one of the others."""
    model = model_of(kind=TopicKind.FAIR, weights={"a": 2})
    groups = of_runs([("a", 6), ("b", 6)])
    model.apply(Enqueue(0, 1, np.zeros(12, dtype=np.int64), (), groups=groups))
    names = [model.live[sequence].group for sequence in leased(model, 1, count=9)]
    assert (names.count("a"), names.count("b")) == (6, 3)
    assert names[:3].count("b") == 1


def test_a_group_at_its_cap_waits_for_its_own_messages() -> None:
    model = model_of(kind=TopicKind.FAIR, group_in_flight_max=1)
    groups = of_runs([("a", 2), ("b", 1)])
    model.apply(Enqueue(0, 1, np.zeros(3, dtype=np.int64), (), groups=groups))
    assert sorted(leased(model, 1)) == [0, 2]
    assert leased(model, 2) == []
    assert model.next_ready_ms() is None
    model.apply(Ack(3, lease_id=1))
    assert leased(model, 4) == [1]


def test_a_filter_takes_what_has_such_tags(model: ReferenceModel) -> None:
    tags = of_runs([("x", 1), ("x\x1fy", 1), ("", 1)])
    model = model_of()
    model.apply(Enqueue(0, 1, int64s(0, 0, 0), (), tags=tags))
    assert leased(model, 1, filter=TagFilter(none_of=("x",))) == [2]
    assert leased(model, 2, filter=TagFilter(all_of=("x", "y"))) == [1]
    assert leased(model, 3, filter=TagFilter(any_of=("y", "z"))) == []
    assert leased(model, 4, filter=TagFilter(any_of=("x",))) == [0]


def test_what_is_staged_counts_when_it_is_committed__or_never_was() -> None:
    """Rule 12."""
    for commit in (True, False):
        model = model_of()
        model.apply(Enqueue(0, 1, int64s(5), ()))
        leased(model, 5)
        stage = Stage("x", 900)
        model.apply(Enqueue(6, 2, int64s(6), (), stage=stage))
        model.apply(Ack(6, lease_id=5, stage=stage))
        assert leased(model, 500) == []
        freed = model.apply(Decide(501, "x", commit)).freed
        assert freed == [ROW if commit else 2 * ROW]
        assert leased(model, 502) == [1 if commit else 0]
        assert model.apply(Decide(503, "x", not commit)) == Outcome()


def test_a_batch_is_remembered_by_its_producer__the_newest_answer_counts() -> None:
    model = model_of()
    for number in (1, 2):
        model.apply(Enqueue(0, number, int64s(5, 5), (SubBatch("p", number, 2),)))
    assert (model.answer("p", 1), model.answer("p", 2)) == ((0, 2), (2, 2))
    assert model.answer("p", 3) is None
    assert model.answer("other", 1) is None


def test_a_copied_row_frees_the_old_one__and_a_late_copy_itself(model: ReferenceModel) -> None:
    model.apply(Cancel(1, int64s(2)))
    outcome = model.apply(Relocate(2, 9, int64s(1, 2, 1)))
    assert outcome.freed == sorted([ROW + 1, 9 * ROW + 1, 9 * ROW + 2])
    assert model.live[1].locator == 9 * ROW


def test_a_clock_that_is_put_right_keeps_what_is_left__and_what_was_asked_for(
    model: ReferenceModel,
) -> None:
    """What was asked for stays; a lease has as long to go as before."""
    leased(model, 10)
    model.apply(SetTime(4, 6))
    assert model.live[3].due_ms == 104
    assert model.live[4].due_ms == 99
    assert model.now_ms == 4


def test_keys_are_found_by_their_hash__none_is_no_key() -> None:
    model = model_of()
    model.apply(Enqueue(0, 1, int64s(5, 5, 5), (), int64s(7, 0, 7)))
    assert (model.with_key(7), model.with_key(0)) == ([0, 2], [])
