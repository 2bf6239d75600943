"""Messages whose acknowledgement timeout is over go back to their old place in a delayed queue.

Room: broker. `note` is for any thread, `bring_back` runs on the partition's worker.
Holds: a message is moved only if nobody did anything with it since its lease ended. What is
remembered is bounded; what is not comes back all the same, behind what was due before.

A lease's end is the due time of a message that comes back. In a queue whose priorities are small
numbers that is behind everything, although the message had waited longest.
"""

from __future__ import annotations

import heapq
import threading

import numpy as np

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Lease, Move
from dejaqueue.model import MessageState

REMEMBERED_MAX = 100_000
"""Leases of one partition: beyond that, messages come back behind others."""


class Lapses:
    """What was handed out of one partition: until when, and where it was before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: list[tuple[int, int, int]] = []

    def note(self, lease_end_ms: int, sequence: int, due_ms: int) -> None:
        """A message that was due at `due_ms` is leased until `lease_end_ms`."""
        with self._lock:
            if len(self._leases) < REMEMBERED_MAX:
                heapq.heappush(self._leases, (lease_end_ms, sequence, due_ms))

    def bring_back(self, core: PartitionCore) -> None:
        """Move what came back to where it was."""
        now_ms = core.now_ms()
        ended = self._take(now_ms)
        if not ended:
            return
        expiry_ms = core.engine.next_expiry_ms()
        if expiry_ms is not None and expiry_ms <= now_ms:
            core.apply_lease(Lease(now_ms, core.next_position(), now_ms, 0, now_ms))
        sequences = np.array([sequence for _, sequence, _ in ended], dtype=np.int64)
        states, ends_ms = core.engine.states(sequences), core.engine.dues(sequences)
        moved: list[int] = []
        for row, (end_ms, sequence, due_ms) in enumerate(ended):
            if states[row] == MessageState.LEASED:  # for longer, or again
                self.note(int(ends_ms[row]), sequence, due_ms)
            elif states[row] == MessageState.SCHEDULED and ends_ms[row] == end_ms:
                moved.append(row)
        if moved:
            dues_ms = np.array([ended[row][2] for row in moved], dtype=np.int64)
            core.apply(Move(now_ms, sequences[moved], dues_ms))

    def _take(self, now_ms: int) -> list[tuple[int, int, int]]:
        """The leases that have ended by now, by the end that was set when they began."""
        ended: list[tuple[int, int, int]] = []
        with self._lock:
            while self._leases and self._leases[0][0] <= now_ms:
                ended.append(heapq.heappop(self._leases))
        return ended
