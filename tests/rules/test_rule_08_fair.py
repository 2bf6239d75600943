"""Rule 8: groups of a fair topic share deliveries by weight in any window.

What holds of each two groups that have ready messages, with a and b deliveries in the window and
weights wa and wb: |a/wa - b/wb| <= 1/wa + 1/wb. With unequal weights that is more than one message.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from tests.rules.broker_fixture import TOPIC, BrokerFixture, Got, RecordingConsumer
from tests.rules.conftest import MakeBroker


def send(broker: BrokerFixture, groups: list[str]) -> None:
    """Send a message for each of these groups, in this order."""
    reply = broker.write(
        "enqueue",
        {
            "payload": pa.array([group.encode() for group in groups], pa.binary()),
            "group": pa.array(groups, pa.utf8()),
        },
    )
    assert reply.error is None


def groups_of(got: list[Got]) -> list[str]:
    return [payload.decode() for one in got for payload in one.payloads]


def take(broker: BrokerFixture, consumer: RecordingConsumer, count: int) -> list[Got]:
    """Ask for so many messages, get them."""
    consumer.session.credit(count)
    return consumer.take_all()


def assert_shares(served: list[str], weights: dict[str, int]) -> None:
    """In every window each two groups differ by at most 1/wa + 1/wb of their weighted shares.

    That is so for all pairs if the largest (count - 1) / weight is not above the least
    (count + 1) / weight.
    """
    names = list(weights)
    took = np.array([[group == name for name in names] for group in served], dtype=np.int64)
    common = math.lcm(*weights.values())
    shares = np.array([common // weights[name] for name in names])
    for first in range(len(served)):
        counts = np.cumsum(took[first:], axis=0)
        least, most = ((counts - 1) * shares).max(axis=1), ((counts + 1) * shares).min(axis=1)
        assert (least <= most).all(), (first, counts[int((least > most).argmax())])


def test_a_hundred_of_one_group_do_not_block_the_few_of_others(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair")
    send(broker, ["big"] * 100 + ["small"] * 3 + ["tiny"])
    consumer = broker.consumer()
    served = groups_of(consumer.take_all())
    assert len(served) == 104
    assert sorted(served[:3]) == ["big", "small", "tiny"]
    assert served[:7].count("small") == 3
    assert_shares(served[:3], {"big": 1, "small": 1, "tiny": 1})
    assert set(served[7:]) == {"big"}


@pytest.mark.parametrize("credit", [1, 7, 200])
def test_every_window_has_its_shares__however_unequal_the_backlogs(
    make_broker: MakeBroker, credit: int
) -> None:
    weights = {"a": 5, "b": 3, "c": 1, "d": 1}
    broker = make_broker(kind="fair", weights={"a": 5, "b": 3})
    send(broker, ["a"] * 160 + ["b"] * 100 + ["c"] * 40 + ["d"] * 60)
    consumer = broker.consumer(credit=0)
    served: list[str] = []
    while len(served) < 150:
        served += groups_of(take(broker, consumer, credit))
    assert_shares(served[:150], weights)


def test_every_window_has_its_shares__very_unequal_weights(make_broker: MakeBroker) -> None:
    weights = {"a": 1_000, "b": 7, "c": 3, "d": 1}
    broker = make_broker(kind="fair", weights=weights)
    send(broker, ["a"] * 1_300 + ["b"] * 40 + ["c"] * 30 + ["d"] * 20)
    consumer = broker.consumer(credit=0)
    served = groups_of(take(broker, consumer, 1_250))
    assert_shares(served, weights)
    assert {group: served.count(group) > 0 for group in weights} == dict.fromkeys(weights, True)


def test_every_window_has_its_shares__unequal_weights_at_each_level(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(kind="fair", weights={"a": 20, "a.x": 50, "a.y": 3, "b.x": 9})
    send(broker, ["a.x"] * 400 + ["a.y"] * 60 + ["b.x"] * 60 + ["b.y"] * 40)
    consumer = broker.consumer(credit=0)
    served = groups_of(take(broker, consumer, 350))
    assert_shares([group.split(".")[0] for group in served], {"a": 20, "b": 1})
    assert_shares([group for group in served if group[0] == "a"], {"a.x": 50, "a.y": 3})
    assert_shares([group for group in served if group[0] == "b"], {"b.x": 9, "b.y": 1})


def test_each_group_keeps_its_own_order(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair")
    now_ms = broker.now_ms
    groups = [("x", "y", "z")[row % 7 % 3] for row in range(60)]
    broker.write(
        "enqueue",
        {
            "payload": pa.array([b"%d" % row for row in range(60)], pa.binary()),
            "group": pa.array(groups, pa.utf8()),
            # When they became due does not matter, once they are.
            "due": pa.array([now_ms - row * 37 % 11 for row in range(60)], pa.int64()),
        },
    )
    consumer = broker.consumer()
    served = [int(payload) for payload in consumer.payloads()]
    for group in "xyz":
        rows = [row for row in served if groups[row] == group]
        assert rows == sorted(rows)


def test_a_weight_that_is_changed_holds_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair")
    send(broker, ["a", "b"] * 100)
    consumer = broker.consumer(credit=0)
    before = groups_of(take(broker, consumer, 40))
    assert_shares(before, {"a": 1, "b": 1})
    broker.broker.alter_topic(TOPIC, {"weights": {"a": 4}})
    after = groups_of(take(broker, consumer, 50))
    assert_shares(after, {"a": 4, "b": 1})
    assert after.count("a") >= 39


def test_groups_within_groups_share_at_each_level(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair", weights={"a.x": 2})
    send(broker, ["a.x", "a.y", "b"] * 60)
    consumer = broker.consumer(credit=0)
    served = groups_of(take(broker, consumer, 80))
    assert_shares([group.split(".")[0] for group in served], {"a": 1, "b": 1})
    assert_shares([group for group in served if group != "b"], {"a.x": 2, "a.y": 1})


def test_a_cap_of_one_is_strict_order_of_each_group(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair", group_in_flight_max=1)
    send(broker, ["a"] * 3 + ["b"] * 2)
    consumer = broker.consumer()
    (first,) = consumer.take_all()
    assert sorted(first.payloads) == [b"a", b"b"]
    a, b = sorted(zip(first.ids, first.attempts, first.payloads, strict=True), key=lambda r: r[2])
    consumer.ack_rows([a[0]], [a[1]])
    assert groups_of(consumer.take_all()) == ["a"]
    consumer.ack_rows([b[0]], [b[1]])
    assert groups_of(consumer.take_all()) == ["b"]
    assert consumer.take_all() == []


def test_a_lease_that_ends_gives_its_place_under_the_cap_back(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="fair", group_in_flight_max=1, lease_ms=1_000)
    send(broker, ["a"] * 2)
    consumer = broker.consumer()
    (first,) = consumer.take_all()
    assert consumer.take_all() == []
    broker.advance(1_100)
    (again,) = consumer.take_all()
    assert again.ids == first.ids  # the same message, before the one behind it
    assert again.attempts == [2]


def test_a_group_that_was_away_neither_saved_up_turns_nor_pays_for_them(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(kind="fair")
    send(broker, ["busy"] * 200)
    consumer = broker.consumer(credit=0)
    take(broker, consumer, 60)
    send(broker, ["back"] * 50)
    served = groups_of(take(broker, consumer, 60))
    assert_shares(served, {"busy": 1, "back": 1})


def test_turns_go_on_after_a_restart_as_if_there_was_none(on_files: MakeBroker) -> None:
    broker = on_files(kind="fair", weights={"a": 3, "b": 2})
    send(broker, ["a"] * 90 + ["b"] * 90 + ["c"] * 90)
    consumer = broker.consumer(credit=0)
    served: list[str] = []
    for _ in range(4):
        got = take(broker, consumer, 11)
        served += groups_of(got)
        for one in got:
            consumer.ack(one)
        broker.restart()
        consumer = broker.consumer(credit=0)
    assert len(served) == 44
    assert_shares(served, {"a": 3, "b": 2, "c": 1})
