"""ServedView: what consumers and looks need of a topic, or of one of its subscriptions.

Room: broker. A base of two: served_topic.py and subscription.py.
Holds: what works on it is the same for the unnamed view and for one with a name.
See: session.py, and broker/calls, which take either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.counting import TopicCounts
from dejaqueue.broker.partition.requests import Request
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.route import Route
from dejaqueue.broker.topic.served_partitions import ServedPartitions
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import Elsewhere
from dejaqueue.model import Topic

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Changing(Generic[Answer]):
    """A change on its way; both have the same answer, or the same error.

    Attributes:
        applied: done when it is applied: what is asked of the partition next comes after it.
        durable: done when it is durable. If that fails, `applied` may have said nothing of it.
    """

    applied: Future[Answer]
    durable: Future[Answer]


def moved(topic: str) -> Elsewhere:
    """The answer to what comes while a topic goes to another broker: nothing of it was done. It is
    not known here yet which one that is."""
    return Elsewhere(f"topic {topic} is between two owners", 50)


class ServedView(ABC):
    """A topic as one view of it.

    Attributes:
        topic: its settings, as this view sees them.
        dispatcher: its consumers.
        counting: what its partitions count together.
        partitions: by number.
        route: how keys find their partition.
        claimed_dues: when the rows of claims became due, by partition and number of the claim; each
            partition's own, on its worker (claims.py).
    """

    topic: Topic
    dispatcher: Dispatcher
    counting: TopicCounts
    partitions: ServedPartitions
    route: Route
    claimed_dues: dict[int, dict[int, Int64s]]

    @property
    @abstractmethod
    def is_closing(self) -> bool:
        """True once what is asked of a partition may not be done any more."""

    @abstractmethod
    def submit(self, partition_number: int, request: Request) -> None:
        """Leave a request for a partition."""

    @abstractmethod
    def look(
        self, partition_number: int, function: Callable[[PartitionCore], Answer]
    ) -> Future[Answer]:
        """Run a function on the partition's worker; again from its beginning, if it has to wait
        for stored rows."""

    @abstractmethod
    def change(
        self, partition_number: int, function: Callable[[PartitionCore], Answer]
    ) -> Future[Answer]:
        """Run a function that applies commands on the partition's worker; done when they are
        durable. It must not raise once it has applied one."""

    @abstractmethod
    def has_journal(self, partition_number: int) -> bool:
        """False if nothing was ever stored in a partition: it need not be read to look for more."""

    def assignments(self) -> dict[str, Any]:
        """Who has which partition: `assignment`, `partitions`, `standby`."""
        shares = self.dispatcher.assignments(self.partitions.numbers)
        return {"topic": self.topic.name, "assignment": str(self.topic.assignment)} | shares
