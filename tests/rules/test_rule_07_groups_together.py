"""Rule 7 for groups: where a group keeps an order, its messages go to one partition.

Covered: caps and exclusive assignment route by group, over several partitions; a key decides
before the group; other topics spread.
"""

from __future__ import annotations

import pytest

from tests.rules.conftest import MakeBroker

GROUPS = [f"customer {number % 10}" for number in range(200)]


def homes(make_broker: MakeBroker, **topic: object) -> dict[str, set[int]]:
    broker = make_broker(partitions=4, **topic)
    found: dict[str, set[int]] = {}
    for first in range(0, 200, 10):
        groups = GROUPS[first : first + 10]
        reply = broker.write("enqueue", {"payload": [b"x"] * 10, "group": groups})
        assert reply.error is None
        for group, message_id in zip(groups, reply.all_ids().tolist(), strict=True):
            found.setdefault(group, set()).add(message_id >> 47)
    return found


@pytest.mark.parametrize(
    "topic", [{"kind": "fair", "group_in_flight_max": 1}, {"assignment": "exclusive"}]
)
def test_a_group_that_keeps_an_order_has_one_partition(
    make_broker: MakeBroker, topic: dict[str, object]
) -> None:
    found = homes(make_broker, **topic)
    assert all(len(partitions) == 1 for partitions in found.values())
    assert len(set.union(*found.values())) > 1


@pytest.mark.one_broker("a topic in shards deals its batches to the shards first")
def test_without_need_batches_go_in_turn(make_broker: MakeBroker) -> None:
    assert all(len(partitions) == 4 for partitions in homes(make_broker, kind="fair").values())


def test_the_messages_of_a_group_come_one_by_one_in_their_order(make_broker: MakeBroker) -> None:
    """Cap 1: strict order for each group, and never two of one group at a time."""
    broker = make_broker(partitions=4, kind="fair", group_in_flight_max=1)
    payloads = [b"%d" % number for number in range(200)]
    broker.write("enqueue", {"payload": payloads, "group": GROUPS})
    consumer = broker.consumer()
    order: dict[int, list[int]] = {}
    for _ in range(400):
        broker.settle_down()
        deliveries = consumer.take_all()
        numbers = [int(payload) for got in deliveries for payload in got.payloads]
        assert len({number % 10 for number in numbers}) == len(numbers)
        for number in numbers:
            order.setdefault(number % 10, []).append(number)
        for got in deliveries:
            consumer.ack(got)
        if sum(map(len, order.values())) == 200:
            break
    assert all(numbers == sorted(numbers) and len(numbers) == 20 for numbers in order.values())
