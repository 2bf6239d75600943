"""Spikes: seconds that hold more than a partition leases in them, and when to begin with them.

Room: broker. Pure.
See: spike_chore.py, which looks for them; docs/guides/spikes.md.
"""

from __future__ import annotations

from typing import NamedTuple

from dejaqueue.engine.arrays import Int64s

SECOND_MS = 1_000


class Spike(NamedTuple):
    """Seconds in a row that hold more than can be leased as they come.

    Attributes:
        begins_ms: when leasing it has to begin, so that all of it is leased in time.
        until_ms: the end of its last second; both in UTC milliseconds.
    """

    begins_ms: int
    until_ms: int


def spike_in(counts: Int64s, first_s: int, rows_per_s: int) -> Spike | None:
    """The first spike, or None.

    From the last second back: what is due in one must be leased when it begins, or when those after
    it have to begin, if that is before. One that has to begin more than a second before it comes is
    part of a spike.

    Args:
        counts: messages that are due in each second.
        first_s: the first of those seconds, UTC.
        rows_per_s: what a partition leases in a second.

    >>> import numpy as np
    >>> spike_in(np.array([0, 0, 0, 0, 0, 2_000_000, 0]), 100, 500_000)
    Spike(begins_ms=101000, until_ms=106000)
    >>> spike_in(np.array([400_000] * 60), 100, 500_000) is None
    True
    """
    needs_ms = (counts * SECOND_MS // rows_per_s).tolist()
    found: Spike | None = None
    begins_ms = (first_s + len(needs_ms)) * SECOND_MS
    for place in range(len(needs_ms) - 1, -1, -1):
        comes_ms = (first_s + place) * SECOND_MS
        begins_ms = min(comes_ms, begins_ms) - needs_ms[place]
        if begins_ms < comes_ms - SECOND_MS:
            ends_ms = comes_ms + SECOND_MS
            joined = found is not None and found.begins_ms < ends_ms
            found = Spike(begins_ms, found.until_ms if found and joined else ends_ms)
    return found
