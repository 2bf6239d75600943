"""A partition's time: the broker's clock, and what happens where that was wrong.

Room: broker. Runs on the partition's worker, at the beginning of its step.
Holds: what counts elapsed time (leases, delays of retries, transactions) keeps what is left of it
when the clock is put right, ahead or back; a partition whose journal is ahead of the clock by more
than the clock is followed has its time put back by a command.
See: clock.py for when a clock is believed; engine/timekeeping.py for what the command does; rule
16; ADR 0026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dejaqueue.broker import news
from dejaqueue.clock import Clock, SystemClock
from dejaqueue.engine.commands import SetTime
from dejaqueue.settings import BrokerSettings

if TYPE_CHECKING:
    from dejaqueue.broker.broker import Broker
    from dejaqueue.broker.partition import Partition


def broker_clock(settings: BrokerSettings) -> Clock:
    """The clock of a broker on this machine, which tells the log of jumps."""
    clock = settings.clock
    return SystemClock(clock.step_ms_max, clock.grace_ms, news.clock_jumped)


@dataclass(frozen=True, slots=True)
class ClockNumbers:
    """How a broker's clock is.

    Attributes:
        jump_us: how far the wall clock is from the time; 0 = it is believed.
        jump_count: how often it jumped.
        still_us: how far the partition that is furthest ahead is ahead of the clock: there, time
            stands still for so long.
        set_count: how often the time of a partition was put right.
        apart_us: how far it is from the clocks of the other brokers for certain; 0 = it agrees.
    """

    jump_us: int
    jump_count: int
    still_us: int
    set_count: int
    apart_us: int


def clock_numbers(broker: Broker) -> ClockNumbers:
    """How a broker's clock is now. Any thread; asks no worker."""
    clock = broker.clock
    places = [place for topic in broker.runtimes() for place in list(topic.partitions)]
    utc_ms = clock.utc_ms()
    ahead_ms = max((p.engine.now_ms - utc_ms for p in places if p.loaded), default=0)
    set_count = sum(place.time.set_count for place in places)
    apart_us = 0 if broker.shared is None else broker.shared.clock_apart_us
    still_us = max(0, ahead_ms) * 1_000
    return ClockNumbers(clock.jump_us, clock.jump_count, still_us, set_count, apart_us)


class Timekeeping:
    """What a partition knows of its clock.

    Attributes:
        set_count: how often its time was put right, since it is served here.
        set_by_ms: by how much it was too far, the last time.
    """

    def __init__(self) -> None:
        self._seen_us = 0
        self.set_count = 0
        self.set_by_ms = 0

    def loaded(self, place: Partition) -> None:
        """The partition was just read."""
        self._seen_us = place.clock.stepped_us

    def utc_ms(self, place: Partition) -> int:
        """UTC, but for what of it was put right since `keep` looked: a step has one time."""
        clock = place.clock
        stepped_us = clock.stepped_us
        utc_us = clock.utc_us()
        while clock.stepped_us != stepped_us:  # another thread has believed a jump in between
            stepped_us = clock.stepped_us
            utc_us = clock.utc_us()
        return (utc_us - stepped_us + self._seen_us) // 1_000

    def keep(self, place: Partition) -> None:
        """Put the partition's time right, if its clock was or its journal is far ahead."""
        clock, engine = place.clock, place.engine
        stepped_us = clock.stepped_us
        before_ms = max(self.utc_ms(place), engine.now_ms)
        self._seen_us = stepped_us
        now_ms = self.utc_ms(place)
        by_ms = before_ms - now_ms
        if abs(by_ms) <= place.settings.clock.step_ms_max:
            return
        place.apply(SetTime(now_ms, by_ms))
        self.set_count += 1
        self.set_by_ms = by_ms
        if place.staged_watch is not None:
            place.staged_watch.loaded()  # it noted when to ask again, by the former time
        news.time_set(place.topic().name, place.number, by_ms)
