"""The clock of tests."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from dejaqueue.clock import Wake
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS


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


def test_time_that_is_moved_while_a_waiter_looks_is_not_missed() -> None:
    class Racing(VirtualClock):
        is_moved = False

        def now_us(self) -> int:
            now_us = super().now_us()
            if not self.is_moved:
                self.is_moved = True
                mover = threading.Thread(target=self.advance, kwargs={"ms": 5}, daemon=True)
                mover.start()
                mover.join(0.2)  # with a waiter that is known already, it ends only when that waits
            return now_us

    clock, wake = Racing(), Wake()
    instant_us = VirtualClock().now_us() + 5_000
    waiter = threading.Thread(target=clock.wait_until, args=(instant_us, wake), daemon=True)
    waiter.start()
    waiter.join(PATIENCE_SECONDS)
    assert not waiter.is_alive()


def test_it_moves_by_a_length_of_time__and_tells_the_time() -> None:
    clock = VirtualClock(start_ms=1_000)
    clock.advance(timedelta(days=1, microseconds=5), ms=1)
    assert clock.now_us() == 86_400_000_000 + 1_001_005
    assert clock.now() == datetime(1970, 1, 2, 0, 0, 1, 1_005, tzinfo=UTC)
