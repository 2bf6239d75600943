"""How fast messages must be taken so that none is later than one can bear, and who can take them.

Messages of a second all count as due at its beginning; they are worked off in order at a steady
rate. The least rate at which the last of them is done in time is what is needed.

Room: pipelines. numpy over seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dejaqueue.pipelines.load.series import Floats, Load

_ROUNDS = 60
"""Halvings of the interval in which the rate is: more than a float can tell apart."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a load asks for.

    Attributes:
        rate: messages a second that must be taken.
        consumers: that take so many together.
        partitions: that carry so many together.
        consumer_rate, partition_rate: messages a second of one, as they were stated or measured.
    """

    rate: float
    consumers: int
    partitions: int
    consumer_rate: float
    partition_rate: float


def needed_rate(load: Load, lateness_ms: int) -> float:
    """Messages a second at which no message is done later than `lateness_ms` after it was due.

    >>> needed_rate(Load(np.array([0, 1]), np.array([1000, 500])), 2_000)
    500.0
    """
    if not load.total:
        return 0.0
    low, high = 0.0, float(load.counts.max()) * 1_000 / lateness_ms
    if worst_seconds(load, high) > lateness_ms / 1_000:
        high = load.total * 1_000 / lateness_ms
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if middle and worst_seconds(load, middle) <= lateness_ms / 1_000 * (1 + 1e-12):
            high = middle
        else:
            low = middle
    return round(high, 6)


def latenesses_seconds(load: Load, rate: float) -> Floats:
    """How late the last message of each second is done at this rate."""
    before = np.concatenate(([0], np.cumsum(load.counts)[:-1])).astype(np.float64)
    elapsed = (load.seconds - load.seconds[0]).astype(np.float64)
    idle = np.minimum.accumulate(before - rate * elapsed)
    waiting = before + load.counts - rate * elapsed - idle
    latenesses: Floats = waiting / rate
    return latenesses


def worst_seconds(load: Load, rate: float) -> float:
    """How late the last message of the worst second is done at this rate. It is also how much
    before it is due the first one would have to be sent, so that none is late.

    >>> worst_seconds(Load(np.array([50]), np.array([2_000_000])), 500_000)
    4.0
    """
    if not load.total:
        return 0.0
    return float(latenesses_seconds(load, rate).max())


def advise(load: Load, lateness_ms: int, consumer_rate: float, partition_rate: float) -> Advice:
    """What this load asks for, if no message may be later than `lateness_ms`."""
    rate = needed_rate(load, lateness_ms)
    return Advice(
        rate=rate,
        consumers=max(1, math.ceil(rate / consumer_rate)) if rate else 0,
        partitions=max(1, math.ceil(rate / partition_rate)),
        consumer_rate=consumer_rate,
        partition_rate=partition_rate,
    )
