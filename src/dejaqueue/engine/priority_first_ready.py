"""PriorityFirstReady: ready messages of a fair partition, by priority, and in turn within each.

Room: engine; pure, memory only.
Holds: as fair.py, but that turns are between groups that have messages of the most urgent priority;
    the cap of a group holds over all its priorities.
See: priority_shares.py for whose turn it is; docs/adr/0052-priority-before-turns.md.

What a group gives at its turn is its first message by (priority, sequence), as in a topic by
priority within groups: of all priorities together it has been given its turns for the most urgent
ones first. So messages are taken as there, and the turns alone are others.
"""

from __future__ import annotations

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.dictionary import Dictionary
from dejaqueue.engine.fair import FairReady
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.priority_shares import PriorityShares
from dejaqueue.engine.shares import Starts
from dejaqueue.engine.table import URGENCY_FLIP, MessageTable


class PriorityFirstReady(FairReady):
    """As `FairReady`, priority before turns."""

    def __init__(self, table: MessageTable, layout: Layout, groups: Dictionary) -> None:
        self._by_level = PriorityShares(layout)
        super().__init__(table, layout, groups, by_priority=True)

    # --- groups

    def _name_shares(self, code: int, name: str) -> None:
        self._by_level.name(code, name, self._rooms())

    def _weigh(self, codes: Int64s, weights: dict[str, int]) -> None:
        self._by_level.reweigh(weights)

    def configure(
        self, weights: dict[str, int], in_flight_max: int, *, by_runs: bool = False
    ) -> None:
        """Use these weights and this cap, at once. No such topic has runs."""
        had_cap = self._in_flight_max > 0
        super().configure(weights, in_flight_max)
        if had_cap or in_flight_max:
            self._refresh(np.arange(len(self._groups), dtype=np.int64))

    def forget(self, codes: Int64s) -> Int64s:
        """Which of these groups, of which no message is live, need not be remembered: all."""
        return self._by_level.forget(codes)

    def _rooms(self) -> Int64s | None:
        """How many messages each group may give now, by code; None = any number."""
        if not self._in_flight_max:
            return None
        return np.maximum(self._in_flight_max - self._in_flights, 0)

    def _refresh(self, codes: Int64s) -> None:
        rooms = self._rooms()
        if rooms is None:
            rooms = np.full(self._in_flights.size, limits.SEQUENCE_MAX, dtype=np.int64)
        self._by_level.refresh(codes, rooms)

    def _note_gives(self, codes: Int64s, before: Int64s) -> None:
        self._available += int(self._gives(codes).sum() - before.sum())

    def _priorities(self, places: Int64s) -> Int64s:
        table = self._table
        if "urgencies" not in table.uses:
            return np.full(places.size, limits.PRIORITY_DEFAULT, dtype=np.int64)
        return (table.urgencies[places] ^ URGENCY_FLIP).astype(np.int64)

    # --- rows

    def add(self, places: Int64s) -> None:
        """These rows are ready."""
        super().add(places)
        self._by_level.add(self._codes(places), self._priorities(places), self._rooms())

    def remove(self, places: Int64s) -> None:
        """These rows are not ready any more, and not because they were taken."""
        super().remove(places)
        self._by_level.remove(self._codes(places), self._priorities(places), self._rooms())

    def returned(self, places: Int64s) -> None:
        """These rows were taken and are not leased any more."""
        super().returned(places)
        if self._in_flight_max:
            self._refresh(np.unique(self._codes(places)))

    def _share(self, count: int) -> Int64s:
        return self._by_level.share(count, self._rooms())

    def _share_among(self, places: Int64s, codes: Int64s, count: int) -> Int64s:
        return self._by_level.share_among(codes, self._priorities(places), count, self._rooms())

    # --- state

    def starts(self) -> Starts:
        """The part of the turn order that decides the next turns."""
        return self._by_level.starts()

    def _restore_shares(self, starts: Starts, code_of: dict[str, int]) -> None:
        self._by_level.restore(starts, code_of)
