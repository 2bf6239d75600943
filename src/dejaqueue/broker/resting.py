"""A partition that rests has its journal prove what was appended last.

Room: broker. Runs on the worker's thread; the proof itself is written by another one.
Holds: within 100 ms after the last append its proof is asked for; while appends follow each other,
none is: each proves those before it.
See: journal/segments/proof.py; docs/adr/0029-damage-and-torn-appends.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition

REST_US = 80_000
"""Without an append for so long, a partition rests. The rest of 100 ms is for the proof."""


class Rest:
    """Watches for it. One wake of the worker for each time that appends cease."""

    def __init__(self) -> None:
        self._seen = 0
        self._since_us = 0
        self._wake_us: int | None = None

    def step(self, partition: Partition) -> None:
        """Have the tail proved if nothing was appended for a while."""
        if partition.journal.is_proved or partition.commits.in_flight:
            self._wake_us = None  # who lands rings
            return
        now_us = partition.clock.now_us()
        if partition.position != self._seen:
            self._seen, self._since_us = partition.position, now_us
            if self._wake_us is not None and now_us < self._wake_us:
                return  # looked at then: not a new wake for each append
        if not 0 <= now_us - self._since_us < REST_US:
            partition.journal.prove()
            self._wake_us = None
        else:
            self._wake_us = self._since_us + REST_US

    def next_us(self) -> int | None:
        """When to be called though nothing happens, clock µs; None = no need."""
        return self._wake_us
