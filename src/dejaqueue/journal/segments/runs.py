"""Where the entries of a partition stand in a log that it shares with others: runs of neighbours.

Positions of a partition are dense, and so are those of the log. A run is as many entries of one
partition as follow each other in both, so a partition that is alone has one run, and one whose
entries lie between those of others has one for each append.

    index of a sealed segment, behind the offsets: 32 bytes a run
     0  8 number u64     of the partition
     8  8 local u64      position of its first entry within the partition
    16  4 rows u32       rows that locators may name
    20  4 count u32      entries
    24  8 bytes u64      of its entries

Room: journal. Knows positions, no files.
Holds: a reader sees whole runs: they are published by one assignment; what was given back, or is
not there yet, is found at position 0, where nothing is.
See: log.py, which fills them; segment.py, which stores them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from dejaqueue import limits
from dejaqueue.journal.interface import Int64s

RUN_BYTES: Final = 32
_COLUMNS: Final = 4
_GONE: Final = -(1 << 62)
"""Added to any locator, it gives something negative."""
_FIRST_ROOM: Final = 4

RUN: Final = np.dtype(
    [("number", "<u8"), ("local", "<u8"), ("rows", "<u4"), ("count", "<u4"), ("bytes", "<u8")]
)
RunTable = npt.NDArray[np.void]
"""Runs of a segment in the order of their entries; see RUN."""
assert RUN.itemsize == RUN_BYTES


class SegmentRuns:
    """The runs of a segment while it is written: 32 bytes each, as they will be stored."""

    def __init__(self) -> None:
        self._words = array("Q")
        self._number = self._next = -1

    def __len__(self) -> int:
        """How many there are."""
        return len(self._words) // _COLUMNS

    def add(self, number: int, local: int, rows: int, byte_count: int, count: int = 1) -> None:
        """Note entries that follow each other.

        Args:
            rows: those that locators may name.
        """
        words = self._words
        if number == self._number and local == self._next:
            words[-2] += (count << 32) + rows
            words[-1] += byte_count
        else:
            words.extend((number, local, (count << 32) + rows, byte_count))
            self._number = number
        self._next = local + count

    def encode(self) -> bytes:
        """As they are stored."""
        return self._words.tobytes()

    def table(self) -> RunTable:
        """A copy of them."""
        return np.frombuffer(self.encode(), RUN)


class Runs:
    """The runs of one partition in its log, read by any thread while one adds to them.

    >>> runs = Runs()
    >>> runs.add(1, 40, 2)
    >>> runs.add(3, 50, 1)
    >>> [one >> limits.ROW_BITS for one in runs.locate(np.array([2 << 20, 3 << 20]), 3).tolist()]
    [41, 50]
    """

    __slots__ = ("_next", "_next_position", "_published")

    def __init__(self) -> None:
        firsts, shifts = np.zeros((2, _FIRST_ROOM), dtype=np.int64)
        shifts[0] = _GONE
        self._published = (firsts, shifts, 1)
        self._next, self._next_position = 1, 0

    def __len__(self) -> int:
        """How many there are, those of what was given back included."""
        return self._published[2]

    def add(self, local: int, position: int, count: int) -> None:
        """Note entries that follow the last one; between, entries may have been given back."""
        if local != self._next:
            self._push(self._next, _GONE)
        if local != self._next or position != self._next_position:
            self._push(local, (position - local) << limits.ROW_BITS)
        self._next, self._next_position = local + count, position + count

    def _push(self, local: int, shift: int) -> None:
        firsts, shifts, count = self._published
        if count == len(firsts):
            firsts, shifts = (np.concatenate([one, np.zeros_like(one)]) for one in (firsts, shifts))
        firsts[count], shifts[count] = local << limits.ROW_BITS, shift
        self._published = (firsts, shifts, count + 1)

    def add_stored(self, locals_of: Int64s, positions: Int64s, counts: Int64s) -> None:
        """Note many runs that follow the last one, as they were found in a segment."""
        local_ends, ends = locals_of + counts, positions + counts
        before = np.concatenate([[self._next], local_ends[:-1]])
        gaps = np.flatnonzero(locals_of != before)
        joins = (locals_of == before) & (
            positions == np.concatenate([[self._next_position], ends[:-1]])
        )
        kept = np.flatnonzero(~joins)
        added = np.concatenate([before[gaps], locals_of[kept]]) << limits.ROW_BITS
        shifts_added = np.concatenate(
            [np.full(len(gaps), _GONE), (positions - locals_of)[kept] << limits.ROW_BITS]
        )
        order = np.argsort(added, kind="stable")
        firsts, shifts, count = self._published
        room = np.zeros(_FIRST_ROOM, dtype=np.int64)
        self._published = (
            np.concatenate([firsts[:count], added[order], room]),
            np.concatenate([shifts[:count], shifts_added[order], room]),
            count + len(order),
        )
        self._next, self._next_position = int(local_ends[-1]), int(ends[-1])

    def first_behind(self, position: int) -> int:
        """The log's position of the first entry behind one, 0 if there is none."""
        firsts, shifts, count = self._published
        there = np.flatnonzero(shifts[:count] != _GONE)
        if not len(there) or position >= self._next_position - 1:
            return 0
        starts = (firsts[there] + shifts[there]) >> limits.ROW_BITS
        lasts = np.append(firsts[1:count] >> limits.ROW_BITS, self._next)[there] - 1
        lasts += shifts[there] >> limits.ROW_BITS
        place = int(lasts.searchsorted(position, side="right"))
        return max(position + 1, int(starts[place]))

    def forget_before(self, position: int) -> None:
        """Let go of runs whose entries all lie before a position of the log."""
        firsts, shifts, count = self._published
        starts = (firsts[1:count] + shifts[1:count]) >> limits.ROW_BITS
        gone = np.flatnonzero((shifts[1:count] != _GONE) & (starts <= position))
        if len(gone) and gone[-1]:
            kept = slice(1 + int(gone[-1]), count)
            firsts, shifts = (
                np.concatenate([one[:1], one[kept], np.zeros(_FIRST_ROOM, dtype=np.int64)])
                for one in (firsts, shifts)
            )
            self._published = (firsts, shifts, 1 + kept.stop - kept.start)

    def locate(self, locators: Int64s, tail: int) -> Int64s:
        """Locators of the log for those of the partition; 0 for what is not there.

        Args:
            tail: of the partition.
        """
        if not len(locators):
            return locators
        firsts, shifts, count = self._published
        first, shift = firsts.item(count - 1), shifts.item(count - 1)
        end = (tail + 1) << limits.ROW_BITS
        ahead = locators - first
        # As a number without sign, what lies before the run is large: one look for both bounds.
        if shift != _GONE and np.maximum.reduce(ahead.view(np.uint64)) < end - first:
            return np.asarray(ahead + (first + shift))
        places = firsts[:count].searchsorted(locators, side="right") - 1
        found = locators + shifts[places]
        found[(found < 0) | (locators >= end) | (places < 0)] = 0
        return np.asarray(found)

    def position_of(self, local: int) -> int:
        """The log's position of an entry that is not behind the last, 0 if it was given back."""
        firsts, shifts, count = self._published
        locator = local << limits.ROW_BITS
        place = int(firsts[:count].searchsorted(locator, side="right")) - 1
        return max(0, (locator + int(shifts[place])) >> limits.ROW_BITS)

    def has_all(self, local: int) -> bool:
        """Whether nothing was given back from this position of the partition on."""
        return all(position for _, position, _ in self.since(local))

    def since(self, local: int) -> Iterator[tuple[int, int, int]]:
        """Runs from a position of the partition on: (local, position, count), in order; position 0
        of what was given back."""
        firsts, shifts, count = self._published
        place = int(firsts[:count].searchsorted(local << limits.ROW_BITS, side="right")) - 1
        bounds = [*(firsts[place + 1 : count] >> limits.ROW_BITS).tolist(), self._next]
        for shift, end in zip(shifts[place:count].tolist(), bounds, strict=True):
            if end > local:
                position = 0 if shift == _GONE else local + (shift >> limits.ROW_BITS)
                yield local, position, end - local
                local = end
