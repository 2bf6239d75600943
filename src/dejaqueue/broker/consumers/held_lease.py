"""What a consumer holds: its leases, and how many of their rows are not settled yet.

Room: broker. Changed under the lock of the dispatcher.
See: dispatch.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dejaqueue.engine.arrays import Int64s, UInt16s

LeaseKey: TypeAlias = tuple[int, int]
"""Number of the partition, id of the lease."""


class SentRows(NamedTuple):
    """The rows of a lease that were sent, by sequence and attempt, in the order of the delivery."""

    sequences: Int64s
    attempts: UInt16s


@dataclass(slots=True)
class HeldLease:
    """A dispatch that a consumer has.

    Attributes:
        rows: not settled yet.
        due_ms: when the last of its rows is due: given back, none may come before (rule 2).
        sent: what was sent of it, where others of its rows could not be read; None = all of it.
    """

    rows: int
    lease_end_ms: int
    due_ms: int
    sent: SentRows | None = None


def let_go(leases: dict[LeaseKey, HeldLease], lease: LeaseKey, rows: int) -> int:
    """Rows of a lease are held no more.

    Args:
        rows: how many; -1 = all that it has left.

    Returns:
        How many those are; 0 = the lease was not held.
    """
    held = leases.get(lease)
    if held is None:
        return 0
    count = held.rows if rows < 0 else rows
    held.rows -= count
    if held.rows <= 0:
        del leases[lease]
    return count
