"""Who holds which partition of an exclusive topic, and who gets it next.

Room: broker. Part of the dispatcher; called under its lock.
Holds: a partition goes to another consumer only when none of its messages is leased any more.
See: assignment.py for the shares.
"""

from __future__ import annotations

from collections.abc import Sequence

from dejaqueue.broker.consumers.assignment import NOBODY, assign


class Holders:
    """The partitions of an exclusive topic.

    Args:
        partition_count: how many there are.
    """

    def __init__(self, partition_count: int) -> None:
        self._holders = [NOBODY] * partition_count
        self._targets = [NOBODY] * partition_count

    @property
    def partition_count(self) -> int:
        """How many partitions there are."""
        return len(self._targets)

    def grow(self, partition_count: int) -> None:
        """There are more partitions; nobody has the new ones yet."""
        new = partition_count - len(self._targets)
        self._holders += [NOBODY] * new
        self._targets += [NOBODY] * new

    def share(self, consumers: Sequence[int]) -> bool:
        """Share the partitions among these, the longest there first; True if something changed."""
        targets = assign(self._targets, consumers)
        changed = targets != self._targets
        self._targets = targets
        return changed

    def take(self, partition: int, *, free: bool) -> int:
        """Who may be given messages of the partition now; NOBODY while it waits for leases.

        Args:
            free: no message of it is leased.
        """
        if partition >= len(self._targets):
            return NOBODY
        target = self._targets[partition]
        if self._holders[partition] != target:
            if not free:
                return NOBODY
            self._holders[partition] = target
        return target

    def pairs(self) -> list[tuple[int, int]]:
        """For each partition who was served last, and who is to have it."""
        return list(zip(self._holders, self._targets, strict=True))
