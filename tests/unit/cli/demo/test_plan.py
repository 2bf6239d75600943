"""The plan: where each flight lies on the compressed timeline, and when its change is told."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.cli.demo.plan import Change, make_plan
from dejaqueue.errors import BadRequest
from tests.cli.small_flights import small_flights


def test_minutes_become_milliseconds_in_proportion() -> None:
    plan = make_plan(small_flights(), 10_000, notice_minutes=20, notice_ms_min=50)
    assert plan.scheduled_ms.tolist() == [0, 1_000, 2_000, 3_000, 10_000]
    assert plan.departs_ms.tolist() == [0, 1_500, 1_900, 3_000, 10_000]
    assert plan.length_ms == 10_000
    assert plan.speed == 6_000.0


def test_late_and_early_flights_move__those_that_never_left_are_cancelled() -> None:
    plan = make_plan(small_flights(), 10_000, notice_minutes=20, notice_ms_min=50)
    assert plan.changes.tolist() == [
        Change.NONE,
        Change.MOVE,
        Change.MOVE,
        Change.CANCEL,
        Change.NONE,
    ]


def test_flight_that_moves_within_one_millisecond_is_not_moved() -> None:
    plan = make_plan(small_flights(), 10, notice_minutes=20, notice_ms_min=50)
    assert plan.scheduled_ms.tolist() == [0, 1, 2, 3, 10]
    # C left ten minutes early, which is another millisecond; B left at 1.5, which is 1.
    assert plan.changes.tolist() == [0, Change.NONE, Change.MOVE, Change.CANCEL, 0]


def test_change_is_told_before_the_earlier_of_both_times() -> None:
    plan = make_plan(small_flights(), 10_000, notice_minutes=20, notice_ms_min=50)
    # 20 simulated minutes are 200 ms.
    assert plan.notices_ms[1:4].tolist() == [800, 1_700, 2_800]


def test_notice_is_never_shorter_than_the_least_in_real_time() -> None:
    plan = make_plan(small_flights(), 10_000, notice_minutes=1, notice_ms_min=500)
    before = np.minimum(plan.scheduled_ms, plan.departs_ms) - plan.notices_ms
    assert before.min() == 500


def test_order_of_notice_names_only_flights_that_change() -> None:
    plan = make_plan(small_flights(), 10_000, notice_minutes=20, notice_ms_min=50)
    assert plan.in_order_of_notice().tolist() == [1, 2, 3]


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(BadRequest, match="--seconds"):
        make_plan(small_flights(), 0, notice_minutes=20, notice_ms_min=50)
