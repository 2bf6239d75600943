"""Covers: the system clock never goes back, waits end by bell or by instant, no ring is lost.

Not covered: the virtual clock (tests/unit/testing/).
"""

from __future__ import annotations

import threading

import pytest

from dejaqueue import clock
from dejaqueue.clock import SystemClock, Wake


def test_the_clock_never_goes_back__when_the_wall_does(monkeypatch: pytest.MonkeyPatch) -> None:
    walls = iter([5_000_000, 4_000_000, 6_000_000])
    monkeypatch.setattr(clock.time, "time_ns", lambda: next(walls))
    system = SystemClock()
    assert [system.now_us(), system.now_us(), system.now_us()] == [5_000, 5_000, 6_000]


def test_milliseconds_are_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock.time, "time_ns", lambda: 1_999_999)
    assert SystemClock().now_ms() == 1


def test_a_past_instant_ends_the_wait_at_once() -> None:
    assert SystemClock().wait_until(0, Wake()) is False


def test_a_ring_before_the_wait_ends_it_and_is_used_up() -> None:
    system, wake = SystemClock(), Wake()
    wake.ring()
    wake.ring()
    assert system.wait_until(None, wake) is True
    assert system.wait_until(0, wake) is False


def test_a_cleared_bell_is_not_heard() -> None:
    wake = Wake()
    wake.ring()
    wake.clear()
    assert SystemClock().wait_until(0, wake) is False


def test_a_ring_from_another_thread_ends_an_endless_wait() -> None:
    wake = Wake()
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(SystemClock().wait_until(None, wake)))
    waiter.start()
    wake.ring()
    waiter.join(timeout=30)
    assert answers == [True]


def test_a_wait_does_not_end_before_its_instant() -> None:
    system, wake = SystemClock(), Wake()
    until_us = system.now_us() + 3_000
    assert system.wait_until(until_us, wake) is False
    assert system.now_us() >= until_us
