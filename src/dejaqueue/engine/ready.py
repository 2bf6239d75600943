"""Ready messages: which one is next among those that are due, where due time does not decide.

Room: engine; pure, memory only.
Holds: what is ready is what is scheduled and was due when it was last looked; how often it was
    looked leaves no trace in what comes out.
See: state.py, which moves messages in when they are due; fair.py for fair topics; rule 7.

A timeline needs none of this: its order index is by due time, so the first of it is the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.page import read_pages, scan_pages
from dejaqueue.engine.runs import IsAlive, Pair, SortedRuns, all_alive
from dejaqueue.engine.table import URGENCY_FLIP, MessageTable

KEY_MAX = (1 << 62) - 1
_FILTERS_MAX = 64
_PICK_PAGE_ROWS = 512
# Entries looked at for one lease of a filter: about two milliseconds of work.
_PICK_ROWS_MAX = 32_768
_BEFORE_ALL: Pair = (-1, -1)
# Runs are sealed, and drawn from, at this part of the rows of the index by due time: there many
# come in and few at a time come out, here all come and go in pieces of some thousand.
_SHORTER = 8
Matches: TypeAlias = Callable[[Int64s], Mask]
"""sequences -> which of these messages a consumer takes."""


class Lane:
    """An order index from which filtered consumers take as well.

    What they leave stays where it is. How far the index was looked through for a filter is
    remembered until something comes in before that, so that nothing is looked at twice.
    """

    def __init__(self, layout: Layout) -> None:
        self.runs = SortedRuns(layout)
        self._looked: dict[object, Pair] = {}

    def insert(self, keys: Int64s, sequences: Int64s) -> None:
        """Add entries, in any order. The arrays are kept and must not be changed any more."""
        self.runs.insert(keys, sequences)
        if self._looked and keys.size:
            first = int(keys.min())
            for name, pair in self._looked.items():
                if first <= pair[0]:
                    self._looked[name] = (first - 1, KEY_MAX)

    def forget_filters(self) -> None:
        """Look through everything again: a message may match now that did not."""
        self._looked.clear()

    def pick(
        self,
        name: object,
        count: int,
        until: int,
        is_alive: IsAlive,
        matches: Matches,
        *,
        expected: int = -1,
    ) -> tuple[Int64s, Int64s]:
        """The first `count` live entries with keys up to `until` that match, in order.

        They stay in the index and are dead once their messages are leased.

        Args:
            name: of the filter, hashable.
            expected: how many were found when this was done before; -1 = it is new. Then it
                stops after a few milliseconds' worth of entries, with what was found by then, and
                the next call goes on there.
        """
        count = count if expected < 0 else expected
        if not count:
            return _NONE, _NONE
        after = self._looked.get(name, _BEFORE_ALL)
        found_keys, found_sequences, left = [_NONE], [_NONE], count

        def alive_and_matching(keys: Int64s, sequences: Int64s) -> Mask:
            mask = is_alive(keys, sequences)
            mask[mask] = matches(sequences[mask])
            return mask

        page_rows = max(4 * count, _PICK_PAGE_ROWS)
        pages_left = max(1, _PICK_ROWS_MAX // (2 * page_rows))
        looked: Pair | None = None
        for keys, sequences, reached in scan_pages(
            self.runs, after, until, page_rows, alive_and_matching
        ):
            found_keys.append(keys[:left])
            found_sequences.append(sequences[:left])
            left -= found_keys[-1].size
            pages_left -= 1
            if left <= 0:
                looked = int(found_keys[-1][-1]), int(found_sequences[-1][-1])
                break
            if expected < 0 and not pages_left:
                looked = reached
                break
        if len(self._looked) >= _FILTERS_MAX and name not in self._looked:
            self._looked.clear()
        self._looked[name] = looked or (until, KEY_MAX)
        return np.concatenate(found_keys), np.concatenate(found_sequences)

    def next_key(self, name: object, is_alive: IsAlive) -> int | None:
        """The key of the first live entry that was not looked at for this filter."""
        after = self._looked.get(name, _BEFORE_ALL)
        for keys, _ in read_pages(self.runs, after, KEY_MAX, 16, is_alive):
            if keys.size:
                return int(keys[0])
        return None


_NONE = np.zeros(0, dtype=np.int64)


class PriorityReady:
    """Ready messages of a priority partition, by (priority, sequence).

    With ageing the key is priority × ageing + due: waiting for `ageing_ms` makes up for one level.

    Attributes:
        count: how many are ready.
    """

    def __init__(self, table: MessageTable, layout: Layout, ageing_ms: int) -> None:
        self._table = table
        self._ageing_ms = ageing_ms
        self.count = 0
        shorter = replace(
            layout,
            seal_rows=max(2, layout.seal_rows // _SHORTER),
            draw_rows=max(1, layout.draw_rows // _SHORTER),
        )
        self._lane = Lane(shorter)

    def keys(self, places: Int64s) -> Int64s:
        """The order key of these rows."""
        table = self._table
        if "urgencies" in table.uses:
            priorities = (table.urgencies[places] ^ URGENCY_FLIP).astype(np.int64)
        else:
            priorities = np.full(places.size, int(URGENCY_FLIP), dtype=np.int64)
        if self._ageing_ms:
            priorities *= self._ageing_ms
            priorities += table.dues_ms[places]
        return priorities

    def add(self, places: Int64s) -> None:
        """These rows are ready."""
        self._lane.insert(self.keys(places), places + self._table.base)
        self.count += places.size

    def remove(self, places: Int64s) -> None:
        """These rows are not ready any more, and not because they were taken."""
        self.count -= places.size

    def returned(self, places: Int64s) -> None:
        """These rows were taken and are not leased any more."""

    def take(self, count: int, is_ready: Matches) -> Int64s:
        """The next `count` rows in order."""
        runs = self._lane.runs
        alive = all_alive if runs.entry_count == self.count else self._alive(is_ready)
        _, sequences = runs.pop(count, KEY_MAX, alive)
        self.count -= sequences.size
        return sequences

    def take_matching(
        self, name: object, count: int, is_ready: Matches, matches: Matches, *, expected: int
    ) -> Int64s:
        """The next `count` rows that match, in order, or fewer: see Lane.pick."""
        alive = self._alive(is_ready)
        _, sequences = self._lane.pick(name, count, KEY_MAX, alive, matches, expected=expected)
        self.count -= sequences.size
        return sequences

    def has_next(self, name: object, is_ready: Matches) -> bool:
        """True if there is a row to take, or (with a filter's name) one not yet looked at."""
        alive = self._alive(is_ready)
        if name is None:
            return self._lane.runs.head(alive) is not None
        return self._lane.next_key(name, alive) is not None

    def sweep(self, live_count: int, is_ready: Matches) -> None:
        """Drop dead entries if they have become too many."""
        self._lane.runs.sweep(self._alive(is_ready), live_count)

    def _alive(self, is_ready: Matches) -> IsAlive:
        table = self._table

        def is_alive(keys: Int64s, sequences: Int64s) -> Mask:
            mask = is_ready(sequences)
            mask &= self.keys(table.places(sequences)) == keys
            return mask

        return is_alive
