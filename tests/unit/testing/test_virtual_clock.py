"""The clock of tests."""

from __future__ import annotations

import threading

from dejaqueue.clock import Wake
from dejaqueue.testing.virtual_clock import VirtualClock


def test_a_waiter_is_woken_when_its_instant_comes() -> None:
    clock, wake = VirtualClock(start_ms=1), Wake()
    rang: list[bool] = []
    waiter = threading.Thread(target=lambda: rang.append(clock.wait_until(5_000, wake)))
    waiter.start()
    while clock.next_instant_us() is None:
        threading.Event().wait(0.001)
    clock.advance(ms=3)
    assert waiter.is_alive()
    clock.advance(ms=1)
    waiter.join(5)
    assert rang == [False]


def test_a_ring_before_the_wait_ends_it_at_once() -> None:
    clock, wake = VirtualClock(), Wake()
    wake.ring()
    assert clock.wait_until(None, wake)
