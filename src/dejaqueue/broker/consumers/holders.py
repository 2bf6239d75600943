"""Who holds which partition of an exclusive topic, and who gets it next.

Room: broker. Part of the dispatcher; called under its lock.
Holds: a partition goes to another consumer only when none of its messages is leased any more.
See: assignment.py for the shares; home_assignment.py for those of a topic in shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dejaqueue.broker.consumers.assignment import NOBODY, assign


class Holders:
    """The partitions of an exclusive topic, or of a shard of one.

    Args:
        numbers: of the partitions.
        is_told: who gets them is decided elsewhere, for all shards (`tell`); False = here.

    Attributes:
        consumers: by their ids the numbers of those that were heard of, the longest there first.
        told: by number of the partition the id of who is to have it, as decided elsewhere.
    """

    def __init__(self, numbers: Sequence[int], *, is_told: bool = False) -> None:
        self._is_told = is_told
        self._holders = dict.fromkeys(numbers, NOBODY)
        self._targets = dict.fromkeys(numbers, NOBODY)
        self.consumers: dict[str, int] = {}
        self.told: dict[int, str] = {}

    @property
    def partition_count(self) -> int:
        """How many partitions there are."""
        return len(self._targets)

    def grow(self, numbers: Sequence[int]) -> None:
        """There are more partitions; nobody has the new ones yet."""
        self._holders = dict.fromkeys(numbers, NOBODY) | self._holders
        self._targets = dict.fromkeys(numbers, NOBODY) | self._targets

    def share(self, consumers: Mapping[str, int]) -> bool:
        """Share the partitions among these, the longest there first; True if something changed."""
        before = list(self.consumers), self._targets
        self.consumers = dict(consumers)
        if self._is_told:
            self._targets = {
                number: self.consumers.get(self.told.get(number, ""), NOBODY)
                for number in self._targets
            }
        else:
            given = assign(list(self._targets.values()), list(self.consumers.values()))
            self._targets = dict(zip(self._targets, given, strict=True))
        return (list(self.consumers), self._targets) != before

    def tell(self, targets: Mapping[int, str]) -> bool:
        """Take over who is to have each partition, by id; True if something changed."""
        if self.told == targets:
            return False
        self.told = dict(targets)
        self.share(self.consumers)
        return True

    def take(self, partition: int, *, free: bool) -> int:
        """Who may be given messages of the partition now; NOBODY while it waits for leases.

        Args:
            free: no message of it is leased.
        """
        target = self._targets.get(partition, NOBODY)
        if self._holders.get(partition, NOBODY) != target:
            if not free:
                return NOBODY
            self._holders[partition] = target
        return target

    def pairs(self) -> dict[int, tuple[int, int]]:
        """For each partition who was served last, and who is to have it."""
        return {number: (self._holders[number], self._targets[number]) for number in self._targets}
