"""Arrivals: when the messages of a partition came in, by their sequence.

Room: engine; pure, memory only. Part of what is retained.
Holds: sequences rise with time, so a few marks tell it for all; a mark is made by a command alone,
    so a replay makes the same ones; no message came in before the time that it is said to, nor
    after the other one.
See: retained.py, which has one; replay.py, which finds places by it.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from dejaqueue.engine.arrays import Int64s

MARKS_MAX = 4_096
"""More are thinned out: every second one goes, and what is noted from then on is half as fine."""
_GRAIN_MS = 100


class Arrivals:
    """Marks: from a sequence on, messages came in at a time or later.

    Attributes:
        times_ms, firsts: of the marks; both rise.
        last_ms: when the last message came in, -1 = none did.
        grain_ms: marks are as far apart, at least.

    >>> arrivals = Arrivals()
    >>> for now_ms, first in ((1_000, 0), (1_050, 7), (5_000, 9)):
    ...     arrivals.note(now_ms, first)
    >>> [part.tolist() for part in arrivals.spans(np.array([3, 8, 9]))]
    [[1000, 1000, 5000], [4999, 4999, 5000]]
    """

    def __init__(self) -> None:
        self.times_ms: list[int] = []
        self.firsts: list[int] = []
        self.last_ms = -1
        self.grain_ms = _GRAIN_MS

    def note(self, now_ms: int, first: int) -> None:
        """Messages come in now; `first` is the sequence of the first of them."""
        self.last_ms = max(now_ms, self.last_ms)
        if self.times_ms and self.last_ms - self.times_ms[-1] < self.grain_ms:
            return
        self.times_ms.append(self.last_ms)
        self.firsts.append(first)
        if len(self.firsts) > MARKS_MAX:
            self.times_ms, self.firsts = self.times_ms[::2], self.firsts[::2]
            self.grain_ms *= 2

    def spans(self, sequences: Int64s) -> tuple[Int64s, Int64s]:
        """Not before and not after when each message came in; there is a mark.

        What is older than all marks came in at the first one's time, or before.
        """
        times_ms = np.array(self.times_ms, dtype=np.int64)
        marks = np.array(self.firsts, dtype=np.int64).searchsorted(sequences, "right") - 1
        ends_ms = np.append(times_ms[1:] - 1, self.last_ms)
        starts_ms: Int64s = times_ms[np.maximum(marks, 0)]
        ends_ms = np.where(marks < 0, starts_ms, ends_ms[marks])
        return starts_ms, np.maximum(starts_ms, ends_ms)

    def came_by(self, cutoff_ms: int, next_sequence: int) -> int:
        """All messages below this sequence came in at that time or before."""
        if self.last_ms <= cutoff_ms:
            return next_sequence
        mark = bisect_right(self.times_ms, cutoff_ms + 1) - 1
        return self.firsts[mark] if mark > 0 else 0

    def first_end_ms(self) -> int:
        """When the last message came in of those that the first mark is about."""
        return self.times_ms[1] - 1 if len(self.times_ms) > 1 else self.last_ms

    def forget(self, before: int) -> None:
        """Nobody asks for messages below this sequence any more."""
        gone = 0
        while gone + 1 < len(self.firsts) and self.firsts[gone + 1] <= before:
            gone += 1
        del self.times_ms[:gone], self.firsts[:gone]

    def set_time(self, now_ms: int) -> None:
        """The clock was put right: nothing came in after now."""
        self.times_ms = [min(time_ms, now_ms) for time_ms in self.times_ms]
        self.last_ms = min(self.last_ms, now_ms)

    def to_values(self) -> list[object]:
        """All of it, for JSON."""
        return [self.times_ms, self.firsts, self.last_ms, self.grain_ms]

    @staticmethod
    def from_values(values: list[list[int] | int]) -> Arrivals:
        """What `to_values` gave. Raises ValueError, TypeError."""
        arrivals = Arrivals()
        times_ms, firsts, last_ms, grain_ms = values
        arrivals.times_ms = [int(time_ms) for time_ms in times_ms]  # type: ignore[union-attr]  # else TypeError
        arrivals.firsts = [int(first) for first in firsts]  # type: ignore[union-attr]  # else TypeError
        arrivals.last_ms, arrivals.grain_ms = int(last_ms), int(grain_ms)  # type: ignore[arg-type]  # else TypeError
        if len(arrivals.times_ms) != len(arrivals.firsts):
            raise ValueError("marks without a time")
        return arrivals
