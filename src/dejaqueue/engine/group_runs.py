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

from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.group_merge import GroupMerge
from dejaqueue.engine.group_run import GroupRun, ranges, sort_entries, without_repeats
from dejaqueue.engine.layout import Layout

IsReady: TypeAlias = Callable[[Int64s, Int64s], Mask]
"""(groups, ranks) -> which of these entries are ready messages of that group."""

_NONE = np.zeros(0, dtype=np.int64)
_SLACK = 2
_NEVER = np.int64((1 << 63) - 1)
# Of the rows of a sealed run: so many are sorted at once, a millisecond of work.
_AT_ONCE_PART = 8
# Of those: what came in before merges go on; a step of one is to be worth its calls of numpy.
_STEP_PART = 8
# Entries that each merge goes on by for each that came in. One would do, as each entry is merged
# once for each eightfold length; but a step takes of each run what the first of them allows.
_STEP_FACTOR = 3
_LEFT = -1


class GroupRuns:
    """All entries of a partition.

    Attributes:
        entry_count: entries held, dead ones included.
    """

    def __init__(self, layout: Layout) -> None:
        self._at_once_rows = max(2, layout.seal_rows // _AT_ONCE_PART)
        self._ways = layout.merge_ways
        self._sweep_rows_min = layout.sweep_rows_min
        self._merges: dict[int, GroupMerge] = {}
        self._young: list[tuple[Int64s, Int64s]] = []
        self._young_rows = 0
        self._unpaid_rows = 0
        self._runs: list[GroupRun] = []
        self.entry_count = 0

    def insert(self, codes: Int64s, ranks: Int64s) -> None:
        """Add entries, in any order. The arrays are kept and must not be changed any more."""
        if not codes.size:
            return
        self._young.append((codes, ranks))
        self.entry_count += codes.size
        self._young_rows += codes.size
        if self._young_rows >= self._at_once_rows:
            self._sort_young()
        self._unpaid_rows += codes.size
        if self._unpaid_rows >= self._at_once_rows // _STEP_PART:
            self._merge_some(_STEP_FACTOR * self._unpaid_rows)
            self._unpaid_rows = 0

    def _sort_young(self) -> None:
        codes = np.concatenate([batch[0] for batch in self._young])
        ranks = np.concatenate([batch[1] for batch in self._young])
        self._young, self._young_rows = [], 0
        total = codes.size
        merged = [(codes, ranks)]
        small = sorted(self._free_runs(), key=len, reverse=True)
        # Each run is to be at least twice as long as all after it together, or they are merged;
        # long ones step by step, so that nobody waits for it.
        while small and len(small[-1]) < 2 * total and total + len(small[-1]) <= self._at_once_rows:
            run = small.pop()
            total += len(run)
            merged.append(run.left())
            self._runs.remove(run)
        self._runs.append(
            self._run(
                np.concatenate([part[0] for part in merged]),
                np.concatenate([part[1] for part in merged]),
            )
        )
        for length, alike in self._alike().items():
            if len(alike) >= self._ways and length not in self._merges:
                self._merges[length] = GroupMerge(alike)

    def _merge_left(self) -> None:
        """Nothing comes in: go on with merging, as long as that makes takes faster."""
        if not self._merges and (runs := self._uneven_runs()):
            self._merges[_LEFT] = GroupMerge(runs)
        self._merge_some(self._at_once_rows // max(1, len(self._merges)))

    def _uneven_runs(self) -> list[GroupRun]:
        """Those from the longest on that is not twice as long as all shorter ones together."""
        runs = sorted(self._runs, key=len, reverse=True)
        first, total = len(runs), 0
        for place in reversed(range(len(runs))):
            if len(runs[place]) < 2 * total:
                first = place
            total += len(runs[place])
        return runs[first:]

    def _free_runs(self) -> list[GroupRun]:
        """Those that are not being merged."""
        merging = {id(run) for merge in self._merges.values() for run in merge.runs}
        return [run for run in self._runs if id(run) not in merging]

    def _alike(self) -> dict[int, list[GroupRun]]:
        """Those of like length, by about their length."""
        found: dict[int, list[GroupRun]] = {}
        bits = self._ways.bit_length() - 1
        for run in self._free_runs():
            length = len(run) // self._at_once_rows
            found.setdefault(length.bit_length() // bits, []).append(run)
        return found

    def _merge_some(self, rows: int) -> None:
        """Take each merge about so many entries on."""
        for length, merge in list(self._merges.items()):
            if not merge.step(rows):
                continue
            del self._merges[length]
            sources = set(map(id, merge.runs))
            self._runs = [one for one in self._runs if id(one) not in sources]
            run = merge.run()
            if len(run):
                self._runs.append(run)
            self.entry_count = sum(map(len, self._runs)) + self._young_rows  # each once, now

    def _run(self, codes: Int64s, ranks: Int64s) -> GroupRun:
        """A run of these entries, each once: a message that left its group and came back is there
        twice, and a run that is looked at in two pieces would give it twice."""
        count = codes.size
        codes, ranks = without_repeats(*sort_entries(codes, ranks))
        self.entry_count -= count - codes.size
        return GroupRun.of(codes, ranks)

    def take(
        self, groups: Int64s, counts: Int64s, is_ready: IsReady | None, slack: int = _SLACK
    ) -> tuple[Int64s, Int64s]:
        """The first `counts` ready entries of each group; groups ascend, each is there once.

        Args:
            is_ready: None = all entries are, each is there once, and each group has so many.
            slack: how many more entries of each group are looked at, since some may be dead.

        Returns:
            Groups and ranks, in order of both; fewer of a group only if it has no more.
        """
        if self._young:
            self._sort_young()
        else:
            self._merge_left()
        if is_ready is None and len(self._runs) == 1:
            return self._take_firsts(groups, counts)
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

    def _take_firsts(self, groups: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
        """As `take`, of the only run, in which all entries are ready."""
        run = self._runs[0]
        rows = run.groups.searchsorted(groups)
        firsts = run.firsts[rows]
        ranks = run.ranks[ranges(firsts, counts)]
        run.firsts[rows] = firsts + counts
        run.count -= ranks.size
        self.entry_count -= ranks.size
        if not run.count:
            self._runs = []
        return np.repeat(groups, counts), ranks

    def _take_once(
        self, groups: Int64s, counts: Int64s, is_ready: IsReady | None, slack: int
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
            ranks = run.ranks[ranges(firsts, lengths)]
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
                are_runs=True,
            )
        mask: Mask = ranks <= cuts[places]
        if is_ready is not None:
            mask &= is_ready(groups[places], ranks)
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
        self._young, self._young_rows, self._runs, self._merges = [], 0, [], {}
        self.entry_count = codes.size
        if codes.size:
            self._runs.append(self._run(codes, ranks))
