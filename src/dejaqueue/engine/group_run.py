"""GroupRun: entries sorted by (group, rank), taken from the front of each group.

Room: engine; pure, memory only.
Holds: entries ascend by (group, rank), each once; what is taken of a group is its beginning.
See: group_runs.py, which has several and makes one of some; group_merge.py.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s, sort_pairs

Pair: TypeAlias = tuple[int, int]
"""A group and a rank."""

_BITS = limits.SEQUENCE_BITS
_PACKED_BITS = 63


def sort_entries(codes: Int64s, ranks: Int64s, *, are_runs: bool = False) -> tuple[Int64s, Int64s]:
    """The same entries in order of (group, rank).

    Args:
        are_runs: they are a few sorted stretches, one behind the other.

    Ranks with priorities span all 63 bits, so `sort_pairs` could not pack the ties of a group, and
    would take its slow way. What differs in group, priority and sequence nearly always fits into
    one integer.
    """
    if ranks.size < 2:
        return codes, ranks
    low, high = int(ranks.min()) >> _BITS, int(ranks.max()) >> _BITS
    if low == high and not are_runs:
        return sort_pairs(codes, ranks)
    sequences = ranks & limits.SEQUENCE_MAX
    first, first_code = int(sequences.min()), int(codes.min())
    sequence_bits = (int(sequences.max()) - first).bit_length()
    rank_bits = (high - low).bit_length() + sequence_bits
    if (int(codes.max()) - first_code).bit_length() + rank_bits > _PACKED_BITS:
        order = np.lexsort((ranks, codes))
        return codes[order], ranks[order]
    packed = codes - first_code
    packed <<= rank_bits
    packed |= ((ranks >> _BITS) - low) << sequence_bits
    packed |= sequences - first
    if are_runs:
        packed.sort(
            kind="stable"
        )  # merges what is sorted: 1 to 8 ns an entry, the other takes 30 to 50
    else:
        # tidy: allow determinism, because equal values are one entry that is there twice
        packed.sort()
    ranks = (packed >> sequence_bits) & ((1 << (rank_bits - sequence_bits)) - 1)
    ranks += low
    ranks <<= _BITS
    ranks |= (packed & ((1 << sequence_bits) - 1)) + first
    packed >>= rank_bits
    packed += first_code
    return packed, ranks


class GroupRun:
    """One run. Groups ascend, each is there once.

    Args:
        groups: the groups it has.
        starts: where the entries of each begin.
        ranks: all entries.

    Attributes:
        groups, ranks: as given; never changed.
        starts: and where the last one ends: one more than there are groups.
        firsts: where the entries that are left of each group begin.
        count: entries that are left.
    """

    __slots__ = ("count", "firsts", "groups", "ranks", "starts")

    def __init__(self, groups: Int64s, starts: Int64s, ranks: Int64s) -> None:
        self.groups = groups
        self.starts: Int64s = np.append(starts, ranks.size).astype(np.int64, copy=False)
        self.firsts: Int64s = self.starts[:-1].copy()
        self.ranks = ranks
        self.count = ranks.size

    @staticmethod
    def of(codes: Int64s, ranks: Int64s) -> GroupRun:
        """The run of these entries, which are sorted and each there once."""
        starts = starts_of(codes)
        return GroupRun(codes[starts], starts, ranks)

    def __len__(self) -> int:
        return self.count

    @property
    def ends(self) -> Int64s:
        """Where the entries of each group end."""
        return self.starts[1:]

    def left(self) -> tuple[Int64s, Int64s]:
        """(groups, ranks) of the entries that are left."""
        counts = self.ends - self.firsts
        codes = np.repeat(self.groups, counts)
        if codes.size == self.ranks.size:  # nothing was taken of it
            return codes, self.ranks
        return codes, self.ranks[ranges(self.firsts, counts)]

    def pair(self, place: int) -> Pair:
        """Group and rank of the entry at this place."""
        row = int(self.starts.searchsorted(place, "right")) - 1
        return int(self.groups[row]), int(self.ranks[place])

    def place_after(self, pair: Pair) -> int:
        """Place of the first entry that is greater."""
        group, rank = pair
        row = int(self.groups.searchsorted(group))
        if row == self.groups.size or self.groups[row] != group:
            return int(self.starts[row])
        start, end = int(self.starts[row]), int(self.starts[row + 1])
        return start + int(self.ranks[start:end].searchsorted(rank, "right"))

    def between(self, first: int, end: int, firsts: Int64s) -> tuple[Int64s, Int64s]:
        """(groups, ranks) of the entries at these places that were left when `firsts` was so."""
        row = int(self.starts.searchsorted(first, "right")) - 1
        last = int(self.starts.searchsorted(end, "left"))
        begins = np.maximum(firsts[row:last], first)
        counts = np.maximum(np.minimum(self.starts[row + 1 : last + 1], end) - begins, 0)
        codes = np.repeat(self.groups[row:last], counts)
        if codes.size == end - first:  # nothing was taken of it
            return codes, self.ranks[first:end]
        return codes, self.ranks[ranges(begins, counts)]

    def skip(self, groups: Int64s, ranks: Int64s) -> None:
        """What there is of these groups, each once, up to these ranks is taken.

        Cost: O(log entries) passes over the groups.
        """
        if not self.count:
            return
        rows = np.minimum(self.groups.searchsorted(groups), self.groups.size - 1)
        known = self.groups[rows] == groups
        rows, ranks = rows[known], ranks[known]
        lows, highs = self.firsts[rows], self.ends[rows].copy()
        while (open_mask := lows < highs).any():
            middles = (lows + highs) // 2
            below_mask = self.ranks[np.minimum(middles, self.ranks.size - 1)] <= ranks
            lows = np.where(open_mask & below_mask, middles + 1, lows)
            highs = np.where(open_mask & ~below_mask, middles, highs)
        self.count -= int((lows - self.firsts[rows]).sum())
        self.firsts[rows] = lows


def starts_of(codes: Int64s) -> Int64s:
    """Where each code begins in a column that ascends and is not empty."""
    return np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])


def without_repeats(codes: Int64s, ranks: Int64s) -> tuple[Int64s, Int64s]:
    """Entries that are sorted, each once."""
    once = np.ones(codes.size, dtype=np.bool_)
    once[1:] = (codes[1:] != codes[:-1]) | (ranks[1:] != ranks[:-1])
    return (codes, ranks) if once.all() else (codes[once], ranks[once])


def ranges(firsts: Int64s, counts: Int64s) -> Int64s:
    """first, first + 1, … for each, one after the other."""
    before = np.cumsum(counts) - counts
    places: Int64s = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(
        firsts - before, counts
    )
    return places
