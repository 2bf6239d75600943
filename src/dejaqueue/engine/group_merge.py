"""GroupMerge: several runs of groups that become one, some entries at a time.

Room: engine; pure, memory only.
Holds: the run that comes of it has what is left of its runs, each entry once; until it is there
    messages are taken from those as ever. How far it is makes no difference to what comes out.
See: group_runs.py, which begins and steps it.
"""

from __future__ import annotations

import numpy as np

from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.group_run import GroupRun, Pair, sort_entries, starts_of, without_repeats


class GroupMerge:
    """One merge.

    What is taken of the runs meanwhile is merged, too, and skipped at the end: of a group all runs
    are taken from up to the same rank, so the highest one that was taken tells.

    Attributes:
        runs: which become one.
    """

    def __init__(self, runs: list[GroupRun]) -> None:
        self.runs = runs
        self._firsts = [run.firsts.copy() for run in runs]
        self._places = [0] * len(runs)
        # Written to once, front to back: its pages come as they are needed.
        self._ranks: Int64s = np.empty(sum(len(run) for run in runs), dtype=np.int64)
        self._count = 0
        self._groups: list[Int64s] = []
        self._starts: list[Int64s] = []

    def step(self, rows: int) -> bool:
        """Merge up to about `rows` entries more; True if those were the last."""
        room = max(1, rows // len(self.runs))
        cut: Pair | None = None  # beyond it some run has entries that are not looked at now
        for run, place in zip(self.runs, self._places, strict=True):
            if place + room < run.ranks.size:
                last = run.pair(place + room - 1)
                cut = last if cut is None or last < cut else cut
        parts: list[tuple[Int64s, Int64s]] = []
        for index, run in enumerate(self.runs):
            place = self._places[index]
            end = run.ranks.size if cut is None else run.place_after(cut)
            if end > place:
                parts.append(run.between(place, end, self._firsts[index]))
                self._places[index] = end
        self._append(parts)
        return cut is None

    def _append(self, parts: list[tuple[Int64s, Int64s]]) -> None:
        codes = np.concatenate([part[0] for part in parts])
        ranks = np.concatenate([part[1] for part in parts])
        if not codes.size:
            return
        codes, ranks = without_repeats(*sort_entries(codes, ranks, are_runs=True))
        starts = starts_of(codes)
        groups = codes[starts]
        if self._groups and self._groups[-1][-1] == groups[0]:
            starts, groups = starts[1:], groups[1:]
        if groups.size:
            self._groups.append(groups)
            self._starts.append(starts + self._count)
        self._ranks[self._count : self._count + ranks.size] = ranks
        self._count += ranks.size

    def run(self) -> GroupRun:
        """What came of it, when the last step is done. Cost: O(groups)."""
        empty = np.zeros(0, dtype=np.int64)
        groups = np.concatenate([empty, *self._groups])
        starts = np.concatenate([empty, *self._starts])
        merged = GroupRun(groups, starts, self._ranks[: self._count])
        for run, firsts in zip(self.runs, self._firsts, strict=True):
            rows = np.flatnonzero(run.firsts > firsts)
            if rows.size:
                merged.skip(run.groups[rows], run.ranks[run.firsts[rows] - 1])
        return merged
