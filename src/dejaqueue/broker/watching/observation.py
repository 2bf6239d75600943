"""Observation: a broker's numbers as of now, for whoever watches it.

Room: broker. Called by threads that may wait; the workers only look into their order index.
Holds: an idle worker is asked for a few partitions at a time, so that what is due meanwhile is late
by less than a millisecond; looking is done once in a while however many ask; a topic too many is
counted with the others.
See: counting.py for what is counted; docs/guides/monitoring.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls.look_ahead import Outlook, look_ahead
from dejaqueue.broker.counting import GAUGES, TOTALS
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.watching.subscription_numbers import (
    OTHERS,
    SUBSCRIPTIONS_SHOWN_MAX,
    Ready,
    SubscriptionNumbers,
    ready_by_subscription,
    subscription_numbers,
)
from dejaqueue.errors import DejaQError
from dejaqueue.metrics import HistogramCounts

TOPICS_SHOWN_MAX = 1_000
"""Topics that are shown one by one, those that were used first; the rest is summed under OTHERS."""
CONSUMERS_SHOWN_MAX = 200
"""Consumers of a topic that are shown one by one, the oldest ones; the rest as one, OTHERS."""

# A look is good for so long, in µs: two Prometheus servers cost no more than one.
_KEPT_US = 1_000_000
# Partitions that are asked at once: with 50 µs for each, a worker is back within half a ms.
_ASKED_AT_ONCE = 8
# A partition that has not answered by then keeps its last figures.
_SECONDS_MAX = 5.0
# Partitions that nobody used since the start are read in the background; a small one is there soon.
_READING_SECONDS_MAX = 1.0


@dataclass(frozen=True, slots=True)
class ConsumerNumbers:
    """What a topic's consumers of one name have together.

    Attributes:
        offset_us: the broker's clock less the client's, the one that is farthest from 0.
        uncertainty_us: it is right within this; the largest; -1 = not known yet.
    """

    name: str
    consumers: int
    credit: int
    leases: int
    offset_us: int
    uncertainty_us: int


@dataclass(slots=True)
class TopicNumbers:
    """A topic as of now.

    Attributes:
        name, kind: its own, or OTHERS and "".
        states: messages in each state (GAUGES of counting.py), and `ready`.
        totals: how often what was done (TOTALS of counting.py).
        histograms: by the name of the attribute of TopicCounts.
        refused: rows by what was asked, and status or error.
        partitions, loaded, failed: how many there are, are read, and cannot be read any more.
        subscriptions: its named ones; of OTHERS none.
    """

    name: str
    kind: str
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*GAUGES, "ready"), 0))
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    outlook: Outlook = field(default_factory=Outlook)
    histograms: dict[str, HistogramCounts] = field(default_factory=dict)
    refused: dict[tuple[str, ...], int] = field(default_factory=dict)
    misses: int = 0
    repeated: int = 0
    ended: int = 0
    history_recorded: int = 0
    history_missed: int = 0
    inbox_bytes: int = 0
    journal_bytes: int = 0
    appended_bytes: int = 0
    cut_bytes: int = 0
    partitions: int = 0
    loaded: int = 0
    failed: int = 0
    consumers: list[ConsumerNumbers] = field(default_factory=list)
    subscriptions: list[SubscriptionNumbers] = field(default_factory=list)

    def add(self, other: TopicNumbers) -> None:
        """Count another topic with this one."""
        _sum_up(self.states, other.states)
        _sum_up(self.totals, other.totals)
        _sum_up(self.refused, other.refused)
        for name, counts in other.histograms.items():
            known = self.histograms.get(name)
            self.histograms[name] = counts if known is None else known + counts
        self.outlook += other.outlook
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.consumers:
            self.consumers = [_together(OTHERS, [*self.consumers, *other.consumers])]


_Name = TypeVar("_Name", str, tuple[str, ...])


def _sum_up(sums: dict[_Name, int], more: dict[_Name, int]) -> None:
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count


_NUMBERS = (
    *("misses", "repeated", "ended", "inbox_bytes", "journal_bytes", "appended_bytes"),
    *("partitions", "loaded", "failed", "history_recorded", "history_missed", "cut_bytes"),
)
_HISTOGRAMS = (
    *("lateness", "waited", "felt", "appends", "group_entries", "group_rows", "snapshots"),
)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a partition's worker said.

    Attributes:
        outlook: of the unnamed view.
        ready: of each named one.
    """

    outlook: Outlook = field(default_factory=Outlook)
    ready: dict[str, Ready] = field(default_factory=dict)


def _look_at(core: PartitionCore) -> _Look:
    return _Look(look_ahead(core), ready_by_subscription(core))


class Observer:
    """Looks at a broker, for all who ask.

    Args:
        broker: may be not started yet: then it has no topics.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._looked_us = -_KEPT_US
        self._looks: dict[PartitionCore, _Look] = {}

    def topics(self) -> Iterator[TopicNumbers]:
        """Each topic's numbers, the oldest topics first. May wait for workers for a moment.

        One by one: what is dropped at once never concerns the garbage collector.
        """
        for name in self._broker.serving()[:TOPICS_SHOWN_MAX]:
            with suppress(DejaQError):  # it was deleted just now, or is served elsewhere
                self._broker.runtime(name)
        runtimes = self._broker.runtimes()
        shown, others = runtimes[:TOPICS_SHOWN_MAX], runtimes[TOPICS_SHOWN_MAX:]
        looks = self._look(shown)
        ready = {core: one.ready for core, one in looks.items()}
        room = SUBSCRIPTIONS_SHOWN_MAX
        for topic in shown:
            numbers = _numbers(topic, looks)
            numbers.subscriptions = subscription_numbers(topic, ready, room)
            room = max(0, room - len(numbers.subscriptions))
            yield numbers
        if others:
            rest = TopicNumbers(OTHERS, "")
            for topic in others:
                rest.add(_numbers(topic, looks))
            yield rest

    def _look(self, topics: Sequence[ServedTopic]) -> dict[PartitionCore, _Look]:
        """What is due when, in each partition that has messages; at most a second old."""
        with self._lock:  # who asks meanwhile gets the same answer
            now_us = self._broker.clock.now_us()
            if now_us - self._looked_us < _KEPT_US:
                return self._looks
            looks: dict[PartitionCore, _Look] = {}
            asked: dict[PartitionCore, Future[_Look]] = {}
            reading: dict[PartitionCore, Future[_Look]] = {}
            for topic in topics:
                if not self._broker.is_used(topic.served_as):
                    continue
                for partition in topic.partitions:
                    if not partition.loaded:  # looking has it read, which may take long
                        reading[partition.core] = topic.look(partition.number, _look_at)
                    elif partition.backlog.count:
                        asked[partition.core] = topic.look(partition.number, _look_at)
                    if len(asked) >= _ASKED_AT_ONCE:
                        looks |= self._answers(asked, _SECONDS_MAX)
                        asked.clear()
            looks |= self._answers(asked, _SECONDS_MAX)
            looks |= self._answers(reading, _READING_SECONDS_MAX)
            self._looks = looks
            if all(future.done() for future in reading.values()):
                self._looked_us = self._broker.clock.now_us()
            return looks

    def _answers(
        self, asked: dict[PartitionCore, Future[_Look]], seconds_max: float
    ) -> dict[PartitionCore, _Look]:
        """What was answered in time; of the others what was known before."""
        done, _ = wait(asked.values(), seconds_max)
        return {
            core: future.result()
            if future in done and future.exception() is None
            else self._looks.get(core, _Look())
            for core, future in asked.items()
        }


def _numbers(topic: ServedTopic, looks: dict[PartitionCore, _Look]) -> TopicNumbers:
    numbers = TopicNumbers(topic.topic.name, str(topic.topic.kind))
    for partition in topic.partitions:
        states, totals, appended_bytes = partition.core.counting.read()
        for name, count in states.items():
            numbers.states[name] += count
        for name, count in totals.items():
            numbers.totals[name] += count
        numbers.outlook += looks.get(partition.core, _Look()).outlook
        numbers.appended_bytes += appended_bytes
        numbers.inbox_bytes += partition.inbox.byte_count
        numbers.partitions += 1
        if partition.loaded:
            numbers.loaded += 1
            numbers.journal_bytes += partition.core.journal.byte_count()
        numbers.failed += partition.failure is not None
    numbers.states["ready"] = numbers.outlook.ready
    counting = topic.counting
    numbers.histograms = {name: getattr(counting, name).read() for name in _HISTOGRAMS}
    numbers.refused = counting.refused.read()
    numbers.misses, numbers.repeated = counting.misses.value, counting.repeated.value
    numbers.ended = counting.ended.value
    numbers.history_recorded = counting.history_recorded.value
    numbers.history_missed = counting.history_missed.value
    numbers.cut_bytes = counting.cut_bytes.value
    numbers.consumers = _consumers(topic.dispatcher.describe())
    return numbers


def _consumers(described: list[dict[str, object]]) -> list[ConsumerNumbers]:
    """By name; the oldest ones each, the others together."""
    by_name: dict[str, list[ConsumerNumbers]] = {}
    for one in described:
        name = str(one["consumer"])
        if name not in by_name and len(by_name) >= CONSUMERS_SHOWN_MAX:
            name = OTHERS
        numbers = (
            one["credit"],
            one["leases"],
            one["clock_offset_us"],
            one["clock_uncertainty_us"],
        )
        by_name.setdefault(name, []).append(ConsumerNumbers(name, 1, *map(_whole, numbers)))
    return [_together(name, ones) for name, ones in by_name.items()]


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _together(name: str, ones: Iterable[ConsumerNumbers]) -> ConsumerNumbers:
    ones = list(ones)
    if len(ones) == 1 and ones[0].name == name:
        return ones[0]
    return ConsumerNumbers(
        name,
        sum(one.consumers for one in ones),
        sum(one.credit for one in ones),
        sum(one.leases for one in ones),
        max((one.offset_us for one in ones), key=abs),
        max(one.uncertainty_us for one in ones),
    )
