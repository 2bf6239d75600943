"""Which chores a partition has, and in which order they are done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.counting import TopicCounts
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings


def test_what_fires_is_first__the_dead_are_sent_last_and_each_partition_has_its_own() -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    roster: Any = broker._roster
    duties_of = roster.of_topic(Topic("t"), TopicCounts())
    duties = [duties_of(number) for number in range(2)]
    names = [type(chore).__name__ for chore in duties[0].chores]
    assert names == ["CronFiring", "StagedWatch", "ForecastChore", "SpikeChore", "Recorder",
                     "DeadLetters", "PaceChore", "RetentionChore", "KeyRetentionChore",
                     "SeedingChore"]  # fmt: skip
    assert duties[0].listener in duties[0].chores
    assert not set(map(id, duties[0].chores)) & set(map(id, duties[1].chores))
    assert isinstance(roster.snapshot_writer, ThreadPoolExecutor)
