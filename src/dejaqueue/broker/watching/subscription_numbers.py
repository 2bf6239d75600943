"""Subscriptions in numbers: how much each still has to do, and how long its first message waits.

Room: broker. Partitions are looked into on their workers; counts are read by any thread.
Holds: SUBSCRIPTIONS_SHOWN_MAX of a broker are shown one by one, those of the oldest topics; further
ones of a topic are summed, so that a page has a bound whatever users make.
See: observation.py, which looks; broker/topic/subscription.py; docs/guides/monitoring.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dejaqueue.broker.counting import GAUGES, TOTALS
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.model import TopicKind

SUBSCRIPTIONS_SHOWN_MAX = 1_000
"""Named subscriptions of a broker that are shown one by one."""
OTHERS = "(others)"
"""The name of what is summed; no topic and no subscription can be called so."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What one view of a partition could hand out.

    Attributes:
        count: messages that are due and not leased.
        first_due_ms: when the first of them became due; -1 = there is none, or its order does not
            say: by priority and in turns the first is not the oldest.
    """

    count: int = 0
    first_due_ms: int = -1

    def __add__(self, other: Ready) -> Ready:
        known = [one for one in (self.first_due_ms, other.first_due_ms) if one >= 0]
        return Ready(self.count + other.count, min(known, default=-1))


def ready_by_subscription(core: PartitionCore) -> dict[str, Ready]:
    """Of each named view of a partition, on its worker. Cost: 10 to 50 µs for each."""
    return {name: _ready(seen) for name, seen in core.seen_as.items()}


def _ready(core: PartitionCore) -> Ready:
    now_ms = core.now_ms()
    counts, excess = core.engine.due_before(np.array([now_ms + 1], dtype=np.int64))
    ready, _ = core.engine.ready_count(int(counts[0]), excess)
    if not ready or core.topic().kind is not TopicKind.TIMELINE:
        return Ready(ready)
    first_ms = core.engine.next_due_ms()
    return Ready(ready, -1 if first_ms is None or first_ms > now_ms else first_ms)


@dataclass(slots=True)
class SubscriptionNumbers:
    """A subscription as of now.

    Attributes:
        name: its own, or OTHERS.
        states: messages in each state (GAUGES of counting.py).
        totals: how often what was done since it is served here (TOTALS of counting.py).
        ready: what it could hand out.
        consumers: how many are connected.
    """

    name: str
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GAUGES, 0))
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    ready: Ready = Ready()
    consumers: int = 0

    def add(self, other: SubscriptionNumbers) -> None:
        """Count another one with this one."""
        for name, count in other.states.items():
            self.states[name] += count
        for name, count in other.totals.items():
            self.totals[name] += count
        self.ready += other.ready
        self.consumers += other.consumers


def subscription_numbers(
    topic: ServedTopic, looks: Mapping[PartitionCore, Mapping[str, Ready]], shown_max: int
) -> list[SubscriptionNumbers]:
    """The named subscriptions of a topic as of now, `shown_max` one by one.

    Args:
        looks: what `ready_by_subscription` said of its partitions.
    """
    found: list[SubscriptionNumbers] = []
    others = SubscriptionNumbers(OTHERS)
    subscriptions = dict(topic.subscriptions)  # a change may go on meanwhile
    for number, (name, subscription) in enumerate(sorted(subscriptions.items())):
        one = SubscriptionNumbers(name, consumers=len(subscription.dispatcher.describe()))
        for partition in topic.partitions:
            seen = partition.core.seen_as.get(name)
            if seen is None:  # it is being read
                continue
            states, totals, _ = seen.counting.read()
            one.add(
                SubscriptionNumbers(
                    name, states, totals, looks.get(partition.core, {}).get(name, Ready())
                )
            )
        if number < shown_max:
            found.append(one)
        else:
            others.add(one)
    return found if len(subscriptions) <= shown_max else [*found, others]
