"""PriorityShares: whose turn it is where priority comes before turns.

Room: engine; pure, memory only. Whole numbers only.
Holds: no message has its turn while a group that may give one has a more urgent one; among the
    groups of one priority turns are those of shares.py (rule 8), and another priority's turns do
    not count there; a priority that has no ready message is forgotten, and so is what was owed.
See: fair.py, which takes the messages; docs/adr/0052-priority-before-turns.md.

Nothing loops over messages: what is done once for each priority is done on columns of its groups.
It is meant for a few priorities, and each costs tens of microseconds for a batch in which it is.
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from dejaqueue.engine.arrays import Int64s, Mask, by_code
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.level_shares import LevelShares
from dejaqueue.engine.shares import UNLISTED, GroupNames, Shares, Starts

_LEVELS = "."
_EMPTY_PLACES_MIN = 64
_NONE = np.zeros(0, dtype=np.int64)


class OnePriority(Shares):
    """The ready messages of one priority: how many of which group, and whose turn is next.

    A place is that of a group among those that have, or had a moment ago, messages of this
    priority: columns by code would take memory for each group in each priority.

    Attributes:
        count: ready messages.
    """

    def __init__(self, layout: Layout, groups: GroupNames) -> None:
        super().__init__(layout, groups)
        self.count = 0
        self._codes_here: Int64s = _NONE
        self._readies: Int64s = _NONE
        self._nested: LevelShares | None = None

    def _places(self, codes: Int64s) -> Int64s:
        places: Int64s = self._codes_here.searchsorted(codes)
        return places

    def _codes(self, places: Int64s) -> Int64s:
        return self._codes_here[places]

    def _is_listed(self, finishes: Int64s, codes: Int64s) -> Mask:
        places, mask = self._found(codes)
        mask &= self._listed[places] == finishes
        return mask

    def _found(self, codes: Int64s) -> tuple[Int64s, Mask]:
        """Places, and which of these groups are there at all."""
        places = np.minimum(self._places(codes), self._codes_here.size - 1)
        mask: Mask = self._codes_here[places] == codes
        return places, mask

    # --- messages

    def add(self, codes: Int64s, counts: Int64s, rooms: Int64s | None) -> None:
        """So many more messages of these groups, which ascend, are ready.

        Args:
            rooms: how many each group may give now, by code; None = any number.
        """
        self._enter(codes)
        self._readies[self._places(codes)] += counts
        self.count += int(counts.sum())
        self._relist(codes, rooms)

    def remove(self, codes: Int64s, counts: Int64s, rooms: Int64s | None) -> None:
        """So many messages of these groups are not ready any more, and were not taken."""
        self._readies[self._places(codes)] -= counts
        self.count -= int(counts.sum())
        self._relist(codes, rooms)

    def refresh(self, codes: Int64s, rooms: Int64s) -> None:
        """These groups, which may not be here, may give another number from now on."""
        self._relist(codes[self._found(codes)[1]], rooms)

    def _relist(self, codes: Int64s, rooms: Int64s | None) -> None:
        gives = self._readies[self._places(codes)]
        if rooms is not None:
            gives = np.minimum(gives, rooms[codes])
        if self._nested is None:
            self.changed(codes, gives)
        else:
            self._nested.changed(codes, gives)

    def _enter(self, codes: Int64s) -> None:
        """Make places for those of these groups, which ascend, that have none."""
        if self._codes_here.size:
            codes = codes[~self._found(codes)[1]]
        if not codes.size:
            return
        empty_count = self._codes_here.size - np.count_nonzero(self._readies)
        if empty_count > max(_EMPTY_PLACES_MIN, self._codes_here.size // 2):
            self._let_go(self._readies > 0)
        at = self._places(codes)
        self._codes_here = np.insert(self._codes_here, at, codes)
        self._readies = np.insert(self._readies, at, 0)
        self._starts = np.insert(self._starts, at, 0)
        self._listed = np.insert(self._listed, at, UNLISTED)
        if self._nested is not None:
            names = self._groups.names
            for code in codes.tolist():
                self._nested.name(code, names[code], 1)

    def _let_go(self, kept_mask: Mask) -> None:
        """Forget the other groups, which have nothing ready: nothing is owed to such a group."""
        if self._nested is not None:
            self._nested.forget(self._codes_here[~kept_mask])
        self._codes_here, self._readies, self._starts, self._listed = (
            column[kept_mask]
            for column in (self._codes_here, self._readies, self._starts, self._listed)
        )

    def leave(self, codes: Int64s) -> None:
        """These groups, of which no message is live, will have other names."""
        places, mask = self._found(codes)
        if mask.any():
            kept_mask = np.ones(self._codes_here.size, dtype=np.bool_)
            kept_mask[places[mask]] = False
            self._let_go(kept_mask)

    # --- turns

    def take(self, count: int, rooms: Int64s | None) -> Int64s:
        """The codes of the next `count` turns, in order; fewer if there are no more messages."""
        gives = self._readies
        if rooms is not None:
            gives = np.minimum(gives, rooms[self._codes_here])
        if self._nested is None:
            return self.share(count, gives)
        return self._nested_gave(self._nested.share(count, gives))

    def take_among(self, codes: Int64s, limits: Int64s, count: int, rooms: Int64s | None) -> Int64s:
        """As `take`, among these groups only, which give no more than `limits`."""
        gives = self._readies
        if rooms is not None:
            gives = np.minimum(gives, rooms[self._codes_here])
        if self._nested is None:
            return self.share_among(codes, limits, count, gives)
        return self._nested_gave(self._nested.share_among(codes, limits, count, gives))

    def _gave(self, places: Int64s, counts: Int64s) -> None:
        self._readies[places] -= counts
        self.count -= int(counts.sum())

    def _nested_gave(self, turns: Int64s) -> Int64s:
        _, codes, counts = by_code(turns)
        self._gave(self._places(codes), counts)
        return turns

    # --- weights, levels of names, state

    def reweigh(self, weights: dict[str, int]) -> None:
        """Weights are others from now on; those by code were changed already."""
        if self._nested is not None:
            self._nested.reweigh(weights)
        else:
            self._list(self._codes_here[self._listed != UNLISTED])

    def nest(self, weights: dict[str, int], rooms: Int64s | None) -> None:
        """From now on there are groups within groups."""
        starts = super().starts()
        nested = LevelShares(weights)
        names = self._groups.names
        for code in self._codes_here.tolist():
            nested.name(code, names[code], 1)
        self._nested = nested
        self._relist(self._codes_here, rooms)
        nested.restore(starts, {})

    def starts(self) -> Starts:
        """What tells apart what comes, by name."""
        return super().starts() if self._nested is None else self._nested.starts()

    def restore(self, starts: Starts, code_of: dict[str, int]) -> None:
        """Begin with these times; the groups have their messages again."""
        if self._nested is None:
            super().restore(starts, code_of)
        else:
            self._nested.restore(starts, code_of)


class PriorityShares:
    """Turns of all priorities, the most urgent first."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._groups = GroupNames()
        self._weights: dict[str, int] = {}
        self._has_levels = False
        self._shares: dict[int, OnePriority] = {}
        self._order: list[int] = []

    # --- groups

    def name(self, code: int, name: str, rooms: Int64s | None) -> None:
        """A code has this name from now on."""
        self._groups.name(code, name, self._weights.get(name, 1))
        if _LEVELS in name and not self._has_levels:
            self._has_levels = True
            for shares in self._shares.values():
                shares.nest(self._weights, rooms)

    def reweigh(self, weights: dict[str, int]) -> None:
        """All weights are these from now on."""
        self._weights = weights
        for code, name in enumerate(self._groups.names):
            if name or not code:
                self._groups.name(code, name, weights.get(name, 1))
        for shares in self._shares.values():
            shares.reweigh(weights)

    def forget(self, codes: Int64s) -> Int64s:
        """Which of these groups, of which no message is live, need not be remembered: all."""
        for shares in self._shares.values():
            shares.leave(codes)
        for code in codes.tolist():
            self._groups.names[code] = ""
        return codes

    def refresh(self, codes: Int64s, rooms: Int64s) -> None:
        """These groups may give another number from now on."""
        for shares in self._shares.values():
            shares.refresh(codes, rooms)

    # --- messages

    def add(self, codes: Int64s, priorities: Int64s, rooms: Int64s | None) -> None:
        """Messages of these groups and priorities, one a row, are ready."""
        for priority, unique, counts in _by_priority(codes, priorities):
            if priority not in self._shares:
                shares = self._shares[priority] = OnePriority(self._layout, self._groups)
                if self._has_levels:
                    shares.nest(self._weights, rooms)
                insort(self._order, priority)
            self._shares[priority].add(unique, counts, rooms)

    def remove(self, codes: Int64s, priorities: Int64s, rooms: Int64s | None) -> None:
        """Messages of these groups and priorities are not ready any more, and were not taken."""
        for priority, unique, counts in _by_priority(codes, priorities):
            self._shares[priority].remove(unique, counts, rooms)
            self._drop_empty(priority)

    def _drop_empty(self, priority: int) -> None:
        if not self._shares[priority].count:
            del self._shares[priority]
            self._order.remove(priority)

    # --- turns

    def share(self, count: int, rooms: Int64s | None) -> Int64s:
        """The codes of the next `count` turns, in order; fewer if there are no more messages.

        Args:
            rooms: how many each group may give, by code; what they give is taken off.
        """
        found = [_NONE]
        for priority in self._order.copy():
            turns = self._shares[priority].take(count, rooms)
            found.append(turns)
            count -= turns.size
            self._took(priority, turns, rooms)
            if not count:
                break
        return np.concatenate(found)

    def share_among(
        self, codes: Int64s, priorities: Int64s, count: int, rooms: Int64s | None
    ) -> Int64s:
        """As `share`, among messages of these groups and priorities only, one a row."""
        found = [_NONE]
        for priority, unique, counts in _by_priority(codes, priorities):
            turns = self._shares[priority].take_among(unique, counts, count, rooms)
            found.append(turns)
            count -= turns.size
            self._took(priority, turns, rooms)
            if not count:
                break
        return np.concatenate(found)

    def _took(self, priority: int, turns: Int64s, rooms: Int64s | None) -> None:
        self._drop_empty(priority)
        if rooms is not None and turns.size:
            _, unique, counts = by_code(turns)
            rooms[unique] -= counts
            self.refresh(unique, rooms)

    # --- state

    def starts(self) -> Starts:
        """The part of the turn order that decides the next turns; names have the priority first."""
        return [
            [f"{priority} {name}", time]
            for priority in self._order
            for name, time in self._shares[priority].starts()
        ]

    def restore(self, starts: Starts, code_of: dict[str, int]) -> None:
        """Go on with these; the messages were added."""
        parts: dict[int, Starts] = {}
        for text, time in starts:
            priority, _, name = text.partition(" ")
            parts.setdefault(int(priority), []).append([name, time])
        for priority, pairs in parts.items():
            self._shares[priority].restore(pairs, code_of)


def _by_priority(codes: Int64s, priorities: Int64s) -> list[tuple[int, Int64s, Int64s]]:
    """(priority, groups ascending, how many messages of each), the most urgent first."""
    order, unique, counts = by_code(priorities)
    codes = codes[order]
    ends = np.cumsum(counts)
    found = []
    for priority, first, end in zip(
        unique.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True
    ):
        _, groups, of_each = by_code(codes[first:end])
        found.append((priority, groups, of_each))
    return found
