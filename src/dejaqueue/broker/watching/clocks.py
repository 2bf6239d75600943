"""How a broker's clock is, as numbers: jumps that are not believed, partitions that are ahead.

Room: broker. Any thread; asks no worker.
See: timekeeping.py for what a partition does about it; health.py and docs/guides/monitoring.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from dejaqueue.broker.broker import Broker
from dejaqueue.clock import SystemClock, is_kept


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
        kept: whether time synchronisation keeps the machine's clock; None = the kernel does not
            say, or it is not that clock.
    """

    jump_us: int
    jump_count: int
    still_us: int
    set_count: int
    apart_us: int
    kept: bool | None


def clock_numbers(broker: Broker) -> ClockNumbers:
    """How a broker's clock is now. Each number was true at its moment."""
    clock = broker.clock
    partitions = [one for topic in broker.runtimes() for one in topic.partitions]
    utc_ms = clock.utc_ms()
    ahead_ms = max((one.core.engine.now_ms - utc_ms for one in partitions if one.loaded), default=0)
    set_count = sum(one.core.time.set_count for one in partitions)
    apart_us = 0 if broker.node is None else broker.node.clock_apart_us
    still_us = max(0, ahead_ms) * 1_000
    kept = is_kept() if isinstance(clock, SystemClock) else None
    return ClockNumbers(clock.jump_us, clock.jump_count, still_us, set_count, apart_us, kept)
