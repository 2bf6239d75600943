"""Growing: where keys and batches of a topic are whose partitions became more.

Room: broker. Any thread; what is asked of a partition runs on its worker.
Holds: a key is live in one partition only, and found there, however often the topic grew; a batch
sent again is recognised by the partition that stored it.
See: docs/guides/growing.md; routing.py, which routes by it.

A key's home follows from its hash and the number of partitions. After a raise new messages go to
the new home, once the older homes were asked and do not have the key. An older home never takes a
key that it does not have, so its answer "not here" stays true. Every request carries the route it
was made by, and a partition sends back what was routed before the raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dejaqueue.broker.partition.keys import find_in
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.route import PARTS_MAX, Route, part_name, split_rows
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.producers import Answer
from dejaqueue.errors import BadRequest

WAIT_SECONDS = 60
"""Longer than a partition is read for; a partition that hangs is not waited for for ever."""


def has_strays(topic: ServedTopic, core: PartitionCore, count: int) -> bool:
    """True if a live key of the partition has its home elsewhere. Cost: O(live messages)."""
    homes = topic.partitions.homes
    return core.views.has_key(lambda hashes: homes(hashes, count) != core.number)


def find_old_homes(
    topic: ServedTopic, route: Route, keys: pa.StringArray, key_hashes: Int64s, homes: Int64s
) -> Mask:
    """Ask the older homes of keys; where one has a live key, `homes` is set to it.

    Args:
        homes: for each row its partition as of now, -1 = do not ask; changed in core.

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
    topic: ServedTopic, route: Route, partition: int, keys: pa.StringArray, hashes: Int64s
) -> Mask:
    """Which of these keys are live in the partition."""
    route.asks[partition] += 1
    asks = route.asks[partition]
    # Ever more rarely (1st, 2nd, 4th … ask): it scans all live rows.
    look_for_strays = asks & (asks - 1) == 0

    def ask(core: PartitionCore) -> tuple[Mask, bool]:
        live = find_in(core, keys, hashes)
        here = np.zeros(len(hashes), dtype=np.bool_) if live is None else live >= 0
        return here, look_for_strays and not has_strays(topic, core, route.count)

    here, is_clear = topic.look(partition, ask).result(WAIT_SECONDS)
    if is_clear:
        route.clear.add(partition)
    return here


@dataclass(frozen=True, slots=True)
class Stored:
    """A part of a batch that a partition has.

    Attributes:
        name: by which it remembers it.
        count: how many partitions there were when it was routed.
    """

    partition: int
    name: str
    count: int
    answer: Answer


Known: TypeAlias = dict[int, list[Stored]]
"""Number of a batch → its parts that are stored."""


def known_batches(topic: ServedTopic, route: Route, producer: str) -> Known:
    """The batches of a producer that partitions remember, as durable as they are."""
    batches: Known = {}
    names = {
        part_name(route, producer, count, turn): count
        for count in route.counts
        for turn in range(PARTS_MAX)
    }

    def ask(core: PartitionCore) -> list[tuple[int, Stored]]:
        return [
            (number, Stored(core.number, name, count, answer))
            for name, count in names.items()
            for number, answer in core.engine.answers_of(name).items()
        ]

    waits = [topic.look(partition, ask) for partition in topic.partitions.numbers_of(route.count)]
    for wait in waits:
        for number, stored in wait.result(WAIT_SECONDS):
            batches.setdefault(number, []).append(stored)
    return batches


def rows_of(part: Stored, homes: Int64s, number: int) -> Int64s:
    """Which rows of a batch a part has.

    Args:
        homes: where the rows belonged when it was routed.

    Raises:
        BadRequest: it is of another batch with this number.
    """
    here_mask = homes == part.partition
    strays = np.array(part.answer.strays, dtype=np.int64)
    if not strays.size or strays[-1] < homes.size:
        here_mask[strays] ^= True
        rows = np.flatnonzero(here_mask)
        if rows.size == part.answer.rows:
            return rows
    limit = f"another one: {part.answer.rows} other rows were sent with this number before"
    raise BadRequest("number", limit, number)
