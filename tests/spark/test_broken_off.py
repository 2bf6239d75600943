"""Covers: a call of Spark that is broken off, as a timeout does it, spoils no later test."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import forget_answers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BrokenOff(BaseException):
    """As pytest's own failures: no `except Exception` of a library sees it."""


def break_off(number: int, frame: FrameType | None) -> None:
    raise BrokenOff


def test_the_next_call_is_answered_by_its_own_answer(spark: SparkSession) -> None:
    machine: Any = spark._jvm
    before = signal.signal(signal.SIGALRM, break_off)
    timer = signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        # Like pytest's report of a failure, this keeps the connection by the frames that used it.
        with pytest.raises(BrokenOff) as kept:
            machine.java.lang.Thread.sleep(3_000)  # tidy: allow sleep, because Java does it
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)
    forget_answers()
    for number in (7, 11, 13):
        assert machine.java.lang.Math.abs(-number) == number
    assert spark.range(5).count() == 5
    assert spark.getActiveSession() is not None, "what was registered is known to it"
    assert kept.traceback
