"""The alarm: callbacks at exact times, by a clock moved by hand."""

from __future__ import annotations

import logging
import threading

import pytest

from dejaqueue.client.alarm import Alarm
from dejaqueue.testing.virtual_clock import VirtualClock


class StillAlarm(Alarm):
    """Without its thread: the test calls `run_due`."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self._thread = threading.current_thread()


def test_in_order_of_time_and_never_early() -> None:
    clock, called = VirtualClock(start_ms=0), list[str]()
    alarm = StillAlarm(clock)
    alarm.at(3_000, lambda: called.append("b"))
    alarm.at(2_000, lambda: called.append("a"))
    assert alarm.run_due() == 2_000
    clock.advance(us=1_999)
    assert alarm.run_due() == 2_000
    assert called == []
    clock.advance(us=1_001)
    assert alarm.run_due() is None
    assert called == ["a", "b"]


def test_a_cancelled_one_is_not_called() -> None:
    clock, called = VirtualClock(start_ms=0), list[str]()
    alarm = StillAlarm(clock)
    alarm.at(1_000, lambda: called.append("no")).cancel()
    clock.advance(ms=5)
    assert alarm.run_due() is None
    assert called == []


def test_a_callback_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, called = VirtualClock(start_ms=0), list[str]()
    alarm = StillAlarm(clock)

    def fail() -> None:
        raise ZeroDivisionError

    alarm.at(1_000, fail)
    alarm.at(1_000, lambda: called.append("yes"))
    clock.advance(ms=1)
    with caplog.at_level(logging.ERROR):
        alarm.run_due()
    assert called == ["yes"]
    assert "ZeroDivisionError" in caplog.text


def test_its_thread_wakes_for_an_earlier_one_and_stops() -> None:
    clock = VirtualClock(start_ms=0)
    alarm = Alarm(clock)
    called = threading.Event()
    alarm.after(10_000, lambda: None)
    alarm.at(0, called.set)
    assert called.wait(10)
    alarm.stop()
    alarm.stop()
    alarm.at(0, lambda: pytest.fail("stopped"))
