"""How late messages were handed over: a histogram of logarithmic buckets.

Room: client; pure counting.
Holds: a quantile is right within 4.5 %, whatever the spread.
See: architecture, "Accuracy".
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

PER_OCTAVE = 16
"""Buckets for each doubling: each is 4.4 % wide."""
_BUCKETS = 45 * PER_OCTAVE


class LatenessHistogram:
    """Lateness (due → handed to the application) in microseconds.

    >>> lateness = LatenessHistogram()
    >>> lateness.add_many(np.array([100, 200, 300, 400]))
    >>> lateness.count, lateness.max_us, round(lateness.quantile_us(0.5), -1)
    (4, 400, 200.0)
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, dtype=np.int64)
        self.max_us = 0
        self.min_us: int | None = None

    def add(self, lateness_us: int) -> None:
        """Count one message. Cost: about a microsecond."""
        at = int(math.log2(max(lateness_us, 0) + 1) * PER_OCTAVE)
        self._counts[min(at, _BUCKETS - 1)] += 1
        self.max_us = max(self.max_us, lateness_us)
        self.min_us = lateness_us if self.min_us is None else min(self.min_us, lateness_us)

    def add_many(self, lateness_us: npt.NDArray[np.int64]) -> None:
        """Count a slice of messages."""
        if len(lateness_us) == 0:
            return
        if len(lateness_us) == 1:
            self.add(int(lateness_us[0]))
            return
        low, high = int(lateness_us.min()), int(lateness_us.max())
        at = (np.log2(np.maximum(lateness_us, 0) + 1.0) * PER_OCTAVE).astype(np.int64)
        np.minimum(at, _BUCKETS - 1, out=at)
        first = int(at.min())
        counts = np.bincount(at - first)
        self._counts[first : first + len(counts)] += counts
        self.max_us = max(self.max_us, high)
        self.min_us = low if self.min_us is None else min(self.min_us, low)

    @property
    def count(self) -> int:
        """Messages counted."""
        return int(self._counts.sum())

    def quantile_us(self, share: float) -> float:
        """The lateness that this share of the messages did not exceed, microseconds.

        Returns:
            The middle of its bucket, at most `max_us`; 0.0 if nothing was counted.
        """
        total = self.count
        if total == 0:
            return 0.0
        rank = max(1, math.ceil(share * total))
        at = int(np.searchsorted(np.cumsum(self._counts), rank))
        middle = (2 ** (at / PER_OCTAVE) + 2 ** ((at + 1) / PER_OCTAVE)) / 2 - 1
        return float(min(middle, self.max_us))

    def merge(self, other: LatenessHistogram) -> None:
        """Add what another histogram counted."""
        self._counts += other._counts
        self.max_us = max(self.max_us, other.max_us)
        if other.min_us is not None:
            self.min_us = other.min_us if self.min_us is None else min(self.min_us, other.min_us)

    def summary(self) -> dict[str, float]:
        """count, min, p50, p99, p99.9 and max; microseconds."""
        return {
            "count": self.count,
            "min_us": float(self.min_us or 0),
            "p50_us": self.quantile_us(0.5),
            "p99_us": self.quantile_us(0.99),
            "p99_9_us": self.quantile_us(0.999),
            "max_us": float(self.max_us),
        }

    def buckets(self) -> list[tuple[float, int]]:
        """(upper end in microseconds, count) of every bucket that is not empty, rising."""
        filled = np.flatnonzero(self._counts)
        return [(2 ** ((int(at) + 1) / PER_OCTAVE) - 1, int(self._counts[at])) for at in filled]
