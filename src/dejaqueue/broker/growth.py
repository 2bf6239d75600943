"""Growing: where keys and batches of a topic are whose partitions became more.

Room: broker. Any thread; what is asked of a partition runs on its worker.
Holds: a key is live in one partition only, and found there, however often the topic grew; a batch
sent again is recognised by the partition that stored it.
See: docs/guides/growing.md; writer.py, which routes by it.

A key's home follows from its hash and the number of partitions. After a raise new messages go to
the new home, once the older homes were asked and do not have the key. An older home never takes a
key that it does not have, so its answer "not here" stays true. Every request carries the route it
was made by, and a partition sends back what was routed before the raise.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.broker.keys import find_in
from dejaqueue.engine.commands import Int64s
from dejaqueue.engine.runs import Mask

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition
    from dejaqueue.broker.runtime import TopicRuntime

WAIT_SECONDS = 60


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
    """(partition, its rows in order) for every partition that has rows."""
    order = np.argsort(part_of_row, kind="stable")
    parts, starts = np.unique(part_of_row[order], return_index=True)
    return list(zip(parts.tolist(), np.split(order, starts[1:]), strict=True))


def has_strays(place: Partition, count: int) -> bool:
    """True if a live key of the partition has its home elsewhere. Cost: O(live messages)."""
    table = place.engine.state.table
    if "key_hashes" not in table.uses:
        return False
    for places in table.live_places():
        hashes = table.key_hashes[places]
        hashes = hashes[hashes != 0]
        if (place.places.homes(hashes, count) != place.number).any():
            return True
    return False


def find_old_homes(
    topic: TopicRuntime, route: Route, keys: pa.StringArray, key_hashes: Int64s, homes: Int64s
) -> Mask:
    """Ask the older homes of keys; where one has a live key, `homes` is set to it.

    Args:
        homes: for each row its partition as of now, -1 = do not ask; changed in place.

    Returns:
        Which rows are in an older home.
    """
    found_mask = np.zeros(homes.size, dtype=np.bool_)
    for count in reversed(route.counts[:-1]):
        old = topic.partitions.homes(key_hashes, count)
        asked = (key_hashes != 0) & (homes >= 0) & (old != homes) & ~found_mask
        asked &= ~np.isin(old, np.array(sorted(route.clear), dtype=np.int64))
        rows_asked = np.flatnonzero(asked)
        for partition, picked in split_rows(old[rows_asked]) if rows_asked.size else []:
            rows = rows_asked[picked]
            here = _ask(topic, route, partition, keys.take(pa.array(rows)), key_hashes[rows])
            found_mask[rows[here]] = True
            homes[rows[here]] = partition
    return found_mask


def _ask(
    topic: TopicRuntime, route: Route, partition: int, keys: pa.StringArray, hashes: Int64s
) -> Mask:
    """Which of these keys are live in the partition."""
    route.asks[partition] += 1
    asks = route.asks[partition]
    # Seldomer and seldomer: it walks over all that is live.
    look_for_strays = asks & (asks - 1) == 0

    def ask(place: Partition) -> tuple[Mask, bool]:
        live = find_in(place, keys, hashes)
        here = np.zeros(len(hashes), dtype=np.bool_) if live is None else live >= 0
        return here, look_for_strays and not has_strays(place, route.count)

    here, is_clear = topic.look(partition, ask).result(WAIT_SECONDS)
    if is_clear:
        route.clear.add(partition)
    return here


def remembered_as(route: Route, producer: str, count: int) -> str:
    """The name by which partitions remember what a producer sent while they were so many.

    Where the rows of a batch went follows from it; how many went to a partition tells it not, as
    another number of partitions may send as many there.
    """
    return producer if count == route.counts[0] or not producer else f"{producer}\n{count}"


Known: TypeAlias = dict[int, dict[int, int]]
"""Number of a batch → partition → rows that it stored of it."""


def known_batches(topic: TopicRuntime, route: Route, producer: str) -> dict[int, Known]:
    """Batches of a producer that partitions know, by how many partitions there were."""
    found: dict[int, Known] = {}
    names = {remembered_as(route, producer, count): count for count in route.counts}

    def ask(place: Partition) -> list[tuple[int, int, int]]:
        by_name = place.engine.state.producers.by_name
        return [
            (count, number, answer.count + len(answer.refused_ids))
            for name, count in names.items()
            if name in by_name
            for number, answer in by_name[name].answers.items()
        ]

    numbers = topic.partitions.numbers_of(route.count)
    waits = [topic.look(partition, ask) for partition in numbers]
    for partition, wait in zip(numbers, waits, strict=True):
        for count, number, rows in wait.result(WAIT_SECONDS):
            found.setdefault(count, {}).setdefault(number, {})[partition] = rows
    return found


def repeats(known: dict[int, int], old_homes: Int64s, homes: Int64s) -> Mask:
    """Which rows of a batch were stored before; `homes` is set to where.

    Args:
        known: partition → rows it stored of this batch.
        old_homes: where rows went when it was sent.
        homes: changed in place.
    """
    stored_mask = np.zeros(homes.size, dtype=np.bool_)
    for partition, rows in split_rows(old_homes):
        if known.get(partition) == len(rows):
            stored_mask[rows] = True
            homes[rows] = partition
    return stored_mask
