"""Covers: a broker's life, its topics, and what it answers when it is not running.

Not covered: messages (tests/rules), brokers of a cluster (tests/cluster).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.broker.broker import RUNNING, Broker
from dejaqueue.errors import BadRequest, Refused, TopicExists, TopicUnknown, Unavailable
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, DispatchSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import WriteStream
from tests.patience import PATIENCE_SECONDS


def settings(url: str = "memory:", **dispatch: int) -> BrokerSettings:
    return BrokerSettings(
        journal=JournalSettings(url=url, segment_bytes=1 << 20, reserve_bytes=1 << 20),
        dispatch=DispatchSettings(**{"workers": 2} | dispatch),
    )


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker(settings(), VirtualClock())
    made.start()
    yield made
    made.stop()


# --- its life


def test_when_keys_were_used_outlives_the_broker(tmp_path: Path) -> None:
    url, clock = f"segment://{tmp_path}", VirtualClock(start_ms=600_000)
    broker = Broker(settings(url), clock)
    broker.start()
    key, text = broker.keys.create("root", ["admin:*"])
    broker.keys.find(text)
    clock.advance(ms=90_000)
    broker.keys.find(text)  # too soon to be stored again: a stop does it
    broker.stop()
    again = Broker(settings(url), clock)
    again.start()
    try:
        assert again.keys.uses() == (600_000, {key.id: 660_000})
    finally:
        again.stop()


def test_a_broker_that_does_not_run_says_so__to_whatever_it_is_asked() -> None:
    broker = Broker(settings(), VirtualClock())
    calls: list[Any] = [
        broker.topics,
        lambda: broker.topic("t"),
        lambda: broker.create_topic(Topic("t")),
        lambda: broker.alter_topic("t", {}),
        lambda: broker.delete_topic("t"),
        lambda: broker.runtime("t"),
        lambda: broker.open_write(WriteStream("t")),
        lambda: broker.take("t"),
    ]

    def all_say_so() -> None:
        for call in calls:
            with pytest.raises(Unavailable, match="the broker is not running"):
                call()
        assert broker.runtimes() == []
        assert broker.journal_servers() == []

    all_say_so()
    broker.start()
    broker.stop()
    all_say_so()


def test_starting_and_stopping_twice_is_fine() -> None:
    broker = Broker(settings(), VirtualClock())
    broker.stop()
    broker.start()
    workers = broker.workers
    broker.start()
    assert broker.workers == workers
    assert (broker.phase, len(workers)) == (RUNNING, 2)
    broker.stop()
    broker.stop()
    assert broker.phase == "stopped"


def test_a_broker_that_cannot_read_its_catalogue_lets_go_of_the_store(tmp_path: Path) -> None:
    """Who puts it right can start at once: the directory is not locked."""
    closed: list[bool] = []

    class Broken(MemoryStore):
        def open(self, topic: str, partition: int, *, only_made: bool = False) -> SegmentJournal:
            raise Unavailable("the disk is away")

        def close(self) -> None:
            closed.append(True)
            super().close()

    broker = Broker(settings(), VirtualClock(), store=Broken())
    with pytest.raises(Unavailable, match="the disk is away"):
        broker.start()
    assert closed == [True]
    assert broker.phase != RUNNING


def test_topics_are_there_again_after_a_restart(tmp_path: Path) -> None:
    url = str(tmp_path / "journal")
    first = Broker(settings(url), VirtualClock())
    first.start()
    first.create_topic(Topic("a", partitions=3, lease_ms=7_000))
    first.create_topic(Topic("b"))
    first.delete_topic("b")
    first.stop()
    second = Broker(settings(url), VirtualClock())
    second.start()
    assert [topic.name for topic in second.topics()] == ["a"]
    assert second.topic("a").lease_ms == 7_000
    assert len(second.runtime("a").partitions) == 3
    second.stop()


def test_a_brokers_settings_are_its_own() -> None:
    """Two brokers of a process are made with the same ones, and one is told others later."""
    shared = settings()
    one, other = Broker(shared, VirtualClock()), Broker(shared, VirtualClock())
    one.start()
    changed, waits_for_a_start = one.change_settings(
        settings(workers=3, consumer_silence_ms_max=12_345)
    )
    assert "consumer_silence_ms_max" in str(changed)
    assert "workers" in str(waits_for_a_start)
    assert one.settings.dispatch.consumer_silence_ms_max == 12_345
    assert other.settings.dispatch == shared.dispatch == settings().dispatch
    assert len(one.workers) == 2
    one.stop()


def test_settings_that_change_live_reach_the_topics_that_are_served(broker: Broker) -> None:
    broker.create_topic(Topic("t"))
    broker.change_settings(settings(consumer_silence_ms_max=12_345))
    assert broker.runtime("t").dispatcher.silence_us_max == 12_345_000


# --- topics


def test_a_topic_is_made_once__or_asked_for_as_it_is(broker: Broker) -> None:
    made = broker.create_topic(Topic("t", partitions=2))
    with pytest.raises(TopicExists):
        broker.create_topic(Topic("t", partitions=2))
    assert broker.create_topic(Topic("t", partitions=2), exist_ok=True) == made
    assert [topic.name for topic in broker.topics()] == ["t"]
    assert broker.runtimes() == []  # nobody has used it
    assert broker.runtime("t") is broker.runtimes()[0]
    assert broker.serving() == ["t"]


def test_a_topic_that_is_wrong_is_not_made_in_part(broker: Broker) -> None:
    with pytest.raises(BadRequest):
        broker.create_topic(Topic("t", partitions=0))
    assert (broker.topics(), broker.runtimes()) == ([], [])


def test_a_topic_with_a_history_needs_a_place_for_it(broker: Broker) -> None:
    with pytest.raises(BadRequest, match=r"history"):
        broker.create_topic(Topic("t", history=True))
    broker.create_topic(Topic("t"))
    with pytest.raises(BadRequest, match=r"history"):
        broker.alter_topic("t", {"history": True})
    assert not broker.topic("t").history


def test_what_is_deleted_is_unknown__and_can_be_made_again_empty(broker: Broker) -> None:
    broker.create_topic(Topic("t"))
    broker.delete_topic("t")
    for call in (broker.topic, broker.runtime, broker.delete_topic):
        with pytest.raises(TopicUnknown):
            call("t")
    assert broker.has_let_go("t")
    broker.create_topic(Topic("t"))
    assert broker.call("stats", {"topic": "t"})["enqueued"] == 0


def test_a_topic_is_served_from_its_first_use_on(broker: Broker) -> None:
    broker.create_topic(Topic("t", partitions=2))
    broker.create_topic(Topic("u"))
    assert (broker.serving(), broker.runtimes(), broker.topic_count) == (["t", "u"], [], 2)
    assert broker.serves("u")
    assert not broker.is_used("t")
    served = broker.runtime("t")
    assert broker.runtime("t") is served
    assert "t" not in broker.store.made()
    served.look(1, lambda _: None).result(PATIENCE_SECONDS)
    assert broker.is_used("t")
    assert "t" in broker.store.made()
    broker.runtime("u")
    assert [one.topic.name for one in broker.runtimes()] == ["t", "u"]
    broker.delete_topic("u")
    assert [one.topic.name for one in broker.runtimes()] == ["t"]


def test_partitions_are_spread_over_workers__each_always_at_the_same(broker: Broker) -> None:
    broker.create_topic(Topic("t", partitions=4))
    owners = [broker.worker_of("t", number) for number in range(4)]
    assert set(owners) == set(broker.workers)
    assert [broker.worker_of("t", number) for number in range(4)] == owners


# --- calls


def test_a_call_that_fails_at_once_fails_alike__waited_for_or_not(broker: Broker) -> None:
    with pytest.raises(TopicUnknown):
        broker.call("stats", {"topic": "t"})
    with pytest.raises(TopicUnknown):
        found = broker.ask("stats", {"topic": "t"})
        assert isinstance(found, Future)
        found.result(10)


def test_a_call_has_the_same_answer__waited_for_or_not(broker: Broker) -> None:
    broker.create_topic(Topic("t"))
    assert broker.ask("list_topics").result(10) == broker.call("list_topics")


def test_a_broker_that_is_alone_is_no_cluster(broker: Broker) -> None:
    broker.create_topic(Topic("t"))
    assert not broker.is_shared
    assert broker.home("t") == ""
    assert broker.cluster() == {"node": "", "coordinator": "", "nodes": [], "topics": []}
    with pytest.raises(TopicUnknown):
        broker.cluster("unknown")
    with pytest.raises(Refused, match="this broker is alone"):
        broker.act_on_servers("repair_node", {})


def test_what_is_to_be_asked_about_a_partition_is_the_topic_itself(broker: Broker) -> None:
    """A lone broker serves no shards, whatever spread the topic has."""
    broker.create_topic(Topic("t", partitions=4))
    assert [broker.shard_of("t", number) for number in (0, 3, None, "1")] == ["t"] * 4
    assert broker.shard_of("unknown", 0) == "unknown"
