"""Covers: what is summed over partitions, and what makes no sum.

Not covered: what each number means (tests/rules, docs/reference/metrics.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.calls.stats import topic_stats
from tests.rules.broker_fixture import TOPIC, BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture(partitions=2)
    yield made
    made.stop()


def send(fixture: BrokerFixture, partition: int, dues_ms: list[int]) -> None:
    count = len(dues_ms)
    columns = {
        "payload": pa.array([b"x"] * count, pa.binary()),
        "due": pa.array(dues_ms, pa.int64()),
        "partition": pa.array([partition] * count, pa.int32()),
    }
    assert fixture.write("enqueue", columns).error is None


def stats(fixture: BrokerFixture) -> dict[str, Any]:
    return topic_stats(fixture.broker.runtime(TOPIC), fixture.now_ms)


def test_an_empty_topic_counts_nothing_and_is_due_never(fixture: BrokerFixture) -> None:
    found = stats(fixture)
    assert (found["topic"], found["next_due_ms"], found["consumers"]) == (TOPIC, -1, [])
    assert (found["scheduled"], found["ready"], found["enqueued"]) == (0, 0, 0)
    assert [one["next_due_ms"] for one in found["partitions"]] == [-1, -1]


def test_counts_of_partitions_add_up__each_with_its_own_beside(fixture: BrokerFixture) -> None:
    now_ms = fixture.now_ms
    send(fixture, 0, [now_ms + 10_000])
    send(fixture, 1, [now_ms - 1, now_ms + 500_000])
    found = stats(fixture)
    assert (found["scheduled"], found["enqueued"], found["ready"]) == (3, 3, 1)
    assert [one["scheduled"] for one in found["partitions"]] == [1, 2]
    for name in ("appends", "journal_bytes", "due_within_1m"):
        if name in found:
            assert found[name] == sum(one[name] for one in found["partitions"])


def test_the_next_due_time_is_the_earliest__and_not_that_of_an_empty_partition(
    fixture: BrokerFixture,
) -> None:
    now_ms = fixture.now_ms
    send(fixture, 1, [now_ms + 5])
    assert stats(fixture)["next_due_ms"] == now_ms + 5
    send(fixture, 0, [now_ms + 3])
    assert stats(fixture)["next_due_ms"] == now_ms + 3


@pytest.mark.parametrize(
    "name", ["position", "ahead_ms", "set_by_ms", "overdue_ms", "lateness_max_us", "credit"]
)
def test_what_makes_no_sum_is_of_partitions_alone(fixture: BrokerFixture, name: str) -> None:
    found = stats(fixture)
    assert name not in found
    assert all(name in one for one in found["partitions"])


def test_who_consumes_is_listed(fixture: BrokerFixture) -> None:
    fixture.consumer(consumer="reader")
    [consumer] = stats(fixture)["consumers"]
    assert consumer["consumer"] == "reader"


def test_a_partition_in_which_nothing_was_ever_stored_has_the_same_numbers__and_is_not_read(
    fixture: BrokerFixture,
) -> None:
    send(fixture, 0, [fixture.now_ms])
    used, unused = stats(fixture)["partitions"]
    assert set(used) == set(unused)
    assert not fixture.broker.runtime(TOPIC).partitions[1].loaded


def test_each_partition_says_how_late_it_is__and_what_its_consumers_can_take(
    fixture: BrokerFixture,
) -> None:
    send(fixture, 1, [fixture.now_ms - 70, fixture.now_ms + 5_000])
    late = stats(fixture)["partitions"][1]
    assert (late["overdue_ms"], late["lateness_max_us"], late["credit"]) == (70, -1, 0)
    fixture.consumer(credit=10, holds=False).take_all()
    idle, served = stats(fixture)["partitions"]
    assert (served["overdue_ms"], served["credit"]) == (0, 9)
    assert served["lateness_max_us"] >= 70_000
    assert (idle["overdue_ms"], idle["lateness_max_us"], idle["credit"]) == (0, -1, 9)


def test_credit_of_an_exclusive_partition_is_that_of_its_own_consumer() -> None:
    fixture = BrokerFixture(partitions=2, assignment="exclusive")
    try:
        fixture.consumer(consumer="a", credit=3)
        fixture.consumer(consumer="b", credit=5)
        assert sorted(one["credit"] for one in stats(fixture)["partitions"]) == [3, 5]
    finally:
        fixture.stop()
