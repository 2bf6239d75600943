"""Windows: new due times for many messages, evenly over a stretch of time, in the order they have.

Room: broker. Pure functions over arrays of due times.
Holds: every new time lies in the window; the times of a partition are as even as whole milliseconds
let them be, and its partitions' lie between each other's; no place is given twice, unless there are
more messages than were counted.
See: by_filter.py, which walks through the rows in another order than that of their times.

Rows are met in the order in which they came in, but should keep the order in which they are due. So
the due times of a partition are looked at first, and cut into PARTS of about as many rows each: a
row's rank is that of its part, and how many of that part came before it. Within a part of one
command, rows keep their order; of two commands, they may change places by a part's width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import BadRequest
from dejaqueue.wire.descriptors import check_fields

PARTS = 64
"""So many, so that how far a walk came is a kilobyte or two of text."""
_FIELDS = ("starts_ms", "counts", "done")


@dataclass(frozen=True, slots=True)
class Window:
    """Where the new due times lie: from `from_ms` on, before `to_ms`."""

    from_ms: int
    to_ms: int


class Places:
    """The places of a partition's messages in a window, and which of them are taken.

    Args:
        starts_ms: the first due time of each part, ascending.
        counts: how many messages each part has.
        done: how many of them have their new time.
    """

    def __init__(self, starts_ms: Int64s, counts: Int64s, done: Int64s) -> None:
        self._starts_ms, self._counts, self._done = starts_ms, counts, done

    @classmethod
    def of(cls, dues_ms: Int64s) -> Places:
        """Those of messages that are due then. Cost: a sort.

        >>> Places.of(np.array([5, 9, 5])).to_values()
        {'starts_ms': [5, 9], 'counts': [2, 1], 'done': [0, 0]}
        """
        ordered, size = np.sort(dues_ms), dues_ms.size
        starts_ms = np.unique(ordered[np.arange(min(PARTS, size)) * size // min(PARTS, size or 1)])
        counts = np.diff(np.append(np.searchsorted(ordered, starts_ms), size))
        return cls(starts_ms, counts, np.zeros_like(counts))

    @property
    def count(self) -> int:
        """How many places there are."""
        return int(self._counts.sum())

    def take(self, dues_ms: Int64s) -> Int64s:
        """Give places to messages, by when they are due now.

        A message that nobody counted, as it came into the selection meanwhile, shares the last one
        of its part.

        Returns:
            The number of each one's place, from 0.
        """
        parts = np.maximum(np.searchsorted(self._starts_ms, dues_ms, side="right") - 1, 0)
        order = np.lexsort((dues_ms, parts))
        ordered_parts = parts[order]
        taken = np.bincount(parts, minlength=self._counts.size)
        before = np.arange(dues_ms.size) - (np.cumsum(taken) - taken)[ordered_parts]
        within = np.minimum(self._done[ordered_parts] + before, self._counts[ordered_parts] - 1)
        places = np.empty(dues_ms.size, dtype=np.int64)
        places[order] = (np.cumsum(self._counts) - self._counts)[ordered_parts] + within
        self._done = np.minimum(self._done + taken, self._counts)
        return places

    def to_values(self) -> dict[str, list[int]]:
        """As JSON, for who goes on."""
        values = (self._starts_ms.tolist(), self._counts.tolist(), self._done.tolist())
        return dict(zip(_FIELDS, values, strict=True))

    @classmethod
    def from_values(cls, values: Any) -> Places:
        """What `to_values` gave. Raises BadRequest."""
        refusal = BadRequest("after", "the `next` of the answer before", values)
        if not isinstance(values, dict):
            raise refusal
        check_fields(values, list(_FIELDS), required=_FIELDS)
        columns = [values[name] for name in _FIELDS]
        if not all(isinstance(column, list) and 0 < len(column) <= PARTS for column in columns):
            raise refusal
        if not all(type(one) is int for column in columns for one in column):
            raise refusal
        starts_ms, counts, done = columns
        if not len(starts_ms) == len(counts) == len(done) or starts_ms != sorted(set(starts_ms)):
            raise refusal
        in_bounds = all(
            0 <= start_ms <= limits.INSTANT_MS_MAX and 0 <= taken <= count <= limits.WINDOW_ROWS_MAX
            for start_ms, count, taken in zip(starts_ms, counts, done, strict=True)
        )
        if not in_bounds or min(counts) < 1:
            raise refusal
        return cls(*(np.array(column, dtype=np.int64) for column in columns))


def times_of(
    window: Window, places: Int64s, place_count: int, partition_index: int, partition_count: int
) -> Int64s:
    """The due times of places in a window.

    Args:
        place_count: how many places the partition has.
        partition_index, partition_count: which of the topic's partitions it is, from 0: each has
            its own places between those of the others.

    >>> times_of(Window(1_000, 2_000), np.array([0, 1, 3]), 4, 0, 1).tolist()
    [1000, 1250, 1750]
    """
    # In floats, as the product may be too large for integers; exact, while that is below 2**53.
    parts = (places * partition_count + partition_index).astype(np.float64)
    later_ms = parts * (window.to_ms - window.from_ms) / (place_count * partition_count)
    times_ms = window.from_ms + np.floor(later_ms).astype(np.int64)
    return np.clip(times_ms, window.from_ms, window.to_ms - 1)


def parse_window(values: dict[str, Any]) -> Window | None:
    """The window of a request's fields; None = it has none. Raises BadRequest."""
    bounds = [values.get(name) for name in ("window_from", "window_to")]
    if bounds == [None, None]:
        return None
    for name, value in zip(("window_from", "window_to"), bounds, strict=True):
        if type(value) is not int or not 0 <= value <= limits.INSTANT_MS_MAX:
            raise BadRequest(name, f"a whole number from 0 to {limits.INSTANT_MS_MAX}", value)
    window = Window(values["window_from"], values["window_to"])
    if window.from_ms >= window.to_ms:
        raise BadRequest("window_to", "after window_from", window.to_ms)
    return window
