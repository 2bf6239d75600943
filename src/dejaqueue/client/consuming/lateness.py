"""How late messages were handed over: a histogram of logarithmic buckets.

Room: client; pure counting.
Holds: a quantile is right within 4.5 %, whatever the spread.
See: architecture, "Accuracy".
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dejaqueue.metrics import FINE_BUCKETS, PER_OCTAVE, fine_bucket, fine_end_us
from dejaqueue.wire.frames import REPORT_SUM_US_MAX, LatenessReport


class LatenessHistogram:
    """Lateness (due → handed to the application) in microseconds.

    Attributes:
        sum_us, max_us, min_us: over all counted messages; None as min = none was counted.

    >>> lateness = LatenessHistogram()
    >>> lateness.add_many(np.array([100, 200, 300, 400]))
    >>> lateness.count, lateness.max_us, round(lateness.quantile_us(0.5), -1)
    (4, 400, 200.0)
    """

    def __init__(self) -> None:
        self._counts = np.zeros(FINE_BUCKETS, dtype=np.int64)
        self._reported: npt.NDArray[np.int64] | None = None
        self._reported_sum_us = 0
        self.sum_us = 0
        self.max_us = 0
        self.min_us: int | None = None

    def add(self, lateness_us: int) -> None:
        """Count one message. Cost: about a microsecond."""
        self._counts[fine_bucket(lateness_us)] += 1
        self.sum_us += lateness_us
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
        np.minimum(at, FINE_BUCKETS - 1, out=at)
        first = int(at.min())
        counts = np.bincount(at - first)
        self._counts[first : first + len(counts)] += counts
        self.sum_us += int(lateness_us.sum())
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
        self.sum_us += other.sum_us
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
        return [(fine_end_us(int(at)), int(self._counts[at])) for at in filled]

    @property
    def has_news(self) -> bool:
        """True if something was counted since the last report."""
        reported = 0 if self._reported is None else self._reported
        return bool((self._counts != reported).any())

    def take_report(self) -> LatenessReport | None:
        """What was counted since the last report, for the broker; None = nothing."""
        counts, sum_us = self._counts.copy(), self.sum_us
        new = counts if self._reported is None else counts - self._reported
        filled = np.flatnonzero(new)
        if filled.size == 0:
            return None
        # Of many messages that were due years ago it is more than a report may say.
        new_sum_us = min(sum_us - self._reported_sum_us, REPORT_SUM_US_MAX)
        self._reported, self._reported_sum_us = counts, sum_us
        return LatenessReport(new_sum_us, tuple(filled.tolist()), tuple(new[filled].tolist()))
