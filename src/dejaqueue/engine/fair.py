"""FairReady: ready messages of a fair partition, in turn between their groups.

Room: engine; pure, memory only.
Holds: rule 8, whatever the backlogs; no more than the cap of a group is leased at a time, and, if
    the topic says so, nothing of a group while a lease has some of it; messages of one group come
    in the order they came in (by sequence) or, if the topic says so, by priority and then as they
    came. Whose turn it is does not depend on that.
See: shares.py for whose turn it is, group_runs.py for which message of the group that means;
    docs/adr/0064-a-group-in-runs.md.
"""

from __future__ import annotations

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s, Mask, by_code
from dejaqueue.engine.dictionary import Dictionary
from dejaqueue.engine.group_runs import GroupRuns, IsReady
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.level_shares import LevelShares
from dejaqueue.engine.ready import Matches
from dejaqueue.engine.shares import FlatShares, NestedShares, Starts
from dejaqueue.engine.table import LEASED, URGENCY_FLIP, MessageTable
from dejaqueue.errors import InternalError

_LEVELS = "."


_NONE = np.zeros(0, dtype=np.int64)
_FILTERS_MAX = 64
_NEW_ROWS_MAX = 262_144
_USUAL_RANK = np.int64(limits.PRIORITY_DEFAULT << limits.SEQUENCE_BITS)


def _merged(sequences: Int64s, new: Int64s) -> Int64s:
    """Both, ascending, each once: what was leased and came back may be there twice.

    `sequences` ascend, and are many: a stable sort of two runs is one merge.
    """
    if not new.size:
        return sequences
    merged = np.concatenate([sequences, np.sort(new, kind="stable")])
    merged.sort(kind="stable")
    once = np.ones(merged.size, dtype=np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=once[1:])
    return merged if once.all() else merged[once]


class _Candidates:
    """What is known of one filter: ready messages that match, and those that came since.

    Attributes:
        matching: sequences that matched when it was last looked, ascending.
        new: sequences that became ready since, in pieces.
    """

    __slots__ = ("_new_rows", "matching", "new")

    def __init__(self, matching: Int64s) -> None:
        self.matching = matching
        self.new: list[Int64s] = []
        self._new_rows = 0

    def add(self, sequences: Int64s) -> bool:
        """These are ready now; False if there are too many: looking anew costs no more."""
        self.new.append(sequences)
        self._new_rows += sequences.size
        return self._new_rows <= _NEW_ROWS_MAX


class FairReady:
    """As `PriorityReady`, for fair topics. Columns are by code of the group.

    A message's *rank* is its place in its group: the sequence, and the priority above it where that
    decides. A message whose priority changed has another rank, so the entry of the old one is dead.

    Attributes:
        count: how many are ready.
    """

    def __init__(
        self,
        table: MessageTable,
        layout: Layout,
        groups: Dictionary,
        *,
        by_priority: bool = False,
    ) -> None:
        self._by_priority = by_priority
        self._table = table
        self._groups = groups
        self._layout = layout
        self._runs = GroupRuns(layout)
        self._shares: FlatShares | LevelShares | NestedShares = FlatShares(layout)
        self._weights: dict[str, int] = {}
        self._in_flight_max = 0
        self._by_runs = False
        self._readies: Int64s = np.zeros(16, dtype=np.int64)
        self._in_flights: Int64s = np.zeros(16, dtype=np.int64)
        self.count = 0
        self._available = 0
        self._version = 0
        self._looked: dict[object, int] = {}
        self._candidates: dict[object, _Candidates] = {}
        for code in range(len(groups)):
            if groups.names[code] or not code:
                self.name(code)
        self._count_in_flight()

    def _count_in_flight(self) -> None:
        """After a restart: count what each group has leased already."""
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
        self._name_shares(code, name)

    def _name_shares(self, code: int, name: str) -> None:
        if _LEVELS in name and isinstance(self._shares, FlatShares):
            self._nest()
        self._shares.name(code, name, self._weights.get(name, 1))

    def _nest(self) -> None:
        """From now on there are levels: the first group within a group, or now with runs or not."""
        starts = self._shares.starts()
        shares = (NestedShares if self._by_runs else LevelShares)(self._weights)
        names = self._groups.names
        named = [code for code in range(self._readies.size) if self._is_named(code)]
        if isinstance(self._shares, FlatShares):  # the new one, and those after it, follow
            named = [code for code in named if _LEVELS not in names[code]]
        for code in named:
            shares.name(code, names[code], 1)
        codes = np.array(named, dtype=np.int64)
        shares.changed(codes, self._gives(codes))
        shares.restore(starts, {})
        self._shares = shares

    def _is_named(self, code: int) -> bool:
        names = self._groups.names
        return code < len(names) and (bool(names[code]) or not code)

    def configure(
        self, weights: dict[str, int], in_flight_max: int, *, by_runs: bool = False
    ) -> None:
        """Use these weights and this cap, at once.

        Args:
            by_runs: a group gives what it may in one lease, at its turn, and nothing more until
                none of that is leased.
        """
        self._version += 1
        codes = np.array([c for c in range(len(self._groups)) if self._is_named(c)], dtype=np.int64)
        self._weigh(codes, weights)
        self._weights = weights
        before = self._gives(codes)
        is_other = by_runs != self._by_runs
        self._in_flight_max, self._by_runs = in_flight_max, by_runs
        self._note_gives(codes, before)
        if is_other and not isinstance(self._shares, FlatShares):
            self._nest()

    def _weigh(self, codes: Int64s, weights: dict[str, int]) -> None:
        """These groups, which are all, have these weights from now on."""
        if not isinstance(self._shares, FlatShares):
            self._shares.reweigh(weights)
            return
        names = self._groups.names
        new = np.array([weights.get(names[code], 1) for code in codes.tolist()], dtype=np.int64)
        self._shares.weigh(codes, new)

    def forget(self, codes: Int64s) -> Int64s:
        """Which of these groups, of which no message is live, need not be remembered."""
        return self._shares.forget(codes)

    def _codes(self, places: Int64s) -> Int64s:
        if "groups" not in self._table.uses:
            return np.zeros(places.size, dtype=np.int64)
        return self._table.groups[places].astype(np.int64)

    def _ranks(self, places: Int64s) -> Int64s:
        """The place of each row within its group."""
        ranks = places + self._table.base
        if not self._by_priority:
            return ranks
        table = self._table
        if "urgencies" not in table.uses:
            return ranks | _USUAL_RANK
        priorities = (table.urgencies[places] ^ URGENCY_FLIP).astype(np.int64)
        priorities <<= limits.SEQUENCE_BITS
        priorities |= ranks
        return priorities

    def _gives(self, codes: Int64s) -> Int64s:
        """How many messages each group can give now."""
        gives = self._readies[codes]
        if not self._is_capped:
            return gives
        return np.minimum(self._room(self._in_flights[codes]), gives)

    @property
    def _is_capped(self) -> bool:
        return self._by_runs or self._in_flight_max > 0

    def _room(self, in_flights: Int64s) -> Int64s:
        """How many messages groups may give that have so many leased."""
        most = self._in_flight_max or limits.SEQUENCE_MAX
        if self._by_runs:
            return np.where(in_flights > 0, 0, most)
        return np.maximum(most - in_flights, 0)

    def _note_gives(self, codes: Int64s, before: Int64s) -> None:
        gives = self._gives(codes)
        self._available += int(gives.sum() - before.sum())
        self._shares.changed(codes, gives)

    # --- rows

    def add(self, places: Int64s) -> None:
        """These rows are ready."""
        codes = self._codes(places)
        sequences = places + self._table.base
        self._runs.insert(codes, self._ranks(places) if self._by_priority else sequences)
        full = [name for name, known in self._candidates.items() if not known.add(sequences)]
        for name in full:
            del self._candidates[name]
        _, unique, counts = by_code(codes)
        before = self._gives(unique)
        self._readies[unique] += counts
        self.count += places.size
        self._version += 1
        self._note_gives(unique, before)

    def remove(self, places: Int64s) -> None:
        """These rows are not ready any more, and not because they were taken."""
        if not places.size:
            return
        _, unique, counts = by_code(self._codes(places))
        before = self._gives(unique)
        self._readies[unique] -= counts
        self.count -= places.size
        self._note_gives(unique, before)

    def returned(self, places: Int64s) -> None:
        """These rows were taken and are not leased any more."""
        codes = self._codes(places)
        if not self._is_capped:
            np.subtract.at(self._in_flights, codes, 1)
            return
        _, unique, counts = by_code(codes)
        before = self._gives(unique)
        self._in_flights[unique] -= counts
        self._version += 1
        self._note_gives(unique, before)

    def take(self, count: int, is_ready: Matches) -> Int64s:
        """The next `count` rows in order."""
        turns = self._share(count)
        if not turns.size:
            return turns
        order, unique, counts = by_code(turns)
        if self._runs.entry_count <= self.count:  # no entry is dead, nor there twice
            _, ranks = self._runs.take(unique, counts, None, 0)
        else:
            _, ranks = self._runs.take(unique, counts, self._is_entry(is_ready))
        sequences = ranks & limits.SEQUENCE_MAX if self._by_priority else ranks
        if sequences.size != turns.size:
            raise InternalError(f"{sequences.size} messages for {turns.size} turns of groups")
        return self._taken(sequences, order, unique, counts)

    def _share(self, count: int) -> Int64s:
        """The codes of the next `count` turns, in order."""
        return self._shares.share(count, self._all_gives(), by_runs=self._by_runs)

    def _share_among(self, places: Int64s, codes: Int64s, count: int) -> Int64s:
        """As `_share`, among these rows only, of which the codes are given."""
        _, unique, counts = by_code(codes)
        gives = self._all_gives()
        return self._shares.share_among(unique, counts, count, gives, by_runs=self._by_runs)

    def _all_gives(self) -> Int64s:
        """As `_gives`, by code."""
        if not self._is_capped:
            return self._readies
        return np.minimum(self._room(self._in_flights), self._readies)

    def _taken(self, sequences: Int64s, order: Int64s, unique: Int64s, counts: Int64s) -> Int64s:
        """Note what is taken. `sequences` are by group; returns them by turn."""
        before = self._gives(unique) if self._by_runs else None
        self._readies[unique] -= counts
        self._in_flights[unique] += counts
        self.count -= sequences.size
        if before is None:
            self._available -= sequences.size
        else:  # what these groups have left waits until none of this is leased
            self._note_gives(unique, before)
        by_turn = np.empty_like(sequences)
        by_turn[order] = sequences
        return by_turn

    def take_matching(
        self, name: object, count: int, is_ready: Matches, matches: Matches, *, expected: int
    ) -> Int64s:
        """The next `count` rows that match, in order.

        Cost: O(live messages) the first time a filter is asked for, then O(ready messages that
        match, and those that came since).
        """
        table = self._table
        sequences = self._matching(name, is_ready, matches)
        places = table.places(sequences)
        codes = self._codes(places)
        order, unique, counts = by_code(codes)
        if self._by_priority:
            by_rank = self._ranks(places).argsort(kind="stable")
            order = by_rank[by_code(codes[by_rank])[0]]
        firsts = np.cumsum(counts) - counts
        sequences = sequences[order]
        turns = self._share_among(places, codes, count)
        if turns.size < count:
            self._looked[name] = self._version
        if not turns.size:
            return turns
        turn_order, served, counts = by_code(turns)
        starts = firsts[np.searchsorted(unique, served)]
        before = np.cumsum(counts) - counts
        picked = np.arange(turns.size) + np.repeat(starts - before, counts)
        left_mask = np.ones(sequences.size, dtype=np.bool_)
        left_mask[order[picked]] = False
        known = self._candidates[name]
        known.matching = known.matching[left_mask]
        return self._taken(sequences[picked], turn_order, served, counts)

    def _matching(self, name: object, is_ready: Matches, matches: Matches) -> Int64s:
        """The ready messages that match, ascending; remembered for the next time."""
        known = self._candidates.get(name)
        if known is None:
            base = self._table.base
            parts = [_NONE]
            for places in self._table.live_places():
                sequences = places + base
                sequences = sequences[is_ready(sequences)]
                parts.append(sequences[matches(sequences)])
            sequences = np.concatenate(parts)
        else:
            sequences = known.matching
            if known.new:
                new = np.concatenate(known.new)
                sequences = _merged(sequences, new[matches(new)])
            sequences = sequences[is_ready(sequences)]
        if len(self._candidates) >= _FILTERS_MAX and name not in self._candidates:
            self._candidates.clear()
        self._candidates[name] = _Candidates(sequences)
        return sequences

    def has_next(self, name: object, is_ready: Matches) -> bool:
        """True if there is a row to take, or (with a filter's name) one not yet looked at."""
        if not self._available:
            return False
        return name is None or self._looked.get(name) != self._version

    def sweep(self, live_count: int, is_ready: Matches) -> None:
        """Drop dead entries if they have become too many."""
        self._runs.sweep(self._is_entry(is_ready), self.count)

    def _is_entry(self, is_ready: Matches) -> IsReady:
        def is_entry(codes: Int64s, ranks: Int64s) -> Mask:
            sequences = ranks & limits.SEQUENCE_MAX if self._by_priority else ranks
            places = self._table.places(sequences)
            mask = is_ready(sequences)
            mask &= self._codes(places) == codes
            if self._by_priority:
                mask &= self._ranks(places) == ranks
            return mask

        return is_entry

    # --- state

    def starts(self) -> Starts:
        """The part of the turn order that decides the next turns."""
        return self._shares.starts()

    def restore(self, starts: Starts) -> None:
        """Go on with these; what is ready was added."""
        code_of = {
            self._groups.names[code]: code
            for code in range(len(self._groups))
            if self._is_named(code)
        }
        self._restore_shares(starts, code_of)

    def _restore_shares(self, starts: Starts, code_of: dict[str, int]) -> None:
        self._shares.restore(starts, code_of)
