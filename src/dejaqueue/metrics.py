"""Metrics: numbers that only grow, and histograms, counted in columns.

Room: vocabulary. numpy alone; knows no library of metrics: `http/` shows them to Prometheus.
Holds: counting a batch costs a few numpy calls, however many rows it has; a number never falls;
any thread may count and any thread may read, and nobody waits for more than a few lines.
See: broker/counting.py for what is counted where; http/catalogue.py for what is shown.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dejaqueue import limits

Int64s = npt.NDArray[np.int64]

# From what a good timer reaches to what a human notices; the steps are those of an oscilloscope.
DURATION_BOUNDS_US = (
    *(100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000),
    *(1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000),
    *(300_000_000, 3_600_000_000),
)
"""Upper ends of the buckets of every histogram of durations, microseconds."""
COUNT_BOUNDS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
"""Upper ends of the buckets of every histogram of how many."""


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """A histogram as it was at one moment.

    Attributes:
        bounds: upper end of each bucket, included in it; one more bucket has no end.
        counts: values in each bucket, int64 array, shape (len(bounds) + 1,).
        sum: of all values.
    """

    bounds: tuple[int, ...]
    counts: Int64s
    sum: int

    @property
    def count(self) -> int:
        """Values counted."""
        return int(self.counts.sum())

    def __add__(self, other: HistogramCounts) -> HistogramCounts:
        return HistogramCounts(self.bounds, self.counts + other.counts, self.sum + other.sum)


class Histogram:
    """How often values fell between fixed bounds. Values below 0 count as 0.

    >>> late = Histogram((1_000, 10_000))
    >>> late.add_many(np.array([5, 900, 1_000, 1_001, 70_000]))
    >>> late.read().counts.tolist(), late.read().sum
    ([3, 1, 1], 72906)
    """

    __slots__ = ("_bounds", "_bounds_column", "_counts", "_lock", "_sum")

    def __init__(self, bounds: tuple[int, ...] = DURATION_BOUNDS_US) -> None:
        self._bounds = bounds
        self._bounds_column = np.array(bounds, dtype=np.int64)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0
        self._lock = threading.Lock()

    def add(self, value: int, count: int = 1) -> None:
        """Count a value so many times. Cost: below a microsecond."""
        value = max(value, 0)
        at = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[at] += count
            self._sum += value * count

    def add_many(self, values: Int64s, each: int = 1) -> None:
        """Count values, `each` times. Cost: some 5 µs for a thousand that ascend or descend, else a
        sort besides."""
        size = values.size
        if size < 2:
            if size:
                self.add(int(values[0]), each)
            return
        if values[0] > values[-1]:
            values = values[::-1]
        if bool((values[1:] < values[:-1]).any()):
            values = np.sort(values)
        low, high = int(values[0]), int(values[-1])
        if high <= 0:
            self.add(0, size * each)
            return
        total = int(values.sum()) if low >= 0 else int(np.maximum(values, 0).sum())
        first, last = bisect_left(self._bounds, low), bisect_left(self._bounds, high)
        # Values up to each bound; between two of them is what a bucket has.
        ends = values.searchsorted(self._bounds_column[first:last], "right").tolist()
        before = 0
        with self._lock:
            for at, end in enumerate(ends, first):
                self._counts[at] += (end - before) * each
                before = end
            self._counts[last] += (size - before) * each
            self._sum += total * each

    def add_counts(self, counts: Int64s, total: int) -> None:
        """Count what was counted elsewhere by the same bounds; `total` is the sum of the values."""
        with self._lock:
            self._counts = [
                mine + more for mine, more in zip(self._counts, counts.tolist(), strict=True)
            ]
            self._sum += total

    def read(self) -> HistogramCounts:
        """All of it as of now."""
        with self._lock:
            return HistogramCounts(self._bounds, np.array(self._counts, dtype=np.int64), self._sum)


class Counter:
    """One number that grows."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self, count: int = 1) -> None:
        """Count."""
        with self._lock:
            self.value += count


class Tallies:
    """Counters by name, each of them made when it is first counted.

    >>> refused = Tallies()
    >>> refused.add(("enqueue", "DUPLICATE"), 3)
    >>> refused.read()
    {('enqueue', 'DUPLICATE'): 3}
    """

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}
        self._lock = threading.Lock()

    def add(self, name: tuple[str, ...], count: int = 1) -> None:
        """Count. The names must come out of a small set: each is kept for ever."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + count

    def read(self) -> dict[tuple[str, ...], int]:
        """All of them as of now."""
        with self._lock:
            return dict(self._counts)


# --- a finer scale, for quantiles: what clients keep and report -----------------------------------

PER_OCTAVE = 16
"""Buckets of the fine scale for each doubling: each is 4.4 % wide."""
FINE_BUCKETS = limits.LATENESS_BUCKETS
"""Buckets of the fine scale: up to a year, in microseconds."""


def fine_bucket(value_us: int) -> int:
    """In which bucket of the fine scale a duration is."""
    return min(int(math.log2(max(value_us, 0) + 1) * PER_OCTAVE), FINE_BUCKETS - 1)


def fine_end_us(bucket: int) -> float:
    """The upper end of a bucket of the fine scale, microseconds."""
    return float(2 ** ((bucket + 1) / PER_OCTAVE) - 1)


def _coarse_of_fine() -> Int64s:
    ends = [fine_end_us(bucket) for bucket in range(FINE_BUCKETS)]
    # A bound may lie within a fine bucket: it goes where most of it is.
    middles = [(low + high) / 2 for low, high in zip([0.0, *ends], ends, strict=False)]
    return np.searchsorted(np.array(DURATION_BOUNDS_US, dtype=np.float64), middles)


_COARSE_OF_FINE = _coarse_of_fine()


def coarsen(buckets: npt.NDArray[np.integer], counts: npt.NDArray[np.integer]) -> Int64s:
    """Counts of the fine scale by DURATION_BOUNDS_US; right within 4.4 % of a bound.

    Args:
        buckets: of the fine scale, all below FINE_BUCKETS.
        counts: values in each of them.
    """
    coarse = np.zeros(len(DURATION_BOUNDS_US) + 1, dtype=np.int64)
    np.add.at(coarse, _COARSE_OF_FINE[buckets], counts)
    return coarse
