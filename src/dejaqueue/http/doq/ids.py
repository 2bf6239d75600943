"""Ids that a producer asks for before it sends: DOQ's way to send twice and be taken once.

Room: http. Any thread.
Holds: no id is given twice, over restarts too, while the machine's clock does not go back; none is
the id of a message that the broker named itself.

An id is the time in steps of ten microseconds, above all ids that the broker gives. A burst runs
ahead of the time; so that a restart cannot fall into it, it may not run ahead far.
"""

from __future__ import annotations

import threading

from dejaqueue import limits
from dejaqueue.clock import Clock
from dejaqueue.errors import ResourceExhausted

FIRST = limits.PARTITIONS_MAX << limits.SEQUENCE_BITS
"""The lowest id: there is no partition of that number, so no message gets it from the broker."""
STEP_US = 10
AHEAD_US_MAX = 100_000


class Ids:
    """Gives ids."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0

    def take(self, count: int) -> list[str]:
        """New ids, ascending. Raises ResourceExhausted if more are asked for than time allows."""
        now_us = self._clock.now_us()
        with self._lock:
            first = max(self._next, now_us // STEP_US)
            ahead_us = (first + count) * STEP_US - now_us
            if ahead_us > AHEAD_US_MAX:
                raise ResourceExhausted("more ids than a hundred a millisecond", ahead_us // 1_000)
            self._next = first + count
        return [
            str(FIRST + (number & limits.SEQUENCE_MAX)) for number in range(first, first + count)
        ]
