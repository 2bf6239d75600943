"""FairReady: ready messages of a fair partition, in turn between their groups.

Room: engine; pure, memory only.
Holds: rule 8, whatever the backlogs; no more than the cap of a group is leased at a time; messages
    of one group come in the order they came in (by sequence).
See: shares.py for whose turn it is, group_runs.py for which message of the group that means.
"""

from __future__ import annotations

import numpy as np

from dejaqueue.engine.commands import Int64s
from dejaqueue.engine.group_runs import GroupRuns, IsReady
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.ready import Matches
from dejaqueue.engine.runs import Mask
from dejaqueue.engine.shares import FlatShares, NestedShares, Starts
from dejaqueue.engine.table import LEASED, MessageTable
from dejaqueue.engine.words import Dictionary
from dejaqueue.errors import InternalError

_LEVELS = "."


class FairReady:
    """As `PriorityReady`, for fair topics. Columns are by code of the group."""

    def __init__(self, table: MessageTable, layout: Layout, groups: Dictionary) -> None:
        self._table = table
        self._groups = groups
        self._layout = layout
        self._runs = GroupRuns(layout)
        self._shares: FlatShares | NestedShares = FlatShares(layout)
        self._weights: dict[str, int] = {}
        self._in_flight_max = 0
        self._readies: Int64s = np.zeros(16, dtype=np.int64)
        self._in_flights: Int64s = np.zeros(16, dtype=np.int64)
        self._ready_count = 0
        self._available = 0
        self._version = 0
        self._looked: dict[object, int] = {}
        for code in range(len(groups)):
            if groups.names[code] or not code:
                self.name(code)
        self._count_in_flight()

    def _count_in_flight(self) -> None:
        """After a restart: who is leased already."""
        table = self._table
        for places in table.live_places():
            codes = self._codes(places[table.states[places] == LEASED])
            np.add.at(self._in_flights, codes, 1)

    # --- groups

    def name(self, code: int) -> None:
        """This code has another name since a moment ago."""
        name = self._groups.names[code]
        if code >= self._readies.size:
            more = np.zeros(max(code + 1, 2 * self._readies.size) - self._readies.size, np.int64)
            self._readies = np.append(self._readies, more)
            self._in_flights = np.append(self._in_flights, more)
        if _LEVELS in name and isinstance(self._shares, FlatShares):
            self._nest()
        self._shares.name(code, name, self._weights.get(name, 1))

    def _nest(self) -> None:
        """The first group within a group: from now on there are levels."""
        starts = self._shares.starts()
        shares = NestedShares(self._weights)
        names = self._groups.names
        named = [code for code in range(self._readies.size) if self._is_named(code)]
        for code in named:
            if _LEVELS not in names[code]:
                shares.name(code, names[code], 1)
        codes = np.array([c for c in named if _LEVELS not in names[c]], dtype=np.int64)
        shares.changed(codes, self._gives(codes))
        shares.restore(starts, {})
        self._shares = shares

    def _is_named(self, code: int) -> bool:
        names = self._groups.names
        return code < len(names) and (bool(names[code]) or not code)

    def configure(self, weights: dict[str, int], in_flight_max: int) -> None:
        """Use these weights and this cap, at once."""
        self._version += 1
        codes = np.array([c for c in range(len(self._groups)) if self._is_named(c)], dtype=np.int64)
        names = self._groups.names
        if isinstance(self._shares, NestedShares):
            self._shares.reweigh(weights)
        else:
            new = np.array([weights.get(names[code], 1) for code in codes.tolist()], dtype=np.int64)
            self._shares.weigh(codes, new)
        self._weights = weights
        before = self._gives(codes)
        self._in_flight_max = in_flight_max
        self._note_gives(codes, before)

    def forget(self, codes: Int64s) -> Int64s:
        """Which of these groups, of which no message is live, need not be remembered."""
        return self._shares.forget(codes)

    def _codes(self, places: Int64s) -> Int64s:
        if "groups" not in self._table.uses:
            return np.zeros(places.size, dtype=np.int64)
        return self._table.groups[places].astype(np.int64)

    def _gives(self, codes: Int64s) -> Int64s:
        """How many messages each group can give now."""
        gives = self._readies[codes]
        if not self._in_flight_max:
            return gives
        return np.clip(self._in_flight_max - self._in_flights[codes], 0, gives)

    def _note_gives(self, codes: Int64s, before: Int64s) -> None:
        gives = self._gives(codes)
        self._available += int(gives.sum() - before.sum())
        self._shares.changed(codes, gives)

    # --- rows

    def add(self, places: Int64s) -> None:
        """These rows are ready."""
        codes = self._codes(places)
        self._runs.insert(codes, places + self._table.base)
        unique, counts = np.unique(codes, return_counts=True)
        before = self._gives(unique)
        self._readies[unique] += counts
        self._ready_count += places.size
        self._version += 1
        self._note_gives(unique, before)

    def remove(self, places: Int64s) -> None:
        """These rows are not ready any more, and not because they were taken."""
        if not places.size:
            return
        unique, counts = np.unique(self._codes(places), return_counts=True)
        before = self._gives(unique)
        self._readies[unique] -= counts
        self._ready_count -= places.size
        self._note_gives(unique, before)

    def returned(self, places: Int64s) -> None:
        """These rows were taken and are not leased any more."""
        codes = self._codes(places)
        if not self._in_flight_max:
            np.subtract.at(self._in_flights, codes, 1)
            return
        unique, counts = np.unique(codes, return_counts=True)
        before = self._gives(unique)
        self._in_flights[unique] -= counts
        self._version += 1
        self._note_gives(unique, before)

    def take(self, count: int, is_ready: Matches) -> Int64s:
        """The next `count` rows in order."""
        gives = self._all_gives()
        turns = self._shares.share(count, gives)
        if not turns.size:
            return turns
        unique, inverse, counts = np.unique(turns, return_inverse=True, return_counts=True)
        _, sequences = self._runs.take(unique, counts, self._is_entry(is_ready))
        if sequences.size != turns.size:
            raise InternalError(f"{sequences.size} messages for {turns.size} turns of groups")
        return self._taken(sequences, unique, inverse, counts)

    def _all_gives(self) -> Int64s:
        """As `_gives`, by code."""
        if not self._in_flight_max:
            return self._readies
        return np.clip(self._in_flight_max - self._in_flights, 0, self._readies)

    def _taken(self, sequences: Int64s, unique: Int64s, inverse: Int64s, counts: Int64s) -> Int64s:
        """Note what is taken. `sequences` are by group; returns them by turn."""
        self._readies[unique] -= counts
        self._in_flights[unique] += counts
        self._ready_count -= sequences.size
        self._available -= sequences.size
        by_turn = np.empty_like(sequences)
        by_turn[np.argsort(inverse, kind="stable")] = sequences
        return by_turn

    def take_matching(
        self, name: object, count: int, is_ready: Matches, matches: Matches, *, expected: int
    ) -> Int64s:
        """The next `count` rows that match, in order. Cost: O(live messages)."""
        table = self._table
        found = [places + table.base for places in table.live_places()]
        sequences = np.concatenate([*found, np.zeros(0, dtype=np.int64)])
        sequences = sequences[is_ready(sequences)]
        sequences = sequences[matches(sequences)]
        codes = self._codes(table.places(sequences))
        order = np.argsort(codes, kind="stable")
        codes, sequences = codes[order], sequences[order]
        unique, firsts, limits = np.unique(codes, return_index=True, return_counts=True)
        turns = self._shares.share_among(unique, limits, count, self._all_gives())
        if turns.size < count:
            self._looked[name] = self._version
        if not turns.size:
            return turns
        served, inverse, counts = np.unique(turns, return_inverse=True, return_counts=True)
        starts = firsts[np.searchsorted(unique, served)]
        before = np.cumsum(counts) - counts
        picked = np.arange(turns.size) + np.repeat(starts - before, counts)
        return self._taken(sequences[picked], served, inverse, counts)

    def has_next(self, name: object, is_ready: Matches) -> bool:
        """True if there is a row to take, or (with a filter's name) one not yet looked at."""
        if not self._available:
            return False
        return name is None or self._looked.get(name) != self._version

    def sweep(self, live_count: int, is_ready: Matches) -> None:
        """Drop dead entries if they have become too many."""
        self._runs.sweep(self._is_entry(is_ready), self._ready_count)

    def _is_entry(self, is_ready: Matches) -> IsReady:
        def is_entry(codes: Int64s, sequences: Int64s) -> Mask:
            mask = is_ready(sequences)
            mask &= self._codes(self._table.places(sequences)) == codes
            return mask

        return is_entry

    # --- state

    def starts(self) -> Starts:
        """What of the turns so far decides the next ones."""
        return self._shares.starts()

    def restore(self, starts: Starts) -> None:
        """Go on with these; what is ready was added."""
        code_of = {
            self._groups.names[code]: code
            for code in range(len(self._groups))
            if self._is_named(code)
        }
        self._shares.restore(starts, code_of)
