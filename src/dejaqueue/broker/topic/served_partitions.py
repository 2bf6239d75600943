"""The partitions of a topic that are served here, by number: all of them, or those of one shard.

Room: broker. Grows only; any thread may look.
Holds: numbers are the topic's own, so ids, journals and files of a shard need no translation.
See: served_topic.py, which fills it; docs/adr/0016-a-topic-in-shards.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.topic.route import key_partitions
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import BadRequest


class ServedPartitions:
    """Partitions in the order of their numbers.

    Args:
        first: number of the first one.
        step: from one number to the next: 1, or how many shards there are.
    """

    def __init__(self, first: int = 0, step: int = 1) -> None:
        self._first = first
        self._step = step
        self._partitions: list[Partition] = []

    @property
    def numbers(self) -> range:
        """The numbers of those that are here."""
        return range(self._first, self._first + self._step * len(self._partitions), self._step)

    def numbers_of(self, count: int) -> range:
        """The numbers of those that are here when the topic has `count` in all."""
        return range(self._first, count, self._step)

    def append(self, partition: Partition) -> None:
        """One more, whose number follows the last one's."""
        self._partitions.append(partition)

    def unpublish(self) -> None:
        """They are not to be served here any more, whatever still hangs."""
        for one in self._partitions:
            one.unpublish()

    def at(self, number: int) -> int:
        """Which one of them has this number, from 0; it must be here."""
        return (number - self._first) // self._step

    def check(self, field: str, number: int) -> int:
        """The number, or BadRequest if no partition of this number is here."""
        if number not in self.numbers:
            raise BadRequest(field, f"the number of a partition, below {self._end}", number)
        return number

    @property
    def _end(self) -> int:
        return self._step * len(self._partitions)

    def homes(self, hashes: Int64s, count: int) -> npt.NDArray[np.int64]:
        """The partition of each key, by its hash, of those that are here when there are `count`.

        The low bits of the hash choose. Those of a shard are homes of all keys that come here; for
        keys that belong to it that is the same partition as without shards.
        """
        if self._step == 1:
            return key_partitions(hashes, count)
        low = hashes & np.int64((1 << 31) - 1)
        return self._first + self._step * (low // self._step % (count // self._step))

    def home(self, key_hash: int, count: int) -> int:
        """The same of one key."""
        low = key_hash & ((1 << 31) - 1)
        if self._step == 1:
            return low % count
        return self._first + self._step * (low // self._step % (count // self._step))

    def __contains__(self, number: object) -> bool:
        return number in self.numbers

    def __getitem__(self, number: int) -> Partition:
        return self._partitions[self.at(number)]

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions))  # it may grow meanwhile

    def __len__(self) -> int:
        return len(self._partitions)
