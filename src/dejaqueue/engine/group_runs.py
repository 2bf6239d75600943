"""GroupRuns: messages by group and, within a group, by rank.

Room: engine; pure, memory only.
Holds: what comes out of a group ascends by rank; nothing comes out twice; an entry whose
    message is not ready any more never comes out (lazy deletion).
See: fair.py, which says how many of which group; runs.py for the same idea with one order.

A rank is a sequence, perhaps with a priority above it (fair.py): unique in its group, 63 bits. A
run is sorted by (group, rank) and knows where each of its groups begins. Taking the first few
of a thousand groups is then one search and one gather in each run, whatever the runs' length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s, Mask, sort_pairs
from dejaqueue.engine.layout import Layout

IsReady: TypeAlias = Callable[[Int64s, Int64s], Mask]
"""(groups, ranks) -> which of these entries are ready messages of that group."""

_NONE = np.zeros(0, dtype=np.int64)
_SLACK = 2
_NEVER = np.int64((1 << 63) - 1)
_BITS = limits.SEQUENCE_BITS
_PACKED_BITS = 63


def sort_entries(codes: Int64s, ranks: Int64s) -> tuple[Int64s, Int64s]:
    """The same entries in order of (group, rank).

    Ranks with priorities span all 63 bits, so `sort_pairs` could not pack the ties of a group, and
    would take its slow way. What differs in group, priority and sequence nearly always fits into
    one integer.
    """
    if ranks.size < 2:
        return codes, ranks
    low, high = int(ranks.min()) >> _BITS, int(ranks.max()) >> _BITS
    if low == high:
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
    packed.sort()  # tidy: allow determinism, because equal values are one entry that is there twice
    ranks = (packed >> sequence_bits) & ((1 << (rank_bits - sequence_bits)) - 1)
    ranks += low
    ranks <<= _BITS
    ranks |= (packed & ((1 << sequence_bits) - 1)) + first
    packed >>= rank_bits
    packed += first_code
    return packed, ranks


class GroupRun:
    """Entries sorted by (group, rank), taken from the front of each group.

    Attributes:
        groups: the groups it has, ascending.
        firsts, ends: where the entries that are left of each group begin and end.
        ranks: all entries.
        count: entries that are left.
    """

    __slots__ = ("count", "ends", "firsts", "groups", "ranks")

    def __init__(self, codes: Int64s, ranks: Int64s) -> None:
        starts = np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])
        self.groups: Int64s = codes[starts]
        self.firsts: Int64s = starts.astype(np.int64)
        self.ends: Int64s = np.append(starts[1:], codes.size).astype(np.int64)
        self.ranks = ranks
        self.count = codes.size

    def __len__(self) -> int:
        return self.count

    def left(self) -> tuple[Int64s, Int64s]:
        """(groups, ranks) of the entries that are left."""
        counts = self.ends - self.firsts
        return np.repeat(self.groups, counts), self.ranks[_ranges(self.firsts, counts)]


def _ranges(firsts: Int64s, counts: Int64s) -> Int64s:
    """first, first + 1, … for each, one after the other."""
    before = np.cumsum(counts) - counts
    ranges: Int64s = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(
        firsts - before, counts
    )
    return ranges


class GroupRuns:
    """All entries of a partition.

    Attributes:
        entry_count: entries held, dead ones included.
    """

    def __init__(self, layout: Layout) -> None:
        self._seal_rows = layout.seal_rows
        self._sweep_rows_min = layout.sweep_rows_min
        self._young: list[tuple[Int64s, Int64s]] = []
        self._runs: list[GroupRun] = []
        self.entry_count = 0

    def insert(self, codes: Int64s, ranks: Int64s) -> None:
        """Add entries, in any order. The arrays are kept and must not be changed any more."""
        if codes.size:
            self._young.append((codes, ranks))
            self.entry_count += codes.size

    def _sort_young(self) -> None:
        if not self._young:
            return
        codes = np.concatenate([batch[0] for batch in self._young])
        ranks = np.concatenate([batch[1] for batch in self._young])
        self._young = []
        runs = [run for run in self._runs if len(run) >= self._seal_rows]
        small = [run for run in self._runs if 0 < len(run) < self._seal_rows]
        small.sort(key=len, reverse=True)
        # Each run is to be at least twice as long as all after it together, or they are merged.
        total = codes.size
        merged = [(codes, ranks)]
        while small and len(small[-1]) < 2 * total:
            run = small.pop()
            total += len(run)
            merged.append(run.left())
        run = self._run(
            np.concatenate([part[0] for part in merged]),
            np.concatenate([part[1] for part in merged]),
        )
        self._runs = [*runs, *small, run]

    def _run(self, codes: Int64s, ranks: Int64s) -> GroupRun:
        """A run of these entries, each once: a message that left its group and came back is there
        twice, and a run that is looked at in two pieces would give it twice."""
        codes, ranks = sort_entries(codes, ranks)
        once = np.ones(codes.size, dtype=np.bool_)
        once[1:] = (codes[1:] != codes[:-1]) | (ranks[1:] != ranks[:-1])
        if not once.all():
            self.entry_count -= int(codes.size - np.count_nonzero(once))
            codes, ranks = codes[once], ranks[once]
        return GroupRun(codes, ranks)

    def take(
        self, groups: Int64s, counts: Int64s, is_ready: IsReady, slack: int = _SLACK
    ) -> tuple[Int64s, Int64s]:
        """The first `counts` ready entries of each group; groups ascend, each is there once.

        Args:
            slack: how many more entries of each group are looked at, since some may be dead.

        Returns:
            Groups and ranks, in order of both; fewer of a group only if it has no more.
        """
        self._sort_young()
        parts: list[tuple[Int64s, Int64s]] = []
        while groups.size:
            codes, ranks, left_counts = self._take_once(groups, counts, is_ready, slack)
            slack = max(slack, _SLACK)
            parts.append((codes, ranks))
            more = left_counts > 0
            groups, counts = groups[more], left_counts[more]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return _NONE, _NONE
        return sort_entries(
            np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        )

    def _take_once(
        self, groups: Int64s, counts: Int64s, is_ready: IsReady, slack: int
    ) -> tuple[Int64s, Int64s, Int64s]:
        """As `take`, but it may stop short; returns how many of each group are still wanted."""
        parts: list[tuple[GroupRun, Int64s, Int64s, Int64s, Int64s]] = []
        cuts = np.full(groups.size, _NEVER)  # beyond it some run has entries not looked at
        for run in self._runs:
            rows = np.minimum(run.groups.searchsorted(groups), run.groups.size - 1)
            wanted = np.flatnonzero(
                (run.groups[rows] == groups) & (run.firsts[rows] < run.ends[rows])
            )
            if not wanted.size:
                continue
            rows = rows[wanted]
            firsts, lefts = run.firsts[rows], run.ends[rows] - run.firsts[rows]
            lengths = np.minimum(lefts, counts[wanted] + slack)
            ranks = run.ranks[_ranges(firsts, lengths)]
            places = np.repeat(wanted, lengths)
            parts.append((run, rows, places, ranks, lengths))
            short = np.flatnonzero(lengths < lefts)
            if short.size:
                lasts = ranks[np.cumsum(lengths)[short] - 1]
                cuts[wanted[short]] = np.minimum(cuts[wanted[short]], lasts)
        if not parts:
            return _NONE, _NONE, np.zeros(groups.size, dtype=np.int64)
        if len(parts) == 1:
            places, ranks = parts[0][2], parts[0][3]
        else:
            places, ranks = sort_entries(
                np.concatenate([part[2] for part in parts]),
                np.concatenate([part[3] for part in parts]),
            )
        mask = is_ready(groups[places], ranks)
        mask &= ranks <= cuts[places]
        mask[1:] &= (places[1:] != places[:-1]) | (ranks[1:] != ranks[:-1])
        places, ranks = places[mask], ranks[mask]
        founds = np.bincount(places, minlength=groups.size)
        nths = np.arange(places.size) - np.repeat(np.cumsum(founds) - founds, founds)
        taken_mask = nths < counts[places]
        places, ranks = places[taken_mask], ranks[taken_mask]
        takens = np.minimum(founds, counts)
        # What was looked at: up to the last one taken, or, if that was not enough, up to the cut.
        lefts = counts - takens
        bounds = cuts.copy()
        enough = np.flatnonzero(lefts == 0)
        bounds[enough] = ranks[np.cumsum(takens)[enough] - 1]
        self._advance(parts, bounds)
        lefts[cuts == _NEVER] = 0
        return groups[places], ranks, lefts

    def _advance(
        self, parts: list[tuple[GroupRun, Int64s, Int64s, Int64s, Int64s]], bounds: Int64s
    ) -> None:
        """Entries that were looked at, up to the bound of their group, are taken."""
        for run, rows, places, ranks, lengths in parts:
            done = (ranks <= bounds[places]).astype(np.int64)
            ends = np.cumsum(lengths)
            takens = np.add.reduceat(done, ends - lengths)
            run.firsts[rows] += takens
            count = int(takens.sum())
            run.count -= count
            self.entry_count -= count
        self._runs = [run for run in self._runs if len(run)]

    def sweep(self, is_ready: IsReady, ready_count: int) -> None:
        """Drop dead entries if they are the greater part. Cost: O(entries), rarely."""
        if self.entry_count <= 2 * ready_count + self._sweep_rows_min:
            return
        parts = [run.left() for run in self._runs] + self._young
        codes = np.concatenate([part[0] for part in parts])
        ranks = np.concatenate([part[1] for part in parts])
        mask = is_ready(codes, ranks)
        codes, ranks = codes[mask], ranks[mask]
        self._young, self._runs, self.entry_count = [], [], codes.size
        if codes.size:
            self._runs.append(self._run(codes, ranks))
