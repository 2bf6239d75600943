"""Exclusive assignment of a topic in shards, as its home decides it for all shards.

Room: broker. At the owner of the topic's first shard; any thread. Nothing here is kept: the next
home learns from the shards what was decided.
Holds: as assignment.py, over the consumers that are at every shard; a consumer whose stream to one
shard broke keeps its partitions there for a grace time; while a home is new and has not heard of
every shard, it decides nothing.
See: home_chore.py, which reports and carries it out; docs/adr/0037-a-topic-in-shards-agrees.md.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dejaqueue.broker.consumers.assignment import NOBODY, assign

GRACE_US = 1_000_000
"""So long is waited for a consumer that some shards have and others do not have yet, or no more."""
SILENCE_US = 5_000_000
"""A shard that reports nothing for so long has no consumers, as far as is known."""


@dataclass(frozen=True, slots=True)
class ShardAssignment:
    """What one shard is told.

    Attributes:
        targets: by number of the partition who is to have it, "" = nobody; None = not decided yet.
        is_settled: the shards have the same consumers; else the shard should ask again soon.
    """

    targets: dict[int, str] | None
    is_settled: bool


class HomeAssignment:
    """Who is to have each partition of an exclusive topic in shards.

    Args:
        spread: how many shards it has.
    """

    def __init__(self, spread: int) -> None:
        self._spread = spread
        self._lock = threading.Lock()
        # Under the lock.
        self._began_us: int | None = None
        self._reports: dict[int, tuple[tuple[str, ...], int]] = {}
        self._order: dict[str, None] = {}
        self._targets: list[str] = []
        self._absent_us: dict[tuple[str, int], int] = {}

    def report(
        self,
        shard: int,
        partition_count: int,
        consumers: Sequence[str],
        kept: Mapping[int, str],
        now_us: int,
    ) -> ShardAssignment:
        """Take in what a shard has, and say what it is to do.

        Args:
            partition_count: of the topic as a whole.
            consumers: ids of those that were heard of lately, the longest there first.
            kept: by number of the partition who is to have it, as the shard was told last.
        """
        with self._lock:
            if self._began_us is None:
                self._began_us = now_us
            is_new = shard not in self._reports
            self._reports[shard] = tuple(consumers), now_us
            self._targets += [""] * (partition_count - len(self._targets))
            if is_new:  # decided by the home before this one
                for partition, consumer in kept.items():
                    if partition < partition_count and not self._targets[partition]:
                        self._targets[partition] = consumer
            is_young = now_us - self._began_us < GRACE_US
            if len(self._reports) < self._spread and is_young:
                return ShardAssignment(None, is_settled=False)
            is_settled = self._decide(now_us)
            mine = range(shard, partition_count, self._spread)
            return ShardAssignment({one: self._targets[one] for one in mine}, is_settled)

    def _decide(self, now_us: int) -> bool:
        """Deal the partitions out; False if some shards have consumers that others have not."""
        at = {
            shard: set(consumers)
            for shard, (consumers, at_us) in self._reports.items()
            if now_us - at_us <= SILENCE_US
        }
        for shard in sorted(at):
            self._order.update(dict.fromkeys(self._reports[shard][0]))
        there = set().union(*at.values())
        self._order = {one: None for one in self._order if one in there}
        known = list(self._order)
        numbers = {consumer: number for number, consumer in enumerate(known)}
        holders = [numbers.get(consumer, NOBODY) for consumer in self._targets]
        given = assign(holders, range(len(known)))
        missing = {(one, shard) for one in known for shard in at if one not in at[shard]}
        self._absent_us = {pair: self._absent_us.get(pair, now_us) for pair in missing}
        for partition, number in enumerate(given):
            shard = partition % self._spread
            since_us = self._absent_us.get((known[number], shard)) if known else None
            if since_us is not None and now_us - since_us >= GRACE_US:
                given[partition] = self._other(
                    given, [numbers[one] for one in known if one in at[shard]]
                )
        self._targets = [known[number] if number != NOBODY else "" for number in given]
        return not any(now_us - since_us < GRACE_US for since_us in self._absent_us.values())

    @staticmethod
    def _other(given: list[int], numbers: list[int]) -> int:
        """Of those that are at a shard the one with the fewest partitions."""
        return min(numbers, key=lambda number: (given.count(number), number), default=NOBODY)
