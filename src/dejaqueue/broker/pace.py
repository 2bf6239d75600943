"""Pace: how much a topic took in, and had done, in each ten seconds of the last hour.

Room: broker. Counted on workers, a step at a time, never a message at a time; read by any thread.
Holds: nothing wakes a worker for it; what a step did is counted in the ten seconds of that step,
however long nothing happened before; a topic of which nothing was read costs nothing.
See: shard/pace_chore.py, which notes it; calls/stats.py, which shows it;
docs/adr/0054-brokers-keep-how-fast-topics-are.md.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.records import Counts
from dejaqueue.metrics import Histogram, HistogramCounts

SLOT_MS = 10_000
"""A number is kept for each stretch of so long."""
SLOTS = 360
"""So many stretches are kept: an hour."""
SHOWN_SLOTS = 30
"""So many finished ones are shown: five minutes; what the hour had is told by its best one."""
_RATE_SLOTS = 2
"""A rate is over so many finished stretches, and what has passed of this one."""
_AGE_MS_MIN = 1_000
_QUANTILE = 0.99


class Pace:
    """What all partitions of a topic did, by stretches of time.

    Args:
        lateness: due → pushed, µs; its numbers of the last five minutes are told apart.

    >>> pace = Pace(Histogram())
    >>> pace.begin(0)
    >>> pace.add(0, 300, 100)
    >>> now = pace.read(20_000)
    >>> now["enqueued_per_s"], now["acked_per_s"], now["acked_per_s_most"], now["acked_10s"]
    (15.0, 5.0, 10.0, [100, 0])
    """

    def __init__(self, lateness: Histogram) -> None:
        self._lateness = lateness
        self._lock = threading.Lock()
        self._counts: Int64s | None = None
        self._begun_ms = 0
        self._newest = 0
        self._late_before: deque[tuple[int, HistogramCounts]] = deque(maxlen=SHOWN_SLOTS + 1)

    def begin(self, now_ms: int) -> None:
        """A partition was read: counting begins, unless it has."""
        with self._lock:
            if self._counts is None:
                self._counts = np.zeros((SLOTS, 2), dtype=np.int64)
                self._begun_ms, self._newest = now_ms, now_ms // SLOT_MS

    def add(self, slot: int, enqueued: int, acked: int) -> None:
        """So much was done in a stretch, by its number since 1970."""
        with self._lock:
            if self._counts is None:
                return
            self._turn(slot)
            if slot > self._newest - SLOTS:
                self._counts[slot % SLOTS] += (enqueued, acked)

    def turn(self, slot: int) -> None:
        """A stretch begins, before anything is done in it."""
        with self._lock:
            if self._counts is not None:
                self._turn(slot)

    def read(self, now_ms: int) -> dict[str, Any]:
        """What `stats` says of it: rates, counts of the last stretches, and lateness."""
        with self._lock:
            slot = now_ms // SLOT_MS
            if self._counts is None:
                return nothing()
            self._turn(slot)
            slot = max(slot, self._newest)  # the clock was set back
            first = max(self._begun_ms // SLOT_MS, slot - SLOTS + 1)
            counts = self._counts[np.arange(first, slot + 1) % SLOTS]
            begin_ms = max(self._begun_ms, (slot - _RATE_SLOTS) * SLOT_MS)
            age_ms = max(now_ms - begin_ms, _AGE_MS_MIN)
            rates = counts[-_RATE_SLOTS - 1 :].sum(axis=0) * 1_000 / age_ms
            most = max(float(counts[:-1, 1].max(initial=0)) * 1_000 / SLOT_MS, float(rates[1]))
            finished = counts[-SHOWN_SLOTS - 1 : -1]
            return {
                "enqueued_per_s": round(float(rates[0]), 3),
                "acked_per_s": round(float(rates[1]), 3),
                "acked_per_s_most": round(most, 3),
                "enqueued_10s": finished[:, 0].tolist(),
                "acked_10s": finished[:, 1].tolist(),
                "lateness_p99_us": self._late_us(slot),
            }

    def _turn(self, slot: int) -> None:
        """Begin the stretches up to this one."""
        assert self._counts is not None
        if slot <= self._newest:
            return
        fresh = np.arange(max(self._newest, slot - SLOTS) + 1, slot + 1)
        self._counts[fresh % SLOTS] = 0
        self._newest = slot
        self._late_before.append((slot, self._lateness.read()))

    def _late_us(self, slot: int) -> int:
        counts = self._lateness.read()
        first = slot - SHOWN_SLOTS
        if self._begun_ms // SLOT_MS < first:  # there may be older ones
            before = next((told for at, told in self._late_before if at >= first), counts)
            counts = HistogramCounts(counts.bounds, counts.counts - before.counts, 0)
        return counts.quantile(_QUANTILE)


def nothing() -> dict[str, Any]:
    """What `stats` says of a topic of which nothing was read."""
    return {
        "enqueued_per_s": 0.0,
        "acked_per_s": 0.0,
        "acked_per_s_most": 0.0,
        "enqueued_10s": [],
        "acked_10s": [],
        "lateness_p99_us": -1,
    }


class PartitionPace:
    """What one partition did since that was told last; on its worker.

    Args:
        topic: where it is told.
    """

    def __init__(self, topic: Pace) -> None:
        self._topic = topic
        self._slot = 0
        self._seen = self._told = (0, 0)
        self._latest: deque[list[int]] = deque(maxlen=SHOWN_SLOTS + 1)
        """Stretches in which something was pushed, each with the most that it was late, µs."""

    def begin(self, counts: Counts, now_ms: int) -> None:
        """The partition was read; what was counted before is not of now."""
        self.tell()
        self._slot = now_ms // SLOT_MS
        self._seen = self._told = counts.enqueued, counts.acked
        self._topic.begin(now_ms)

    def note(self, counts: Counts, now_ms: int) -> None:
        """What a step applied is about to be appended. Cost: below a microsecond, but for one step
        in ten seconds.

        Args:
            now_ms: the time of the engine's last command: nothing changes its counts without one.
        """
        slot = now_ms // SLOT_MS
        if slot != self._slot:
            self.tell()
            self._slot = slot
            self._topic.turn(slot)
        self._seen = counts.enqueued, counts.acked

    def pushed(self, now_us: int, late_us: int) -> None:
        """Messages go to their consumer, the one that was due first so late; where groups become
        durable. Cost: a comparison."""
        slot, late_us = now_us // (SLOT_MS * 1_000), max(0, late_us)
        latest = self._latest
        if not latest or latest[-1][0] < slot:
            latest.append([slot, late_us])
        elif latest[-1][1] < late_us:
            latest[-1][1] = late_us

    def late_us_max(self, now_ms: int) -> int:
        """The most that a message was late that was pushed in the last five minutes; -1 = none
        was."""
        first = now_ms // SLOT_MS - SHOWN_SLOTS
        return max((late_us for slot, late_us in list(self._latest) if slot >= first), default=-1)

    def tell(self) -> None:
        """Have what was noted shown."""
        (enqueued, acked), (enqueued_before, acked_before) = self._seen, self._told
        if self._seen != self._told:
            self._topic.add(self._slot, enqueued - enqueued_before, acked - acked_before)
            self._told = self._seen
