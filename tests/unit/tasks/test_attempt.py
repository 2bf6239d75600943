"""Covers: what becomes of an attempt that failed, by its task's options and by what it raised.

Not covered: that it becomes so (test_execution.py).
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from dejaqueue.tasks import Attempt, Reject, Retry, Tasks, current
from dejaqueue.tasks.attempt import Fate, fate_of


def work() -> None: ...


def attempt(number: int, **options: object) -> Attempt:
    return Attempt(Tasks().add(work, "work", options), number=number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "is_dead", "delay_s"), [(1, False, 5), (2, False, 10), (3, True, 0)]
)
def test_an_error_is_tried_again_until_the_retries_are_used_up(
    number: int, is_dead: bool, delay_s: float
) -> None:
    error = ValueError("no")
    fate = fate_of(attempt(number, retries=2, backoff=5), error)
    assert fate == Fate(is_dead=is_dead, delay_s=delay_s, error=error)


def test_reject_is_never_tried_again() -> None:
    assert fate_of(attempt(1, retries=9), Reject("no such customer")).is_dead


def test_retry_is_tried_again_whatever_the_retries_say() -> None:
    assert fate_of(attempt(1), Retry(timedelta(minutes=1))).delay_s == 60
    assert fate_of(attempt(3, backoff=2), Retry()).delay_s == 8
    assert not fate_of(attempt(99), Retry(0.5)).is_dead


def test_the_last_attempt_knows_that_it_is() -> None:
    assert [attempt(n, retries=1).is_last for n in (1, 2)] == [False, True]


def test_outside_of_a_task_there_is_no_attempt() -> None:
    assert current() is None
