"""Calls per second over the last ten seconds."""

from __future__ import annotations

from dejaqueue.http.doq.rates import Rates
from dejaqueue.testing.virtual_clock import VirtualClock


def test_what_is_older_than_the_window_does_not_count() -> None:
    clock = VirtualClock()
    rates = Rates(clock)
    for _ in range(30):
        rates.note("a", "enqueue")
        rates.note("a", "enqueue")
        rates.note("b", "nack")
        clock.advance(ms=1_000)
    assert rates.of("a") == {"enqueue_rps": 1.8, "dequeue_rps": 0, "ack_rps": 0, "nack_rps": 0}
    assert rates.of("b")["nack_rps"] == 0.9
    rates.keep(["b"])
    assert rates.of("a")["enqueue_rps"] == 0
    clock.advance(ms=10_000)
    assert rates.of("b")["nack_rps"] == 0
