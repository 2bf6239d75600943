"""A subscription that is being served: the consumers of one named view of a topic.

Room: broker. Any thread may call it; what is asked of a partition runs on its worker.
Holds: its partitions are the topic's; what is asked of one is done in this view of it alone.
See: served_topic.py, which makes one for each that its topic has; partition/view.py; rule 19.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.counting import PartitionCounts, TopicCounts
from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.partition.requests import Request, SettleRequest
from dejaqueue.broker.partition.view import PartitionView
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.view_core import ViewCore
from dejaqueue.broker.topic.served_view import Answer, ServedView
from dejaqueue.clock import Clock
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import DejaQError
from dejaqueue.model import Assignment, Topic, TopicKind
from dejaqueue.subscriptions import BORN


@dataclass(frozen=True, slots=True)
class SubscriptionPorts:
    """What a subscription has of the topic that it is one of.

    Attributes:
        served: the topic, or the shard of it.
        wake, worker_of: as for the topic's dispatcher.
        ring_all: has every partition look for something to do.
    """

    served: ServedView
    clock: Clock
    wake: Callable[[int], bool]
    worker_of: Callable[[int], object]
    ring_all: Callable[[], None]


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

    def follow(self, topic: Topic) -> None:
        """Serve by these settings of the topic."""
        self.topic = topic.subscribed(self.name)

    def share(self) -> None:
        """Serve the partitions that there are now; deal them, if each has one consumer."""
        self.route = self._ports.served.route
        self.dispatcher.configure(
            exclusive=self.topic.assignment is Assignment.EXCLUSIVE,
            numbers=self.partitions.numbers,
            now_us=self._ports.clock.now_us(),
        )

    def view_of(self, partition: Partition) -> PartitionView:
        """Its view of a partition; the same one each time."""
        number = partition.number
        if number not in self._views:
            in_due_order = self.topic.kind is TopicKind.TIMELINE
            counting = PartitionCounts(self.counting, in_due_order=in_due_order)
            core = ViewCore(partition.core, self.name, lambda: self.topic, counting)
            self._views[number] = PartitionView(core, self.dispatcher, partition.view_chores())
            self.dispatcher.waiting.expect(number)
        return self._views[number]

    def end(self, error: DejaQError) -> None:
        """It is gone: its consumers are told."""
        self.dispatcher.end_all(error)

    # --- as a topic ---------------------------------------------------------------------------

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
