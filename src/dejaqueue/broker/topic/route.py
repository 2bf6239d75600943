"""Which partition a row belongs to, and how many partitions there were when that was asked.

Room: broker. Pure but for what is remembered of older homes.
Holds: a route never changes what it says: a raise makes another one, and requests carry theirs.
See: growth.py, which asks the older homes; routing.py, which sends by it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from dejaqueue.engine.arrays import Int64s

PARTS_MAX = 8
"""Parts of one batch that one partition remembers for each number of partitions there were. Each
more than the first takes a raise, or a key that went, while the batch was on its way."""


def key_partitions(key_hashes: Int64s, count: int) -> npt.NDArray[np.int64]:
    """Partition of each key. The low bits of the hash choose; int64 array, shape (n,)."""
    return (key_hashes & np.int64((1 << 31) - 1)) % count


class Route:
    """How keys find their partition; another one after each raise.

    Attributes:
        counts: how many partitions there have been, the last is how many there are.
        clear: partitions that have no live key whose home is elsewhere now.
    """

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        self.clear: set[int] = set()
        self.asks: Counter[int] = Counter()

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return self.counts[-1]

    @property
    def has_grown(self) -> bool:
        """True if there were fewer partitions once."""
        return len(self.counts) > 1


def split_rows(part_of_row: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """(partition, its rows in order) for every partition that has rows; there is one at least."""
    if (part_of_row == part_of_row[0]).all():  # as it is with one row, or one partition
        return [(int(part_of_row[0]), np.arange(len(part_of_row)))]
    order = np.argsort(part_of_row, kind="stable")
    parts, starts = np.unique(part_of_row[order], return_index=True)
    return list(zip(parts.tolist(), np.split(order, starts[1:]), strict=True))


def part_name(route: Route, producer: str, count: int, turn: int = 0) -> str:
    """The name by which partitions remember a part of what a producer sent while they were so many.

    Args:
        turn: how many other parts of the same batch were remembered there before, at this count.
    """
    if not producer or (count == route.counts[0] and not turn):
        return producer
    return f"{producer}\n{count}\n{turn}" if turn else f"{producer}\n{count}"
