"""Extend many leases at once: one entry in the journal instead of one for each.

Room: broker. Runs on the partition's worker.
Holds: a lease is extended if any of its rows is held, and lost otherwise (rule 4).
See: client/consuming/extending.py, which has consumers of many small deliveries ask for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Extend
from dejaqueue.model import RowStatus

ROWS_MAX = 65_536
"""Messages in one entry: however many leases are named, entries keep their usual size."""


def extend_leases(core: PartitionCore, lease_ids: Int64s, lease_ms: int) -> npt.NDArray[np.uint8]:
    """The leases end `lease_ms` from now, 0 = as the topic says.

    Returns:
        A RowStatus for each of them, OK or LEASE_LOST.
    """
    lease_ms = lease_ms or core.topic().lease_ms
    named, indices = np.unique(lease_ids, return_inverse=True)
    sequences, attempts, counts = core.engine.rows_of_leases(named)
    now_ms = core.now_ms()
    is_held = np.zeros(len(sequences) + 1, dtype=np.int64)  # the first one is of no row
    for start in range(0, len(sequences), ROWS_MAX):
        rows = slice(start, start + ROWS_MAX)
        command = Extend(
            now_ms, now_ms + lease_ms, sequences=sequences[rows], attempts=attempts[rows]
        )
        statuses = core.apply(command).statuses
        is_held[1:][rows] = 1 if statuses is None else statuses == RowStatus.OK
    held_before = np.cumsum(is_held)
    ends = np.cumsum(counts)
    held_counts = held_before[ends] - held_before[ends - counts]
    outcomes = np.where(held_counts > 0, RowStatus.OK, RowStatus.LEASE_LOST).astype(np.uint8)
    return outcomes[indices]
