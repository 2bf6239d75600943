"""Deliveries that wait in the client for their due time, and the leases that cover them.

Room: client; pure: times come in, nothing is read, nothing is sent. One thread at a time.
Holds: a row is handed over when the broker's clock has reached its due time, never before
(rule 2), and not any more when its lease has ended (rule 4); a delivery is handed over as slices
that follow each other.
See: clock_offset.py for what is known of the broker's clock; consume_core.py for threads.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.wire.frames import DeliveryHead


@dataclass(slots=True, eq=False)
class Lease:
    """A lease on the rows of one delivery.

    Attributes:
        length_ms: what it is extended by: its first length.
        end_ms: when it ends, by the broker's clock.
        rows_open: rows not settled yet; 0 = nothing left to extend.
        generation: number of the stream it came on; a later stream settles it row by row.
    """

    partition: int
    lease_id: int
    rows: int
    length_ms: int
    end_ms: int
    generation: int
    rows_open: int = 0


@dataclass(slots=True, eq=False)
class Slice:
    """Rows of one delivery that are due, as they are handed over together."""

    lease: Lease
    batch: pa.RecordBatch
    ids: npt.NDArray[np.int64]
    dues_ms: npt.NDArray[np.int64]
    attempts: npt.NDArray[np.uint16]

    @property
    def is_whole(self) -> bool:
        """True if it is the whole delivery, which the lease id names."""
        return len(self.ids) == self.lease.rows


@dataclass(slots=True, eq=False)
class _Held:
    lease: Lease
    batch: pa.RecordBatch
    ids: npt.NDArray[np.int64]
    dues_ms: npt.NDArray[np.int64]
    attempts: npt.NDArray[np.uint16]
    releases_ms: npt.NDArray[np.int64]
    sent_ms: int
    number: int
    start: int = 0
    gone: bool = False

    def release_ms(self) -> int:
        """When the next row may be handed over."""
        return int(self.releases_ms[self.start])


class Holder:
    """What was delivered and not handed over yet.

    Attributes:
        rows: how many rows that is.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._arrivals = 0
        self._heap: list[tuple[int, int, _Held]] = []

    def add(self, head: DeliveryHead, batch: pa.RecordBatch, generation: int = 0) -> Lease:
        """Keep a delivery until its rows are due; the lease that it is under."""
        ids = batch.column("id").to_numpy()
        dues_ms = batch.column("due").to_numpy()
        attempts = batch.column("attempts").to_numpy()
        # Rows come in due order from a timeline; of any other order the latest so far decides,
        # since slices follow each other.
        releases_ms = dues_ms
        if len(dues_ms) > 1 and bool((dues_ms[1:] < dues_ms[:-1]).any()):
            releases_ms = np.maximum.accumulate(dues_ms)
        length_ms = max(head.lease_end_ms - head.broker_us // 1000, 1)
        lease = Lease(
            head.partition, head.lease_id, len(ids), length_ms, head.lease_end_ms, generation
        )
        lease.rows_open = len(ids)
        self._arrivals += 1
        sent_ms = head.broker_us // 1000
        held = _Held(lease, batch, ids, dues_ms, attempts, releases_ms, sent_ms, self._arrivals)
        if len(ids):
            self._push(held)
            self.rows += len(ids)
        return lease

    def _push(self, held: _Held) -> None:
        # What was due when it was sent keeps the broker's order, which need not be that of time.
        heapq.heappush(self._heap, (max(held.release_ms(), held.sent_ms), held.number, held))

    def next_due_ms(self) -> int | None:
        """When the next row may be handed over; None if nothing is held."""
        return self._heap[0][2].release_ms() if self._heap else None

    def take(self, broker_us: int, rows_max: int) -> Slice | None:
        """The next slice of rows that are due when the broker's clock is at least this.

        Cost: one binary search and a few array views; nothing is copied.
        """
        next_ms = self.next_due_ms()
        if next_ms is None or next_ms * 1000 > broker_us:
            return None
        _, _, held = heapq.heappop(self._heap)
        start = held.start
        due = int(held.releases_ms.searchsorted(broker_us // 1000, side="right"))
        stop = min(due, start + rows_max)
        self.rows -= stop - start
        if stop < len(held.ids):
            held.start = stop
            self._push(held)
        if stop - start == len(held.ids):
            return Slice(held.lease, held.batch, held.ids, held.dues_ms, held.attempts)
        rows = slice(start, stop)
        return Slice(
            held.lease,
            held.batch.slice(start, stop - start),
            held.ids[rows],
            held.dues_ms[rows],
            held.attempts[rows],
        )

    def drop_repeated(self, ids: npt.NDArray[np.int64], generation: int) -> int:
        """Forget rows of earlier streams that are delivered again; how many they were.

        A delivery is forgotten whole: the broker has taken back that lease.
        """
        old = [h for _, _, h in self._heap if h.lease.generation < generation]
        return self._drop([h for h in old if bool(np.isin(h.ids[h.start :], ids).any())])

    def take_all(self) -> Slice | None:
        """Everything that is held, due or not, to give it back; None if nothing is."""
        held = [entry[2] for entry in self._heap]
        if not held:
            return None
        self._drop(held)
        return rows_of(
            np.concatenate([h.ids[h.start :] for h in held]),
            np.concatenate([h.attempts[h.start :] for h in held]),
            np.concatenate([h.dues_ms[h.start :] for h in held]),
        )

    def _drop(self, dropped: list[_Held]) -> int:
        if not dropped:
            return 0
        rows = 0
        for held in dropped:
            held.gone = True
            left = len(held.ids) - held.start
            held.lease.rows_open -= left
            rows += left
        self._heap = [entry for entry in self._heap if not entry[2].gone]
        heapq.heapify(self._heap)
        self.rows -= rows
        return rows


def rows_of(
    ids: npt.NDArray[np.int64],
    attempts: npt.NDArray[np.uint16],
    dues_ms: npt.NDArray[np.int64] | None = None,
) -> Slice:
    """Rows of several leases, to be settled by (id, attempt)."""
    no_lease = Lease(partition=0, lease_id=-1, rows=-1, length_ms=0, end_ms=0, generation=-1)
    if dues_ms is None:
        dues_ms = np.zeros(0, dtype=np.int64)
    return Slice(no_lease, None, ids, dues_ms, attempts)


class LeaseBook:
    """When to extend each lease that the client has unsettled rows of."""

    def __init__(self) -> None:
        self._plan: list[tuple[int, int, Lease]] = []
        self._entries = 0
        self._settled_count = 0

    def plan(self, lease: Lease) -> None:
        """A new lease, or a new end of one: it is extended when a third of it is left."""
        self._entries += 1
        extend_ms = lease.end_ms - lease.length_ms // 3
        heapq.heappush(self._plan, (extend_ms, self._entries, lease))

    def settled(self, lease: Lease, rows: int) -> None:
        """This many rows of it are settled; when none is left it is not extended any more."""
        lease.rows_open -= rows
        if lease.rows_open <= 0:
            self._settled_count += 1
            # Settled leases would stay until they were due for extension: a third of the plan at
            # most is let go stale.
            if self._settled_count > 1_000 and self._settled_count * 3 > len(self._plan):
                self._plan = [entry for entry in self._plan if entry[2].rows_open > 0]
                heapq.heapify(self._plan)
                self._settled_count = 0

    def next_ms(self) -> int | None:
        """When the next lease is to be extended, by the broker's clock."""
        while self._plan and self._plan[0][2].rows_open <= 0:
            heapq.heappop(self._plan)
        return self._plan[0][0] if self._plan else None

    def take_due(self, broker_ms: int) -> list[Lease]:
        """Leases to extend now, if any is due; `plan` each again when its new end is known.

        With them come those of which less than half is left: they would be due soon, one by one.
        """
        found: list[Lease] = []
        while (next_ms := self.next_ms()) is not None:
            lease = self._plan[0][2]
            if next_ms > broker_ms + (lease.length_ms // 6 if found else 0):
                break
            heapq.heappop(self._plan)
            if broker_ms < lease.end_ms:
                found.append(lease)
        return found
