"""Leases: which rows one dispatch handed out, and when leases end.

Room: engine; pure, memory only.
Holds: every leased row is in a lease with its attempt, and a check is due no later than its lease
    ends; a lease none of whose rows are still held is the same as one that never was.
See: rules 3 and 4; table.py, whose `dues_ms` of a leased row is the end of its lease.

A lease is its rows, in the order they were handed out, for commands that name it as a whole. Its
end is found through a heap of checks: at a check, rows whose lease ended are given back, and those
extended meanwhile are looked at again when the first of them ends. What is settled is not looked
for; it drops out when it is met, or when too much of it lies around.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from dejaqueue.engine.arrays import Int64s, UInt16s
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.engine.table import LEASED, SCHEDULED, MessageTable

LOOKED_LEASES_MAX = 4_096
LOOKED_ROWS_MAX = 65_536
"""To find the lease of a row so much is looked through: some milliseconds."""


class LeaseRows:
    """The rows of one lease, or (without a name) of rows extended to an earlier end.

    Attributes:
        lease_id: its name, -1 for none.
        sequences, attempts: the rows in the order they were handed out.
        check_ms: no row of it ends before this.
        witness: place of a row that is known to end at `check_ms`, or was.
    """

    __slots__ = ("attempts", "check_ms", "lease_id", "sequences", "serial", "witness")

    def __init__(self, lease_id: int, sequences: Int64s, attempts: UInt16s, check_ms: int) -> None:
        self.lease_id = lease_id
        self.sequences, self.attempts = sequences, attempts
        self.check_ms = check_ms
        self.witness = sequences.size - 1
        self.serial = 0


class Leases:
    """All leases of a partition.

    Attributes:
        by_id: leases by name, in the order they were made.
        row_count: rows of all of them, settled ones included.
    """

    def __init__(self, layout: Layout = STANDARD) -> None:
        self._sweep_rows_min = layout.sweep_rows_min
        self._sweep_groups_min = layout.sweep_groups_min
        self._checks: list[tuple[int, int, LeaseRows]] = []
        self._serial = 0
        self.by_id: dict[int, LeaseRows] = {}
        self.row_count = 0

    def add(self, lease_id: int, sequences: Int64s, attempts: UInt16s, end_ms: int) -> None:
        """Remember a new lease."""
        # One object for a dispatch and no entry in the order index: nearly all leases end by an
        # ack, and would leave a stale entry for each message (ADR 0002).
        lease = LeaseRows(lease_id, sequences, attempts, end_ms)
        self.by_id[lease_id] = lease
        self.row_count += sequences.size
        self._plan_check(lease, end_ms)

    def restore(
        self, lease_id: int, sequences: Int64s, attempts: UInt16s, table: MessageTable
    ) -> None:
        """Remember a lease of a snapshot; the table knows when its rows end."""
        self.add(lease_id, sequences, attempts, -1)
        self._look_again(table, self.by_id[lease_id])

    def rows_of(self, lease_ids: Int64s) -> tuple[Int64s, UInt16s, Int64s]:
        """Sequences and attempts of several leases, one after the other, and how many each has.

        A lease that has ended, or never was, has none. A lease named twice has its rows twice.
        """
        held_leases = [self.by_id.get(lease_id) for lease_id in lease_ids.tolist()]
        known = [lease for lease in held_leases if lease is not None]
        counts = np.fromiter(
            (0 if lease is None else lease.sequences.size for lease in held_leases),
            np.int64,
            len(held_leases),
        )
        if not known:
            return np.zeros(0, np.int64), np.zeros(0, np.uint16), counts
        sequences = np.concatenate([lease.sequences for lease in known])
        return sequences, np.concatenate([lease.attempts for lease in known]), counts

    def ids_of(self, sequences: Int64s, attempts: UInt16s) -> Int64s:
        """Which lease has each of these rows with this attempt; -1 where it was not found.

        Looks through the newest leases alone: LOOKED_LEASES_MAX, and LOOKED_ROWS_MAX rows of them.
        """
        looked: list[LeaseRows] = []
        row_count = 0
        for lease in reversed(self.by_id.values()):
            row_count += lease.sequences.size
            if row_count > LOOKED_ROWS_MAX or len(looked) == LOOKED_LEASES_MAX:
                break
            looked.append(lease)
        if not looked or not sequences.size:
            return np.full(sequences.size, -1, dtype=np.int64)
        rows = np.concatenate([lease.sequences for lease in looked])
        sizes = [lease.sequences.size for lease in looked]
        ids = np.repeat(np.array([lease.lease_id for lease in looked], dtype=np.int64), sizes)
        order = np.argsort(rows, kind="stable")  # of a row's leases the newest comes first
        rows, ids = rows[order], ids[order]
        tries = np.concatenate([lease.attempts for lease in looked])[order]
        places = np.minimum(np.searchsorted(rows, sequences), rows.size - 1)
        held_mask = (rows[places] == sequences) & (tries[places] == attempts)
        found: Int64s = np.where(held_mask, ids[places], -1)
        return found

    def drop(self, lease_id: int) -> None:
        """Forget a lease none of whose rows are held."""
        lease = self.by_id.pop(lease_id, None)
        if lease is not None:
            self.row_count -= lease.sequences.size
            lease.serial = 0  # its check is void

    def ends_earlier(
        self, lease_id: int, sequences: Int64s, attempts: UInt16s, end_ms: int
    ) -> None:
        """These rows, of this lease or (-1) of any, now end at `end_ms`, before they did."""
        lease = self.by_id.get(lease_id) if lease_id >= 0 else None
        if lease is None:
            lease = LeaseRows(-1, sequences, attempts, end_ms)
        elif end_ms >= lease.check_ms:
            return
        self._plan_check(lease, end_ms)

    def _plan_check(self, lease: LeaseRows, check_ms: int) -> None:
        self._serial += 1
        lease.check_ms, lease.serial = check_ms, self._serial
        heapq.heappush(self._checks, (check_ms, self._serial, lease))

    def next_end_ms(self, table: MessageTable) -> int | None:
        """When the next lease ends, exactly; None if there is none.

        Cost: O(1) mostly; O(rows of a lease) when the row that stood for its end is settled.
        """
        checks = self._checks
        while checks:
            check_ms, serial, lease = checks[0]
            if serial == lease.serial:
                place = int(lease.sequences[lease.witness]) - table.base
                if (
                    0 <= place < table.row_count
                    and table.states[place] == LEASED
                    and table.attempts[place] == lease.attempts[lease.witness]
                    and table.dues_ms[place] == check_ms
                ):
                    return check_ms
                if self._look_again(table, lease) == check_ms:
                    return check_ms
            heapq.heappop(checks)
        return None

    def _look_again(self, table: MessageTable, lease: LeaseRows) -> int | None:
        """Find the first end among the rows that are held, and plan the check of it.

        Returns:
            That end; None if no row is held, and the lease is forgotten.
        """
        places = table.places(lease.sequences)
        mask = held_mask(table, places, lease.attempts)
        if not mask.any():
            self._forget(lease)
            return None
        ends_ms = table.dues_ms[places]
        end_ms = int(ends_ms[mask].min())
        lease.witness = int(np.flatnonzero(mask & (ends_ms == end_ms))[-1])
        if end_ms != lease.check_ms:
            self._plan_check(lease, end_ms)
        return end_ms

    def _forget(self, lease: LeaseRows) -> None:
        lease.serial = 0
        if lease.lease_id >= 0:
            self.drop(lease.lease_id)

    def expire(self, table: MessageTable, now_ms: int) -> Int64s | None:
        """Give back all rows whose lease ended by `now_ms`; they are scheduled for that end.

        Returns:
            Their sequences, each once; None if there are none.
        """
        checks = self._checks
        if not checks or checks[0][0] > now_ms:
            return None
        parts: list[Int64s] = []
        while checks and checks[0][0] <= now_ms:
            _, serial, lease = heapq.heappop(checks)
            if serial != lease.serial:
                continue
            places = table.places(lease.sequences)
            mask = held_mask(table, places, lease.attempts)
            ended_mask = mask & (table.dues_ms[places] <= now_ms)
            ended = places[ended_mask]
            if ended.size:
                table.will_write(ended)
                table.states[ended] = SCHEDULED
                parts.append(lease.sequences[ended_mask])
            if ended.size == np.count_nonzero(mask):
                self._forget(lease)
            else:
                self._look_again(table, lease)
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def shift(self, by_ms: int) -> None:
        """Have all leases end this much earlier; the table says so already."""
        for _, serial, lease in self._checks:
            if serial == lease.serial:
                lease.check_ms -= by_ms
        self._checks = [(ms - by_ms, serial, lease) for ms, serial, lease in self._checks]

    def sweep(self, table: MessageTable, leased_count: int) -> None:
        """Forget settled leases if they are the greater part of what is remembered."""
        many_rows = self.row_count > 2 * leased_count + self._sweep_rows_min
        if many_rows or len(self.by_id) > 2 * leased_count + self._sweep_groups_min:
            for lease in settled_leases(table, list(self.by_id.values())):
                self.drop(lease.lease_id)
        if len(self._checks) > 2 * len(self.by_id) + self._sweep_groups_min:
            self._checks = [check for check in self._checks if check[1] == check[2].serial]
            settled = settled_leases(table, [check[2] for check in self._checks])
            for lease in settled:
                self._forget(lease)
            self._checks = [check for check in self._checks if check[1] == check[2].serial]
            heapq.heapify(self._checks)

    def held(self, table: MessageTable) -> list[LeaseRows]:
        """Leases with a row that is still held, by name: what they are logically."""
        leases = [self.by_id[lease_id] for lease_id in sorted(self.by_id)]
        settled = {lease.lease_id for lease in settled_leases(table, leases)}
        return [lease for lease in leases if lease.lease_id not in settled]


def held_mask(table: MessageTable, places: Int64s, attempts: UInt16s) -> npt.NDArray[np.bool_]:
    """Which of these rows are leased with that attempt; ended leases were given back before."""
    mask: npt.NDArray[np.bool_] = (table.states[places] == LEASED) & (
        table.attempts[places] == attempts
    )
    return mask


def settled_leases(table: MessageTable, leases: list[LeaseRows]) -> list[LeaseRows]:
    """Those none of whose rows are held, found in one pass over the rows of all."""
    if not leases:
        return []
    places = table.places(np.concatenate([lease.sequences for lease in leases]))
    attempts = np.concatenate([lease.attempts for lease in leases])
    mask = held_mask(table, places, attempts)
    sizes = np.array([lease.sequences.size for lease in leases], dtype=np.int64)
    firsts = np.cumsum(sizes) - sizes
    helds = np.add.reduceat(mask.astype(np.int64), firsts)
    return [lease for lease, held in zip(leases, helds.tolist(), strict=True) if not held]
