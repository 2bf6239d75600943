"""One message at once: what is due, nothing else, and nobody waits.

Covered with the calls that use it: tests/unit/http/doq.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.broker.calls.at_once import Name, find, is_leased, lease_now
from dejaqueue.broker.consumers.gathering import delivery_batches
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.errors import BadRequest, Refused
from tests.rules.broker_fixture import TOPIC, BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    fixture = BrokerFixture()
    yield fixture
    fixture.stop()


def take(fixture: BrokerFixture, *, done: bool = False, lease_ms: int = 0) -> bytes | None:
    leased = fixture.broker.runtime(TOPIC).change(
        0, lambda place: lease_now(place, done=done, lease_ms=lease_ms)
    )
    push = leased.result(10)
    if push is None:
        return None
    found: bytes = delivery_batches([push])[0].column("payload")[0].as_py()
    return found


def test_what_is_due_is_leased_in_order_and_comes_back(fixture: BrokerFixture) -> None:
    now_ms = fixture.now_ms
    fixture.send([b"late", b"b", b"a"], [now_ms + 10, now_ms, now_ms - 1])
    assert [take(fixture, lease_ms=20) for _ in range(3)] == [b"a", b"b", None]
    fixture.advance(10)
    assert take(fixture) == b"late"
    fixture.advance(10)
    assert {take(fixture), take(fixture)} == {b"a", b"b"}
    assert take(fixture) is None


def test_what_is_done_at_once_is_gone(fixture: BrokerFixture) -> None:
    fixture.send([b"a"])
    take(fixture, done=True)
    counts = fixture.counts()
    assert (counts["scheduled"], counts["leased"], counts["acked"]) == (0, 0, 1)
    fixture.advance(1_000_000)
    assert take(fixture) is None


def test_looking_in_vain_leaves_no_trace(fixture: BrokerFixture) -> None:
    assert take(fixture) is None
    position = fixture.counts()["partitions"][0]["position"]
    assert [take(fixture) for _ in range(3)] == [None] * 3
    assert fixture.counts()["partitions"][0]["position"] == position


def test_an_exclusive_topic_is_left_to_its_consumers(fixture: BrokerFixture) -> None:
    fixture.broker.alter_topic(TOPIC, {"assignment": "exclusive"})

    def refused(place: PartitionCore) -> bool:
        with pytest.raises(Refused, match="exclusive"):
            lease_now(place)
        return True

    assert fixture.broker.runtime(TOPIC).change(0, refused).result(10)


def test_a_message_is_found_by_its_key_or_without_one_by_its_id(fixture: BrokerFixture) -> None:
    fixture.send([b"a", b"b"], keys=["", "k"])
    fixture.send([b"c"], keys=["0"])

    def found(place: PartitionCore) -> list[int | None]:
        names = [Name(0, ("x",)), Name(1, ("y",)), Name(9, ("k", "z")), Name(9, ("0",))]
        return [find(place, name) for name in names]

    look = fixture.broker.runtime(TOPIC).look
    assert look(0, found).result(10) == [0, None, 1, 2]
    with pytest.raises(BadRequest, match="one message"):
        look(0, lambda place: find(place, Name(0, ("0",)))).result(10)
    assert take(fixture) == b"a"
    assert look(0, lambda place: [is_leased(place, n) for n in (0, 1, 7)]).result(10) == [
        True,
        False,
        False,
    ]
    fixture.advance(30_000)
    assert not look(0, lambda place: is_leased(place, 0)).result(10)
