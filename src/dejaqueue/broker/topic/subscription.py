"""A subscription that is being served: the consumers of one named view of a topic.

Room: broker. Any thread may call it; what is asked of a partition runs on its worker.
Holds: its partitions are the topic's; what is asked of one is done in this view of it alone. One
that is ephemeral is ended from here alone, when nobody was there for so long (attendance.py); of a
topic in shards, at the home of that.
See: served_topic.py, which makes one for each that its topic has; partition/view.py; rule 19.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.counting import PartitionCounts, TopicCounts
from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.partition.requests import Request, SettleRequest
from dejaqueue.broker.partition.view import PartitionView
from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.view_core import ViewCore
from dejaqueue.broker.topic.attendance import (
    REPORT_LOOKS,
    REPORT_US_MIN,
    AttendanceChore,
    Presence,
    ReportChore,
    look_us,
)
from dejaqueue.broker.topic.home_chore import HomeChore
from dejaqueue.broker.topic.homes import ATTENDANCE, Homes, TopicHome
from dejaqueue.broker.topic.served_view import Answer, ServedView
from dejaqueue.clock import Clock
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Configure
from dejaqueue.errors import DejaQError
from dejaqueue.model import Assignment, Topic, TopicKind
from dejaqueue.subscriptions import BORN, EPHEMERAL

log = logging.getLogger("dejaqueue.broker")

WAIT_SECONDS = 60
"""How long the end of a subscription waits for a worker; else it is tried again."""


@dataclass(frozen=True, slots=True)
class SubscriptionPorts:
    """What a subscription has of the topic that it is one of.

    Attributes:
        served: the topic, or the shard of it.
        wake, worker_of: as for the topic's dispatcher.
        ring_all: has every partition look for something to do.
        shard: the name of the shard; None = the topic is served as a whole.
        home: what the shards agree on, if it is the first of them.
        homes: the way to that from the others.
        alter: changes settings of a topic, by name.
        apart: runs a function once, on a thread that may wait.
    """

    served: ServedView
    clock: Clock
    wake: Callable[[int], bool]
    worker_of: Callable[[int], object]
    ring_all: Callable[[], None]
    shard: str | None
    home: TopicHome | None
    homes: Homes
    alter: Callable[[str, Callable[[Topic], dict[str, Any]]], Topic]
    apart: Callable[[Callable[[], None]], object]


class ServedSubscription(ServedView):
    """One named subscription.

    Args:
        topic: the topic's settings, with this subscription in them.
        silence_us_max: as for Dispatcher.
    """

    def __init__(
        self, topic: Topic, name: str, ports: SubscriptionPorts, silence_us_max: int
    ) -> None:
        self.name = name
        self.born = topic.subscriptions[name][BORN]
        self.topic = topic.subscribed(name)
        self.counting = TopicCounts()
        self.partitions = ports.served.partitions
        self.route = ports.served.route
        self.claimed_dues: dict[int, dict[int, Int64s]] = defaultdict(dict)
        self.dispatcher = Dispatcher(silence_us_max, ports.wake, ports.worker_of, ports.ring_all)
        self._ports = ports
        self._views: dict[int, PartitionView] = {}
        self._ephemeral_ms = 0
        self._is_ending = False

    def follow(self, topic: Topic) -> None:
        """Serve by these settings of the topic."""
        self._ephemeral_ms = int(topic.subscriptions[self.name].get(EPHEMERAL, 0))
        self.topic = topic.subscribed(self.name)

    def share(self) -> None:
        """Serve the partitions that there are now; deal them, if each has one consumer."""
        self.route = self._ports.served.route
        self.dispatcher.configure(
            exclusive=self.topic.assignment is Assignment.EXCLUSIVE,
            numbers=self.partitions.numbers,
            now_us=self._ports.clock.now_us(),
            is_shard=self._ports.shard is not None,
        )

    def view_of(self, partition: Partition) -> PartitionView:
        """Its view of a partition; the same one each time."""
        number = partition.number
        if number not in self._views:
            in_due_order = self.topic.kind is TopicKind.TIMELINE
            counting = PartitionCounts(self.counting, in_due_order=in_due_order)
            core = ViewCore(partition.core, self.name, lambda: self.topic, counting)
            chores = [*partition.view_chores()]
            if number == self.partitions.numbers[0]:
                chores += self._agreeing()
            self._views[number] = PartitionView(core, self.dispatcher, chores)
            self.dispatcher.waiting.expect(number)
        return self._views[number]

    def _agreeing(self) -> Iterator[Chore]:
        """What the first of its partitions here does for all of them."""
        ports, ephemeral_ms = self._ports, lambda: self._ephemeral_ms
        if ports.shard is not None:
            yield HomeChore(ports.shard, self.dispatcher, ports.homes, self.name)
        if ports.shard is None or ports.home is not None:
            yield AttendanceChore(ephemeral_ms, self._all_presence, self._end_soon)
        else:
            yield ReportChore(ephemeral_ms, self.presence, self._report)

    def end(self, error: DejaQError) -> None:
        """It is gone: its consumers are told."""
        self.dispatcher.end_all(error)

    # --- while somebody is there --------------------------------------------------------------

    def presence(self) -> Presence:
        """Who consumes it here, or has messages of it. Any thread."""
        dispatcher, is_held, count = self.dispatcher, False, 0
        for view in list(self._views.values()):
            if view.core.name in view.core.main.seen_as:
                counts = view.core.engine.counts
                is_held |= counts.leased > 0
                count += counts.delivered + counts.extended
        return Presence(dispatcher.has_consumers or is_held, dispatcher.added_count + count)

    def _all_presence(self) -> Presence:
        """The same of all shards, where the topic has some and this is the home. Any thread."""
        here, home = self.presence(), self._ports.home
        if home is None:
            return here
        valid_us = max(REPORT_LOOKS * look_us(self._ephemeral_ms), REPORT_US_MIN)
        there = home.elsewhere(self.name, self.born, valid_us)
        return Presence(here.is_used or there.is_used, here.event_count + there.event_count)

    def _report(self, is_used: bool) -> Future[Any]:
        """Tell the home whether anybody is there."""
        assert self._ports.shard is not None
        given = {"subscription": self.name, "born": self.born, "is_used": is_used}
        return self._ports.homes.ask(self._ports.shard, ATTENDANCE, given)

    def _end_soon(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._ports.apart(self._end_unattended)

    def _end_unattended(self) -> None:
        """Take it out of its topic's settings, unless somebody came."""

        def prove(core: PartitionCore) -> None:
            core.apply(Configure(core.now_ms(), core.engine.rules.to_text()))

        try:
            self.change(self.partitions.numbers[0], prove).result(WAIT_SECONDS)
            altered = self._ports.alter(self._ports.served.topic.name, self._without)
            if altered.subscriptions.get(self.name, {}).get(BORN) != self.born:
                self._ports.served.counting.ended.add(1)
                text = "subscription %s ended: nobody consumed it for %.1f s"
                log.info(text, self.topic.name, self._ephemeral_ms / 1_000)
        except (DejaQError, TimeoutError) as error:
            log.warning("subscription %s, which nobody consumes, stays: %s", self.topic.name, error)
        finally:
            self._is_ending = False

    def _without(self, topic: Topic) -> dict[str, Any]:
        """What changes of the topic if this subscription ends."""
        settings = topic.subscriptions.get(self.name, {})
        is_this = settings.get(BORN) == self.born and settings.get(EPHEMERAL)
        if not is_this or self._all_presence().is_used:
            return {}
        return {"subscriptions": {self.name: None}}

    # --- as a topic ---------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        """As its topic."""
        return self._ports.served.is_closing

    def submit(self, partition_number: int, request: Request) -> None:
        """Leave what settles leases for a partition."""
        if isinstance(request, SettleRequest):
            request = replace(request, subscription=self.name)
        self._ports.served.submit(partition_number, request)

    def look(
        self, partition_number: int, function: Callable[[PartitionCore], Answer]
    ) -> Future[Answer]:
        """Run a function on the partition's worker, on this view."""
        name = self.name
        return self._ports.served.look(partition_number, lambda core: function(core.seen(name)))

    def change(
        self, partition_number: int, function: Callable[[PartitionCore], Answer]
    ) -> Future[Answer]:
        """Run a function that applies commands on the partition's worker, on this view."""
        name = self.name
        return self._ports.served.change(partition_number, lambda core: function(core.seen(name)))

    def has_journal(self, partition_number: int) -> bool:
        """False if nothing was ever stored in a partition."""
        return self._ports.served.has_journal(partition_number)
