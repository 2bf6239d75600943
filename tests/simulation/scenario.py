"""What a simulation is about: the topic, and which parts of the broker are at work, by the seed."""

from __future__ import annotations

from dataclasses import dataclass

from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import TopicUnknown
from dejaqueue.model import GroupOrder, OnDuplicate, Topic, TopicKind
from dejaqueue.testing.simulation.world import World

TOPIC = "t"
GROUPS = ["a", "b", "c.x", "c.y"]
SENDERS = (Sender("a", own=True), Sender("b", own=True), Sender("c"))
"""Two who reach their own messages alone, and one who reaches all."""


@dataclass(frozen=True)
class Scenario:
    """What is at work.

    Attributes:
        transacts: somebody sends and acks in transactions.
        fires: there is a cron topic with entries.
        grows: partitions are added.
        steps_back, drifts: what the machine's clock does.
        fills: the disk runs full, and has room again.
        senders: as whom each producer calls.
    """

    topic: Topic
    transacts: bool
    fires: bool
    grows: bool
    steps_back: bool
    drifts: bool
    fills: bool
    senders: tuple[Sender, ...] = (NOBODY,) * 3

    def make_topics(self, broker: Broker) -> None:
        """Make what is not there yet."""
        topics = [self.topic, Topic("cron", kind=TopicKind.CRON, partitions=2)]
        for topic in topics[: 1 + self.fires]:
            try:
                broker.topic(topic.name)
            except TopicUnknown:
                broker.create_topic(topic)


def choose(world: World) -> Scenario:
    """What this seed is about."""
    random = world.random
    kind = TopicKind(
        random.choice(["timeline", "timeline", "timeline", "priority", "fair", "fair"])
    )
    is_fair = kind is TopicKind.FAIR
    topic = Topic(
        TOPIC,
        kind=kind,
        partitions=random.choice([1, 1, 2, 3]),
        lease_ms=random.choice([500, 3_000, 10_000]),
        on_duplicate=random.choice(list(OnDuplicate)),
        max_attempts=random.choice([0, 0, 2, 4]),
        backoff_ms=random.choice([0, 0, 200]),
        backoff_max_ms=1_000,
        weights={"a": random.choice([1, 8]), "b": 2} if is_fair and world.chance(0.6) else {},
        group_in_flight_max=random.choice([0, 0, 1, 3]) if is_fair else 0,
        # Not drawn, as senders are not, below.
        group_order=list(GroupOrder)[world.seed // 2 % 3] if is_fair else GroupOrder.ARRIVAL,
    )
    return Scenario(
        topic,
        transacts=world.chance(0.35),
        fires=world.chance(0.25),
        grows=world.chance(0.25),
        steps_back=world.chance(0.2),
        drifts=world.chance(0.15),
        fills=world.chance(0.25),
        # Not drawn: other seeds, those that once found something among them, go on as they did.
        senders=SENDERS if world.seed % 7 in (3, 5) else (NOBODY,) * 3,
    )
