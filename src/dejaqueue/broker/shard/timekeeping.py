"""A partition's time: the broker's clock, and what happens where that was wrong.

Room: broker. Runs on the partition's worker; `correction` at the beginning of its step.
Holds: what counts elapsed time (leases, delays of retries, transactions) keeps what is left of it
when the clock is put right, ahead or back; a partition whose journal is ahead of the clock by more
than the clock is followed has its time put back by a command; within a step time does not jump.
See: clock.py for when a clock is believed; engine/timekeeping.py for what the command does; rule
16; ADR 0026.
"""

from __future__ import annotations

from dejaqueue.broker import news
from dejaqueue.clock import Clock, SystemClock
from dejaqueue.engine.commands import SetTime
from dejaqueue.settings import BrokerSettings


def broker_clock(settings: BrokerSettings) -> Clock:
    """The clock of a broker on this machine, which tells the log of jumps."""
    clock = settings.clock
    return SystemClock(clock.step_ms_max, clock.grace_ms, news.clock_jumped)


class Timekeeping:
    """What a partition knows of its clock.

    Attributes:
        set_count: how often its time was put right, since it is served here.
        set_by_ms: by how much it was too far, the last time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_us = 0
        self.set_count = 0
        self.set_by_ms = 0

    def loaded(self) -> None:
        """The partition was just read."""
        self._seen_us = self._clock.stepped_us

    def utc_ms(self) -> int:
        """UTC, but for steps of the clock since `correction` looked: a step has one time."""
        clock = self._clock
        stepped_us = clock.stepped_us
        utc_us = clock.utc_us()
        while clock.stepped_us != stepped_us:  # another thread has believed a jump in between
            stepped_us = clock.stepped_us
            utc_us = clock.utc_us()
        return (utc_us - stepped_us + self._seen_us) // 1_000

    def correction(self, partition_ms: int, step_ms_max: int) -> SetTime | None:
        """The command that puts the partition's time right; None = it is right.

        Args:
            partition_ms: the time of its last command, which may be ahead of the clock.
            step_ms_max: what its clock is followed by without a command.
        """
        stepped_us = self._clock.stepped_us
        before_ms = now_ms = self.utc_ms()
        if stepped_us != self._seen_us:
            self._seen_us = stepped_us
            now_ms = self.utc_ms()
        before_ms = max(before_ms, partition_ms)
        by_ms = before_ms - now_ms
        if abs(by_ms) <= step_ms_max:
            return None
        self.set_count += 1
        self.set_by_ms = by_ms
        return SetTime(now_ms, by_ms)
