"""The roster: what each partition of a broker does beside answering requests and leasing.

Room: broker. Asked when a topic is served, and when it gets more partitions.
Holds: the order in which chores are done is the order in which they stand here, and nothing else
says which there are.
See: chore.py for what a chore is; docs/adr/0031-partition-core-and-chores.md.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

from dejaqueue.broker.counting import TopicCounts
from dejaqueue.broker.cron.fire import CronFiring
from dejaqueue.broker.history.history import History
from dejaqueue.broker.history.recorder import Recorder
from dejaqueue.broker.letters.carrier import Carrier
from dejaqueue.broker.letters.dead_letters import DeadLetters
from dejaqueue.broker.partition.partition import Duties
from dejaqueue.broker.payloads.cold_objects import ColdObjects
from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.cold_chore import ColdChore
from dejaqueue.broker.shard.key_retention_chore import KeyRetentionChore
from dejaqueue.broker.shard.maintenance import Maintenance, RoomBell
from dejaqueue.broker.shard.pace_chore import PaceChore
from dejaqueue.broker.shard.retention_chore import RetentionChore
from dejaqueue.broker.shard.seeding_chore import SeedingChore
from dejaqueue.broker.shard.spike_chore import SpikeChore
from dejaqueue.broker.shard.turn_hold import Publication
from dejaqueue.broker.shard.unread_entries import UnreadEntries
from dejaqueue.broker.topic.forecast import Forecast, ForecastChore
from dejaqueue.broker.transactions.coordinator import Coordinator
from dejaqueue.broker.transactions.staging import StagedWatch
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic
from dejaqueue.settings import DispatchSettings


@dataclass(frozen=True, slots=True)
class Roster:
    """With what the chores of all partitions of a broker are made.

    Attributes:
        grow: raises a topic, by name, to so many partitions; returns at once.
        cold: None = the broker has no payload store.
        unread: what a start would have to read again.
    """

    settings: DispatchSettings
    snapshot_writer: Executor
    room: RoomBell
    history: History
    coordinator: Coordinator
    carrier: Carrier
    grow: Callable[[str, int], None]
    cold: ColdObjects | None = None
    unread: UnreadEntries = field(default_factory=UnreadEntries)

    def of_topic(
        self,
        topic: Topic,
        counting: TopicCounts,
        shards: int = 1,
        publish: Callable[[int, Journal, int], Publication] | None = None,
    ) -> Callable[[int], Duties]:
        """The duties of the partitions of a topic, by number.

        Args:
            counting: what its partitions count together.
            shards: in how many it is served.
            publish: begins to say what is durable in a partition; None = nobody asks.
        """
        topic_name = topic.name
        forecast = Forecast(
            self.settings,
            lambda count: self.grow(topic_name, count),
            shards=shards,
            spread=topic.spread,
        )

        def duties_of(partition_number: int) -> Duties:
            cold: tuple[Chore, ...] = () if self.cold is None else (ColdChore(self.cold),)
            recorder = Recorder(self.history, topic_name, partition_number, counting)
            return Duties(
                Maintenance(self.snapshot_writer, self.room, self.unread, recorder.settle),
                recorder,
                (
                    CronFiring(),
                    StagedWatch(self.coordinator),
                    ForecastChore(forecast),
                    SpikeChore(),
                    recorder,
                    DeadLetters(self.carrier),
                    PaceChore(),
                    RetentionChore(),
                    KeyRetentionChore(),
                    SeedingChore(),
                    *cold,
                ),
                lambda: (SpikeChore(), DeadLetters(self.carrier), PaceChore()),
                None if publish is None else partial(publish, partition_number),
            )

        return duties_of
