"""Arrivals: when the messages of a partition came in, by their sequence.

Room: engine; pure, memory only. Part of what is retained.
Holds: sequences rise with time, so a few marks tell it for all; a mark is made by a command alone,
    so a replay makes the same ones; no message came in before the time that it is said to, nor
    after the other one.
See: retention.py, which has one; replay.py, which finds places by it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from dejaqueue.engine.arrays import Int64s

MARKS_MAX = 4_096
"""More are thinned out: every second one goes, and what is noted from then on is half as fine."""
_GRAIN_MS = 100


class Arrivals:
    """Marks: from a sequence on, up to the next mark's, messages came in between two times.

    Attributes:
        firsts, times_ms, lasts_ms: of each mark the first sequence, and when the first and the last
            message came in; all of them rise.
        grain_ms: marks are as far apart, at least.

    >>> arrivals = Arrivals()
    >>> for now_ms, first in ((1_000, 0), (1_050, 7), (5_000, 9)):
    ...     arrivals.note(now_ms, first)
    >>> [part.tolist() for part in arrivals.spans(np.array([3, 8, 9]))]
    [[1000, 1000, 5000], [1050, 1050, 5000]]
    """

    def __init__(self) -> None:
        self.times_ms: list[int] = []
        self.lasts_ms: list[int] = []
        self.firsts: list[int] = []
        self.grain_ms = _GRAIN_MS

    def note(self, now_ms: int, first: int) -> None:
        """Messages come in now; `first` is the sequence of the first of them."""
        if self.firsts:
            now_ms = max(now_ms, self.lasts_ms[-1])
            if now_ms - self.times_ms[-1] < self.grain_ms:
                self.lasts_ms[-1] = now_ms
                return
        self.times_ms.append(now_ms)
        self.lasts_ms.append(now_ms)
        self.firsts.append(first)
        if len(self.firsts) > MARKS_MAX:
            self.times_ms, self.firsts = self.times_ms[::2], self.firsts[::2]
            self.lasts_ms = self.lasts_ms[1::2] + self.lasts_ms[len(self.lasts_ms) // 2 * 2 :]
            self.grain_ms *= 2

    def spans(self, sequences: Int64s) -> tuple[Int64s, Int64s]:
        """Not before and not after when each message came in; there is a mark.

        What is older than all marks came in at the first one's time, or before.
        """
        times_ms = np.array(self.times_ms, dtype=np.int64)
        lasts_ms = np.array(self.lasts_ms, dtype=np.int64)
        marks = np.array(self.firsts, dtype=np.int64).searchsorted(sequences, "right") - 1
        starts_ms: Int64s = times_ms[np.maximum(marks, 0)]
        return starts_ms, np.where(marks < 0, starts_ms, lasts_ms[marks])

    def came_by(self, cutoff_ms: int, next_sequence: int) -> int:
        """All messages below this sequence came in at that time or before."""
        marks = bisect_right(self.lasts_ms, cutoff_ms)
        if marks == len(self.firsts):
            return next_sequence
        return self.firsts[marks] if marks else 0

    def first_end_ms(self) -> int:
        """When the last message came in of those that the first mark is about."""
        return self.lasts_ms[0]

    def forget(self, before: int) -> None:
        """Nobody asks for messages below this sequence any more."""
        gone = 0
        while gone + 1 < len(self.firsts) and self.firsts[gone + 1] <= before:
            gone += 1
        del self.times_ms[:gone], self.lasts_ms[:gone], self.firsts[:gone]

    def set_time(self, now_ms: int) -> None:
        """The clock was put right: nothing came in after now."""
        self.times_ms = [min(time_ms, now_ms) for time_ms in self.times_ms]
        self.lasts_ms = [min(last_ms, now_ms) for last_ms in self.lasts_ms]

    def to_values(self) -> list[object]:
        """All of it, for JSON."""
        return [self.firsts, self.times_ms, self.lasts_ms, self.grain_ms]

    @staticmethod
    def from_values(values: Any) -> Arrivals:
        """What `to_values` gave. Raises ValueError, TypeError."""
        arrivals = Arrivals()
        *columns, grain_ms = values
        firsts, times_ms, lasts_ms = ([int(value) for value in column] for column in columns)
        if not len(firsts) == len(times_ms) == len(lasts_ms):
            raise ValueError("marks do not add up")
        arrivals.firsts, arrivals.times_ms, arrivals.lasts_ms = firsts, times_ms, lasts_ms
        arrivals.grain_ms = int(grain_ms)
        return arrivals
