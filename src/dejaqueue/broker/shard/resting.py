"""A partition that rests has its journal prove what was appended last.

Room: broker. Runs on the worker's thread; the proof itself is written by another one.
Holds: within 100 ms after the last append its proof is asked for; while appends follow each other,
none is: each proves those before it.
See: journal/segments/proof.py; docs/adr/0029-damage-and-torn-appends.md.
"""

from __future__ import annotations

from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore

REST_US = 80_000
"""Without an append for so long, a partition rests. The rest of 100 ms is for the proof."""


class Rest(Chore):
    """Watches for the end of appends: the worker is woken once each time that they cease."""

    def __init__(self) -> None:
        self._seen = 0
        self._since_us = 0
        self._wake_us: int | None = None

    def after_append(self, core: PartitionCore, *, is_idle: bool) -> bool:
        """Have the tail proved if nothing was appended for a while."""
        if core.journal.is_proved or core.commits.in_flight:
            self._wake_us = None  # the append in flight rings when it has landed
            return False
        now_us = core.clock.now_us()
        if core.position != self._seen:
            self._seen, self._since_us = core.position, now_us
            if self._wake_us is not None and now_us < self._wake_us:
                return False  # that wake looks again: appends do not each plan a new one
        if not 0 <= now_us - self._since_us < REST_US:
            core.journal.prove()
            self._wake_us = None
        else:
            self._wake_us = self._since_us + REST_US
        return False

    def next_us(self, core: PartitionCore) -> int | None:
        """When appends may have ceased for long enough, clock µs; None = nothing to prove."""
        return self._wake_us

    def is_moot(self, core: PartitionCore) -> bool:
        """Others appended to the same log since, and that proves what is before."""
        return core.journal.is_proved and not core.commits.in_flight
