"""How many messages are due in each second: only seconds that have any.

Room: pipelines. numpy alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000


@dataclass(frozen=True, slots=True)
class Load:
    """Counts by second.

    Attributes:
        seconds: since 1970 in UTC, rising, int64 array, shape (n,).
        counts: messages due in each of them, at least 1, the same shape.
    """

    seconds: Int64s
    counts: Int64s

    @classmethod
    def of(cls, seconds: Int64s, counts: Int64s) -> Load:
        """The load of seconds in any order, which may come more than once."""
        unique, places = np.unique(seconds, return_inverse=True)
        summed = np.zeros(len(unique), dtype=np.int64)
        np.add.at(summed, places, counts)
        there = summed > 0
        return cls(unique[there].astype(np.int64), summed[there])

    @property
    def total(self) -> int:
        """Messages."""
        return int(self.counts.sum())

    @property
    def first_ms(self) -> int:
        """The beginning of the first second that has a message; 0 = there is none."""
        return int(self.seconds[0]) * SECOND_MS if len(self.seconds) else 0

    @property
    def last_ms(self) -> int:
        """The beginning of the last second that has a message; 0 = there is none."""
        return int(self.seconds[-1]) * SECOND_MS if len(self.seconds) else 0

    def peak(self, bucket_ms: int) -> tuple[int, int]:
        """(instant in ms, messages) of the fullest stretch of this length; the first of equals."""
        starts_ms, counts = self.buckets(bucket_ms)
        if not len(counts):
            return 0, 0
        place = int(counts.argmax())
        return int(starts_ms[place]), int(counts[place])

    def buckets(self, bucket_ms: int) -> tuple[Int64s, Int64s]:
        """(beginnings in ms, messages) of the stretches of this length that have any."""
        numbers = self.seconds * SECOND_MS // bucket_ms
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        if not len(starts):
            return numbers, self.counts
        return numbers[starts] * bucket_ms, np.add.reduceat(self.counts, starts)

    def hottest(self, most: int) -> list[tuple[int, int]]:
        """(instant in ms, messages) of the fullest seconds, fullest first."""
        order = np.lexsort((self.seconds, -self.counts))[:most]
        return [(int(self.seconds[i]) * SECOND_MS, int(self.counts[i])) for i in order]
