"""SortedRuns: the order in which messages become due, as sorted arrays of (key, sequence).

Room: engine; pure, memory only.
Holds: each run ascends by (key, sequence); nothing is popped before anything smaller; an entry
    whose message is done or has another key by now never comes out (lazy deletion), nor one twice.
See: layout.py for sizes; page.py for reading without taking; state.py for what makes an entry
    alive.

Three kinds of runs, from new to old:
*young* batches are not even sorted: only their smallest key is known, and most are needed long
after they came; *small* runs are sorted, each at least as long as all after it, merged to stay so;
*sealed* runs are long and never merged again. Pops read small runs alone: when they reach the
smallest sealed entry, about `draw_rows` entries are drawn from all sealed runs into a small one.
"""

from __future__ import annotations

import heapq
import mmap
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dejaqueue.engine.arrays import Int64s, Mask, sort_pairs
from dejaqueue.engine.layout import STANDARD, Layout

IsAlive: TypeAlias = Callable[[Int64s, Int64s], Mask]
"""(keys, sequences) -> which of these entries still tell where their message is."""
Pair: TypeAlias = tuple[int, int]
"""A key and a sequence."""

# A draw is cut at a fence: with the standard layout every 256th entry of a sealed run is one. A run
# puts up 64 at most, which bounds what one draw reads of it.
_FENCES_PER_RUN_MAX = 64
_FENCES_PER_DRAW = 256
_SAMPLE_STEP = 64
_SHARES = 1_024
_EMPTY = np.zeros(0, dtype=np.int64)
_EMPTY.flags.writeable = False


def all_alive(keys: Int64s, sequences: Int64s) -> Mask:
    """For an index that has as many entries as there are messages in it: none of them is dead."""
    return np.ones(sequences.size, dtype=np.bool_)


class Run:
    """Entries sorted by (key, sequence), taken from the front.

    Attributes:
        keys, sequences: all entries that it holds in memory; never changed.
        start: how many of them are taken.
        head: key of the first entry that is not taken.
        pages: the memory of both arrays if they have pages of their own, else None.
        file_name: the snapshot file that holds it, "" if none does.
        file_rows: entries of that file; the last ones of them are `keys` and `sequences`.
    """

    __slots__ = ("file_name", "file_rows", "head", "keys", "pages", "sequences", "start")

    def __init__(self, keys: Int64s, sequences: Int64s) -> None:
        self.keys, self.sequences = keys, sequences
        self.start = 0
        self.head = int(keys[0])
        self.pages: mmap.mmap | None = None
        self.file_name = ""
        self.file_rows = 0

    @staticmethod
    def in_own_pages(keys: Int64s, sequences: Int64s) -> Run:
        """A run of copies in pages of their own."""
        run = Run(keys, sequences)
        run.move_to_own_pages()
        return run

    def move_to_own_pages(self) -> None:
        """Copy what is not taken into pages that go back to the system when they are dropped.

        Long-lived arrays among short-lived ones would leave holes in the heap.
        """
        count = len(self)
        pages = mmap.mmap(-1, 16 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        both = np.frombuffer(pages, dtype=np.int64)
        both[:count] = self.keys[self.start :]
        both[count:] = self.sequences[self.start :]
        self.keys, self.sequences = both[:count], both[count:]
        self.start = 0
        self.pages = pages

    def __len__(self) -> int:
        return self.keys.size - self.start

    def first_pair(self) -> Pair:
        """Key and sequence of the first entry that is not taken."""
        return self.head, int(self.sequences[self.start])

    def place_after(self, pair: Pair) -> int:
        """Place of the first entry greater than `pair`."""
        key, sequence = pair
        keys = self.keys
        low = max(self.start, int(keys.searchsorted(key, "left")))
        if low == keys.size or keys[low] != key:
            return low
        high = int(keys.searchsorted(key, "right"))
        return low + int(self.sequences[low:high].searchsorted(sequence, "right"))

    def take(self, count: int) -> None:
        """The next `count` entries are taken."""
        self.start += count
        if self.start < self.keys.size:
            self.head = int(self.keys[self.start])

    def is_mostly_taken(self) -> bool:
        """True if the entries that are taken are the greater part."""
        return self.start * 2 > self.keys.size


def first_to_merge(runs: list[Run]) -> int:
    """Place of the longest run that is shorter than all after it together; else of the last.

    Merging from there on at least doubles every run, so an entry is merged at most once per
    doubling. Runs shrink as they are taken from: any of them may have to be merged, not only
    the last ones.
    """
    first, total = len(runs) - 1, 0
    for place in range(len(runs) - 1, -1, -1):
        length = len(runs[place])
        if length < total:
            first = place
        total += length
    return first


class SortedRuns:
    """The order index of one partition.

    Attributes:
        entry_count: entries held, dead ones included.
        young: heap of (smallest key, serial, its place, keys, sequences).
        small: sorted runs, longest first.
        sealed: long runs.
        guard: smallest (key, sequence) of all sealed runs; None if there is none.
    """

    def __init__(self, layout: Layout = STANDARD) -> None:
        self._seal_rows = layout.seal_rows
        self._draw_rows = self._layout_draw_rows = layout.draw_rows
        self._young_batches_max = layout.young_batches_max
        self._sweep_rows_min = layout.sweep_rows_min
        self._serial = 0
        self._young_rows = 0
        self._sweep_next = 0
        self._sweep_stuck = False
        self._dead_share = 0
        self.entry_count = 0
        self.young: list[tuple[int, int, int, Int64s, Int64s]] = []
        self.small: list[Run] = []
        self.sealed: list[Run] = []
        self.guard: Pair | None = None

    def draw_less(self) -> None:
        """Draw half of what the layout says from now on: in shorter stretches."""
        self._draw_rows = max(1, self._layout_draw_rows // 2)

    def insert(self, keys: Int64s, sequences: Int64s) -> None:
        """Add entries, in any order. The arrays are kept and must not be changed any more."""
        count = keys.size
        if not count:
            return
        place = int(keys.argmin()) if count > 1 else 0
        self._serial += 1
        heapq.heappush(self.young, (int(keys[place]), self._serial, place, keys, sequences))
        self.entry_count += count
        self._young_rows += count
        # Not sorted yet: most messages are needed long after they come, and to sort a thousand
        # batches at once is cheaper than to sort each and merge (docs/internals/sorted-runs.md).
        if self._young_rows >= self._seal_rows or len(self.young) > self._young_batches_max:
            self.sort_young(None)

    def sort_young(self, until: int | None) -> None:
        """Make small runs of the young batches that have a key up to `until` (None = of all)."""
        young = self.young
        if until is None:
            batches, self.young = young, []
        else:
            batches = []
            while young and young[0][0] <= until:
                batches.append(heapq.heappop(young))
        if not batches:
            return
        # In the order they came: equal keys are then by sequence already, and no ties are to sort.
        batches.sort(key=lambda batch: batch[1])
        if len(batches) == 1:
            keys, sequences = batches[0][3], batches[0][4]
        else:
            keys = np.concatenate([batch[3] for batch in batches])
            sequences = np.concatenate([batch[4] for batch in batches])
        self._young_rows -= keys.size
        self._add(Run(*sort_pairs(keys, sequences)))

    def _add(self, run: Run) -> None:
        """Add a sorted run, merging or sealing so that few small ones remain."""
        small = self.small
        small.append(run)
        small.sort(key=len, reverse=True)
        first = first_to_merge(small)
        if first < len(small) - 1:
            parts = small[first:]
            keys = np.concatenate([part.keys[part.start :] for part in parts])
            sequences = np.concatenate([part.sequences[part.start :] for part in parts])
            small[first:] = [Run(*sort_pairs(keys, sequences, are_runs=True))]
        # Never merged again: to merge two of fifty million entries would stop us for a second.
        if len(small[first]) >= self._seal_rows:
            self._seal(small.pop(first))

    def _seal(self, run: Run) -> None:
        run.move_to_own_pages()
        self.sealed.append(run)
        pair = run.first_pair()
        if self.guard is None or pair < self.guard:
            self.guard = pair

    def pop(self, count: int, until: int, is_alive: IsAlive) -> tuple[Int64s, Int64s]:
        """Take the first `count` live entries with keys up to `until`, in order.

        Returns:
            Keys and sequences; fewer than `count` only if there are no more.
            Cost: O(count + dead entries met), and a draw every `draw_rows` entries or so.
        """
        found_keys: list[Int64s] = []
        found_sequences: list[Int64s] = []
        last: Pair | None = None
        while count > 0:
            # Some of what is looked at is dead; how much, the last times tell well enough.
            wanted = count * _SHARES // (_SHARES - self._dead_share)
            if self.young and self.young[0][0] <= until:
                self.sort_young(self._reach(wanted, until))
            heads, keys, sequences = self._look(wanted, until)
            looked = keys.size
            if not looked:
                if self.guard is None or self.guard[0] > until:
                    break
                self._draw()
                continue
            mask = is_alive(keys, sequences)
            _mask_repeats(mask, keys, sequences, last)
            if not mask.all():
                alive = np.flatnonzero(mask)
                dead_share = _SHARES * (looked - alive.size) // looked
                self._dead_share = min((3 * self._dead_share + dead_share) // 4, _SHARES * 7 // 8)
                if alive.size >= count:
                    alive = alive[:count]
                    looked = int(alive[-1]) + 1
                last = int(keys[looked - 1]), int(sequences[looked - 1])
                keys, sequences = keys[alive], sequences[alive]
            else:
                self._dead_share //= 2
                looked = min(looked, count)
                keys, sequences = keys[:looked], sequences[:looked]
                last = int(keys[-1]), int(sequences[-1])
            self._advance(heads, looked, last)
            found_keys.append(keys)
            found_sequences.append(sequences)
            count -= keys.size
        if len(found_keys) == 1:
            return found_keys[0], found_sequences[0]
        if not found_keys:
            return _EMPTY, _EMPTY
        return np.concatenate(found_keys), np.concatenate(found_sequences)

    def _reach(self, count: int, until: int) -> int:
        """A key beyond which no entry can be among the first `count`: it need not be sorted."""
        if self.guard is not None and self.guard[0] < until:
            until = self.guard[0]
        for run in self.small:
            place = run.start + count - 1
            if place < run.keys.size and run.keys[place] < until:
                until = int(run.keys[place])
        return until

    def _look(self, count: int, until: int) -> tuple[list[tuple[Run, int]], Int64s, Int64s]:
        """The first entries of all small runs, `count` at least if there are so many, all before
        the guard; and how many of each run are among them at most."""
        guard = self.guard if self.guard is not None and self.guard[0] <= until else None
        until = until if guard is None else guard[0]
        heads: list[tuple[Run, int]] = []
        total = 0
        for run in self.small:
            if run.head > until:
                continue
            start = run.start
            end = min(start + count, run.keys.size)
            if run.keys[end - 1] >= until:
                if guard is None:
                    end = start + int(run.keys[start:end].searchsorted(until, "right"))
                else:
                    end = min(end, run.place_after((guard[0], guard[1] - 1)))
            if end > start:
                heads.append((run, end - start))
                total += end - start
        if not heads:
            return heads, _EMPTY, _EMPTY
        if len(heads) == 1:
            run, length = heads[0]
            end = run.start + length
            return heads, run.keys[run.start : end], run.sequences[run.start : end]
        if total > 2 * count + _SAMPLE_STEP * len(heads):
            heads = _shorten(heads, count)
        keys = np.concatenate([run.keys[run.start : run.start + n] for run, n in heads])
        sequences = np.concatenate([run.sequences[run.start : run.start + n] for run, n in heads])
        keys, sequences = sort_pairs(keys, sequences, are_runs=True)
        # Beyond `count` there may be gaps: runs were looked at no further than that.
        return heads, keys[:count], sequences[:count]

    def _advance(self, heads: list[tuple[Run, int]], count: int, last: Pair) -> None:
        """Take the first `count` entries of what was looked at; `last` is the last of them."""
        emptied = False
        for run, length in heads:
            # A message that is there twice is taken twice: one of them is dead anyway.
            several = len(heads) > 1
            taken = min(length, run.place_after(last) - run.start) if several else count
            run.take(taken)
            self.entry_count -= taken
            emptied |= not len(run)
        if emptied:
            self.small = [run for run in self.small if len(run)]

    def _draw(self) -> None:
        """Move about `draw_rows` of the smallest sealed entries into a small run."""
        bound = self._draw_bound()
        keys: list[Int64s] = []
        sequences: list[Int64s] = []
        for run in self.sealed:
            if bound is not None and run.head > bound[0]:
                continue
            end = run.keys.size if bound is None else run.place_after(bound)
            if end > run.start:
                keys.append(run.keys[run.start : end])
                sequences.append(run.sequences[run.start : end])
                run.take(end - run.start)
        drawn = Run(*sort_pairs(np.concatenate(keys), np.concatenate(sequences), are_runs=True))
        self.sealed = [run for run in self.sealed if len(run)]
        # One at a time: runs of like times are half taken all at once, and copying takes time.
        taken = next((run for run in self.sealed if run.is_mostly_taken()), None)
        if taken is not None:
            taken.move_to_own_pages()
        self.set_guard()
        # Not merged with the others: it is about to be consumed.
        self.small.append(drawn)
        self.small.sort(key=len, reverse=True)

    def _draw_bound(self) -> Pair | None:
        """The pair up to which to draw: every few entries of each run put up a fence with their
        last pair, and the bound is the fence behind which lie enough entries. None = draw all."""
        step = max(1, self._draw_rows // _FENCES_PER_DRAW)
        reach = step * _FENCES_PER_RUN_MAX
        keys: list[Int64s] = []
        sequences: list[Int64s] = []
        bound: Pair | None = None
        for run in self.sealed:
            first, end = run.start + step - 1, run.start + reach
            keys.append(run.keys[first:end:step])
            sequences.append(run.sequences[first:end:step])
            if end < run.keys.size:  # beyond its fences nothing is counted
                last = int(run.keys[end - 1]), int(run.sequences[end - 1])
                bound = last if bound is None or last < bound else bound
        fence_keys, fence_sequences = sort_pairs(np.concatenate(keys), np.concatenate(sequences))
        enough = max(1, self._draw_rows // step)
        if fence_keys.size >= enough:
            fence = int(fence_keys[enough - 1]), int(fence_sequences[enough - 1])
            bound = fence if bound is None or fence < bound else bound
        return bound

    def set_guard(self) -> None:
        """Find the smallest sealed entry again."""
        self.guard = min((run.first_pair() for run in self.sealed), default=None)

    def head(self, is_alive: IsAlive) -> int | None:
        """The smallest key of a live entry; dead ones before it are dropped. None if there is none.

        Cost: O(small runs), and what is dead.
        """
        while True:
            first_run = min(self.small, key=lambda run: run.first_pair(), default=None)
            pair = first_run.first_pair() if first_run is not None else None
            if self.young and (pair is None or self.young[0][0] <= pair[0]):
                key, _, place, keys, sequences = self.young[0]
                if self.guard is None or key < self.guard[0]:
                    if is_alive(keys[place : place + 1], sequences[place : place + 1])[0]:
                        return key
                    self.sort_young(key)
                    continue
            if self.guard is not None and (pair is None or self.guard < pair):
                self._draw()
                continue
            if first_run is None:
                return None
            if self._drop_dead_head(first_run, is_alive):
                return first_run.head

    def _drop_dead_head(self, run: Run, is_alive: IsAlive) -> bool:
        """Drop the dead entries in front of the run, some at a time; True if its head is alive."""
        start = run.start
        if is_alive(run.keys[start : start + 1], run.sequences[start : start + 1])[0]:
            return True
        mask = is_alive(run.keys[start : start + 4096], run.sequences[start : start + 4096])
        dead = int(mask.argmax()) if mask.any() else mask.size
        self._advance([(run, dead)], dead, (0, 0))
        return False

    def sweep(self, is_alive: IsAlive, live_count: int) -> None:
        """If dead entries are the greater part, drop those of two sealed runs, or of all the rest.

        Called again and again; one call stalls no longer than a few merges do.
        """
        if self.entry_count <= 2 * live_count + self._sweep_rows_min:
            self._sweep_stuck = False
            return
        if self._sweep_next >= len(self.sealed):
            # Still too many after a whole round: they are alive, but there more than once.
            self._sweep_stuck = self._sweep_next > 0
            self._sweep_next = 0
            runs, self.small = self.small, []
            batches, self.young, self._young_rows = self.young, [], 0
            runs += [Run(*sort_pairs(keys, sequences)) for _, _, _, keys, sequences in batches]
            self._sweep_runs(runs, is_alive)
            return
        first = self._sweep_next
        pair = self.sealed[first : first + 2]
        if not self._sweep_stuck:
            masks = [is_alive(run.keys[run.start :], run.sequences[run.start :]) for run in pair]
            if all(mask.all() for mask in masks):
                self._sweep_next += 2
                return
        del self.sealed[first : first + 2]
        self._sweep_next += self._sweep_runs(pair, is_alive)
        self.set_guard()

    def _sweep_runs(self, runs: list[Run], is_alive: IsAlive) -> int:
        """Add what lives of these runs, each entry once, as one run; 1 if that is sealed."""
        if not runs:
            return 0
        keys = np.concatenate([run.keys[run.start :] for run in runs])
        sequences = np.concatenate([run.sequences[run.start :] for run in runs])
        self.entry_count -= keys.size
        mask = is_alive(keys, sequences)
        keys, sequences = sort_pairs(keys[mask], sequences[mask])
        if keys.size > 1:
            once_mask = np.ones(keys.size, dtype=np.bool_)
            once_mask[1:] = (sequences[1:] != sequences[:-1]) | (keys[1:] != keys[:-1])
            keys, sequences = keys[once_mask], sequences[once_mask]
        self.entry_count += keys.size
        if keys.size >= self._seal_rows // 2:
            self.sealed.insert(self._sweep_next, Run.in_own_pages(keys, sequences))
            self.set_guard()
            return 1
        if keys.size:
            self._add(Run(keys, sequences))
        return 0


def _mask_repeats(mask: Mask, keys: Int64s, sequences: Int64s, last: Pair | None) -> None:
    """Leave out entries equal to the one before; `last` is the one before the first."""
    repeats_mask = (sequences[1:] == sequences[:-1]) & (keys[1:] == keys[:-1])
    if repeats_mask.any():
        mask[1:] &= ~repeats_mask
    if last is not None and last == (int(keys[0]), int(sequences[0])):
        mask[0] = False


def _shorten(heads: list[tuple[Run, int]], count: int) -> list[tuple[Run, int]]:
    """Cut the heads down to little more than `count` entries that hold the first `count`.

    Every 64th key of each head is looked at: enough of them up to a key prove that at least
    `count` entries are not greater.
    """
    first = _SAMPLE_STEP - 1
    samples = [run.keys[run.start + first : run.start + n : _SAMPLE_STEP] for run, n in heads]
    # tidy: allow determinism, because only values are looked at, not their places
    fences = np.sort(np.concatenate(samples))
    enough = -(-count // _SAMPLE_STEP)
    if fences.size < enough:
        return heads
    cut = int(fences[enough - 1])
    shorter = []
    for run, n in heads:
        if run.head <= cut:
            n = int(run.keys[run.start : run.start + n].searchsorted(cut, "right"))
            shorter.append((run, n))
    return shorter
