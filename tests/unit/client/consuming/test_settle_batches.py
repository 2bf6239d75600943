"""Settles that nobody waits for: what travels together, and when."""

from __future__ import annotations

import threading

from dejaqueue.client.alarm import Alarm
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.consuming.settle_batches import ACKED, ROWS_MAX, Fate, SettleBatches
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.frames import SettleOp

NACKED: Fate = (SettleOp.NACK, -1, "why", False)


class Bench:
    """A gathering whose alarm the test rings."""

    def __init__(self) -> None:
        self.clock = VirtualClock(start_ms=0)
        self.alarm = Alarm(self.clock)
        self.alarm._thread = threading.current_thread()  # run_due is called by the test
        self.sent: list[tuple[Fate, list[tuple[int, int]]]] = []
        self.together = SettleBatches(self.alarm, self._send)

    def _send(self, fate: Fate, rows: Slice) -> None:
        self.sent.append((fate, list(zip(rows.ids.tolist(), rows.attempts.tolist(), strict=True))))


def test_a_millisecond_of_settles_travels_together__by_fate() -> None:
    bench = Bench()
    for number in range(3):
        bench.together.add(ACKED, number, 1)
    bench.together.add(NACKED, 7, 2)
    bench.together.add(ACKED, 3, 1)
    assert bench.sent == []
    bench.clock.advance(ms=1)
    bench.alarm.run_due()
    assert bench.sent == [(ACKED, [(0, 1), (1, 1), (2, 1), (3, 1)]), (NACKED, [(7, 2)])]
    bench.together.add(NACKED, 8, 1)
    bench.clock.advance(ms=1)
    bench.alarm.run_due()
    assert bench.sent[2:] == [(NACKED, [(8, 1)])]


def test_a_thousand_do_not_wait() -> None:
    bench = Bench()
    for number in range(ROWS_MAX):
        bench.together.add(NACKED, number, 1)
    assert [len(pairs) for _, pairs in bench.sent] == [ROWS_MAX]
    bench.together.flush()
    assert len(bench.sent) == 1


def test_a_flush_returns_when_all_is_sent__by_another_thread_too() -> None:
    # The alarm had taken the last acks and not sent them when the consumer closed: they came to
    # the broker behind the end of their leases, and what was done was delivered again.
    bench = Bench()
    has_begun, has_returned = threading.Event(), threading.Event()

    def send(fate: Fate, rows: Slice) -> None:
        has_begun.set()
        has_returned.wait(0.2)
        bench._send(fate, rows)

    bench.together = SettleBatches(bench.alarm, send)
    bench.together.add(ACKED, 1, 1)
    bench.clock.advance(ms=1)
    ringing = threading.Thread(target=bench.alarm.run_due)
    ringing.start()
    assert has_begun.wait(10)
    bench.together.flush()
    sent = list(bench.sent)
    has_returned.set()
    ringing.join(10)
    assert sent == [(ACKED, [(1, 1)])]
