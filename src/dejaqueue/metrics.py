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

    def quantile(self, part: float) -> int:
        """The upper end of the bucket in which this part of the values ends; of what is beyond
        all bounds, the last one. -1 = there are no values.

        >>> late = Histogram((10, 100))
        >>> late.add(5, 98)
        >>> late.add(50, 2)
        >>> late.read().quantile(0.5), late.read().quantile(0.99)
        (10, 100)
        """
        total = self.count
        if total <= 0:
            return -1
        at = int(np.searchsorted(np.cumsum(self.counts), math.ceil(total * part), "left"))
        return self.bounds[min(at, len(self.bounds) - 1)]

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

    def add_each(self, values: list[int], weights: int, last_weight: int) -> None:
        """Count a few values, each so many times; the last one so many times."""
        bounds, total = self._bounds, 0
        with self._lock:
            counts = self._counts
            for value in values:
                counts[bisect_left(bounds, value)] += weights
                total += value if value > 0 else 0
            last = values[-1]
            counts[bisect_left(bounds, last)] += last_weight - weights
            self._sum += total * weights + max(last, 0) * (last_weight - weights)

    def add_many(self, values: Int64s) -> None:
        """Count values. Cost: some 5 µs for a thousand, and a sort."""
        values = np.maximum(np.sort(values), 0)
        if not values.size:
            return
        first = bisect_left(self._bounds, int(values[0]))
        last = bisect_left(self._bounds, int(values[-1]))
        ends = values.searchsorted(self._bounds_column[first:last], "right").tolist()
        self._add_ends(first, [*ends, values.size], int(values.sum()))

    def add_since(self, now_us: int, instants_ms: Int64s) -> None:
        """Count how long ago these instants were, in microseconds; they ascend. Cost: about 4 µs
        for a thousand."""
        size = instants_ms.size
        if not size:
            return
        longest_us = now_us - int(instants_ms[0]) * 1_000
        shortest_us = now_us - int(instants_ms[-1]) * 1_000
        if longest_us <= 0:
            self.add(0, size)
            return
        if shortest_us >= 0:
            total = now_us * size - int(instants_ms.sum()) * 1_000
        else:
            past = instants_ms[: int(instants_ms.searchsorted(now_us // 1_000, "right"))]
            total = now_us * past.size - int(past.sum()) * 1_000
        first = bisect_left(self._bounds, max(shortest_us, 0))
        last = bisect_left(self._bounds, longest_us)
        if first == last:
            self._add_ends(first, [size], total)
            return
        # What is longer ago than a bound is before it in the column: so many are not.
        edges_ms = -((self._bounds_column[first:last] - now_us) // 1_000)
        ends = (size - instants_ms.searchsorted(edges_ms, "left")).tolist()
        self._add_ends(first, [*ends, size], total)

    def _add_ends(self, first: int, ends: list[int], total: int) -> None:
        """Count so many values up to the end of each bucket from `first` on."""
        before = 0
        with self._lock:
            for at, end in enumerate(ends, first):
                self._counts[at] += end - before
                before = end
            self._sum += total

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
