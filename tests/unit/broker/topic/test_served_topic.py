"""Covers: what is asked of partitions runs on their workers, and errors come back to who asked.

Not covered: partitions (tests/unit/broker/partition), shards of a topic (tests/cluster).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.commands import OpenEpoch
from dejaqueue.errors import BadRequest, InternalError, Unavailable
from tests.rules.broker_fixture import TOPIC, BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture(partitions=3)
    yield made
    made.stop()


@pytest.fixture
def topic(fixture: BrokerFixture) -> ServedTopic:
    return fixture.broker.runtime(TOPIC)


def thread_of(topic: ServedTopic, number: int) -> str:
    return topic.look(number, lambda core: threading.current_thread().name).result(10)


def test_a_partition_is_always_stepped_by_the_same_worker(topic: ServedTopic) -> None:
    names = [[thread_of(topic, number) for number in (0, 1, 2)] for _ in range(3)]
    assert names[0] == names[1] == names[2]
    assert all(name.startswith("dejaq-worker-") for name in names[0])
    assert len(set(names[0])) == 2


def test_an_error_of_a_look_comes_back__and_the_worker_goes_on(topic: ServedTopic) -> None:
    def wrong(core: PartitionCore) -> None:
        raise BadRequest("field", "a limit", 5)

    with pytest.raises(BadRequest):
        topic.look(0, wrong).result(10)
    assert topic.look(0, lambda core: core.number).result(10) == 0


@pytest.mark.plants_bugs
def test_a_bug_in_a_look_is_said_as_one(topic: ServedTopic) -> None:
    with pytest.raises(InternalError, match="ZeroDivisionError: "):
        topic.look(0, lambda core: 1 // 0).result(10)
    assert topic.look(0, lambda core: core.number).result(10) == 0


def test_a_change_is_answered_when_it_is_durable(
    topic: ServedTopic, fixture: BrokerFixture
) -> None:
    def change(core: PartitionCore) -> int:
        core.apply(OpenEpoch(core.now_ms(), core.engine.epoch))
        return core.next_position() - 1

    before = topic.look(1, lambda core: core.journal.tail).result(10)
    position = topic.change(1, change).result(10)
    assert topic.look(1, lambda core: core.journal.tail).result(10) >= position > before


def test_a_change_that_refuses_changes_nothing(topic: ServedTopic) -> None:
    def refuse(core: PartitionCore) -> int:
        raise BadRequest("field", "a limit", 5)

    before = topic.look(0, lambda core: core.next_position()).result(10)
    with pytest.raises(BadRequest):
        topic.change(0, refuse).result(10)
    assert topic.look(0, lambda core: core.next_position()).result(10) == before


def test_partitions_that_are_added_are_served_at_once__and_the_route_knows(
    topic: ServedTopic, fixture: BrokerFixture
) -> None:
    fixture.broker.alter_topic(TOPIC, {"partitions": 5})
    assert [topic.look(n, lambda core: core.number).result(10) for n in range(5)] == list(range(5))
    assert topic.route.counts == (3, 5)
    fixture.broker.alter_topic(TOPIC, {"lease_ms": 5_000})
    assert topic.route.counts == (3, 5), "a route is made by a raise alone"
    assert topic.topic.lease_ms == 5_000


def test_settings_that_are_the_same_or_gone_change_nothing(topic: ServedTopic) -> None:
    route, settings = topic.route, topic.topic
    for read in (lambda: settings, lambda: None):
        topic.alter(read)
        assert topic.route is route
        assert topic.topic is settings


def test_the_backlog_is_that_of_all_partitions(topic: ServedTopic, fixture: BrokerFixture) -> None:
    later = fixture.now_ms + 1_000_000
    fixture.send([b"x"] * 9, [later] * 9, keys=[f"key {number}" for number in range(9)])
    fixture.settle_down()
    parts = [partition.backlog for partition in topic.partitions]
    assert topic.backlog().count == sum(part.count for part in parts) == 9
    assert sum(part.count > 0 for part in parts) > 1


def test_what_may_wait_runs_in_order_on_a_thread_of_its_own(topic: ServedTopic) -> None:
    done, order = threading.Event(), list[str]()
    topic.again(lambda: order.append(threading.current_thread().name))
    topic.again(lambda: order.append("second"))
    topic.again(done.set)
    assert done.wait(10)
    assert order[1] == "second"
    assert order[0].startswith("dejaq-again")


def test_a_closed_topic_takes_nothing_that_would_wait__and_is_gone(fixture: BrokerFixture) -> None:
    topic = fixture.broker.runtime(TOPIC)
    topic.again(lambda: None)
    assert not topic.is_gone
    fixture.broker.delete_topic(TOPIC)
    assert topic.is_gone
    with pytest.raises(Unavailable, match="the topic is closed"):
        topic.again(lambda: None)


def test_closing_is_done_for_each_partition__on_its_worker(
    topic: ServedTopic, fixture: BrokerFixture
) -> None:
    closed: list[int] = []

    def close(partition: object) -> None:
        number: int = partition.number  # type: ignore[attr-defined]
        closed.append(number)

    topic.close(close)
    assert sorted(closed) == [0, 1, 2]
    fixture.broker._topics.pop(TOPIC)


def test_who_has_which_partition_is_told_by_name(
    topic: ServedTopic, fixture: BrokerFixture
) -> None:
    fixture.broker.alter_topic(TOPIC, {"assignment": "exclusive"})
    fixture.consumer(consumer="one")
    fixture.settle_down()
    found = topic.assignments()
    assert (found["topic"], found["assignment"]) == (TOPIC, "exclusive")
    assert "one" in str(found["partitions"])
