"""Ephemeral subscriptions: when they end, and when they do not. The doors: test_subscriptions.py of
tests/integration, tests/unit/cli. Not covered: takeovers in a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.attendance import Attendance, Presence, ReportChore
from dejaqueue.errors import Unavailable
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.frames import SettleOp
from tests.patience import until
from tests.rules.broker_fixture import BrokerFixture

NOBODY, SOMEBODY = Presence(is_used=False, event_count=0), Presence(is_used=True, event_count=1)
ONE: dict[str, dict[str, Any]] = {"a": {"ephemeral_ms": 8_000}}


def test_only_time_in_which_it_was_looked_counts() -> None:
    attendance = Attendance()
    assert attendance.look(5_000, 10, NOBODY) == 0
    assert attendance.look(5_010, 10, NOBODY) == 10
    assert attendance.look(9_999_999, 10, NOBODY) == 30  # the machine stood still, or its clock
    assert attendance.look(9_000_000, 10, NOBODY) == 30
    assert attendance.look(9_000_005, 10, SOMEBODY) == 0
    gone = Presence(is_used=False, event_count=1)
    assert attendance.look(9_000_010, 10, gone) == 0
    assert attendance.look(9_000_017, 10, gone) == 7
    came_and_went = Presence(is_used=False, event_count=2)
    assert attendance.look(9_000_020, 10, came_and_went) == 0
    assert attendance.look(9_000_029, 10, came_and_went) == 9


def test_a_shard_tells_the_home_at_each_look__one_word_at_a_time() -> None:
    clock, said = VirtualClock(), list[bool]()
    there = SOMEBODY
    told: Future[object] = Future()

    def report(is_used: bool) -> Future[object]:
        said.append(is_used)
        return told

    chore = ReportChore(lambda: 8_000, lambda: there, report)
    core = PartitionCore(lambda: Topic("t"), 1, clock)

    def looks(ms: int = 500) -> list[bool]:
        clock.advance(ms=ms)
        before = len(said)
        chore.step(core)
        return said[before:]

    assert looks() == [True]
    assert looks() == []  # the home has not answered
    told.set_result({})
    there = Presence(is_used=False, event_count=1)
    assert looks() == [False]
    assert looks(100) == []  # it is not time yet
    there = Presence(is_used=False, event_count=2)  # somebody came and went
    assert looks() == [True]
    assert looks() == [False]
    assert chore.next_us(core) == clock.now_us() + 500_000


def is_there(fixture: BrokerFixture) -> bool:
    return "a" in fixture.broker.topic("t").subscriptions


def pass_by(fixture: BrokerFixture, ms: int) -> None:
    """Time goes by in steps, in each of which it is looked."""
    for _ in range(ms // 500):
        fixture.advance(500)


def ends(fixture: BrokerFixture) -> Callable[[], bool]:
    def ended() -> bool:
        fixture.advance(500)
        return not is_there(fixture)

    return ended


def stored(fixture: BrokerFixture) -> int:
    def count(core: Any) -> int:
        core.views.check()
        return sum(part.size for part in core.views.live_locators())

    runtime = fixture.broker.runtime("t")
    return sum(runtime.look(number, count).result(60) for number in runtime.partitions.numbers)


def test_it_ends_when_nobody_was_there_for_so_long__and_its_payloads_go(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path, subscriptions=ONE, unnamed=False, partitions=2)
    consumer = fixture.consumer(topic="t@a", credit=1)
    fixture.send([b"x"])
    fixture.send([b"y"])
    pass_by(fixture, 40_000)
    assert is_there(fixture)  # somebody consumes it, though nothing happens
    consumer.session.close(release=True)
    pass_by(fixture, 7_000)
    assert is_there(fixture)
    assert stored(fixture) == 2
    until(ends(fixture))
    assert fixture.broker.topic("t").subscriptions == {}
    counted = fixture.broker.runtime("t").counting.ended
    until(lambda: counted.value == 1)
    assert stored(fixture) == 0
    fixture.stop()


def test_what_is_in_hand_keeps_it(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path, subscriptions=ONE, lease_ms=60_000)
    fixture.send([b"x"])
    claimed = fixture.broker.call("claim", {"topic": "t@a", "partition": 0, "rows": 1})
    pass_by(fixture, 30_000)
    assert is_there(fixture)
    claims = {"0": [claimed["claim"]]}
    fixture.broker.call("ack_claims", {"topic": "t@a", "claims": claims})
    until(ends(fixture))
    fixture.stop()


def test_who_comes_now_and_then_keeps_it(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path, subscriptions=ONE)
    for _ in range(8):
        fixture.consumer(topic="t@a").session.close(release=True)
        pass_by(fixture, 6_000)
    assert is_there(fixture)
    until(ends(fixture))
    fixture.stop()


def test_nobody_has_to_come_at_all(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path)
    fixture.broker.create_topic(Topic("unused", subscriptions=ONE))
    fixture.broker.create_topic(Topic("later"))
    fixture.broker.alter_topic("later", {"subscriptions": ONE})
    left = {"unused", "later"}

    def ended() -> bool:
        fixture.advance(500)
        left.difference_update(n for n in [*left] if not fixture.broker.topic(n).subscriptions)
        return not left

    until(ended)
    assert not left
    fixture.stop()


def test_a_start_begins_to_count_anew__and_it_ends_then(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path, subscriptions=ONE, unnamed=False)
    fixture.send([b"x"])
    pass_by(fixture, 7_000)
    fixture.crash()
    pass_by(fixture, 7_000)
    assert is_there(fixture)
    until(ends(fixture))  # though nobody uses the topic
    assert stored(fixture) == 0
    fixture.stop()


def test_a_clock_that_jumps_ends_nothing(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path, subscriptions=ONE)
    fixture.consumer(topic="t@a").session.close(release=True)
    pass_by(fixture, 1_000)
    fixture.advance(3_600_000)
    assert is_there(fixture)
    pass_by(fixture, 2_000)
    assert is_there(fixture)
    until(ends(fixture))
    fixture.stop()


def test_who_lost_the_topic_cannot_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = BrokerFixture(tmp_path, subscriptions=ONE)
    fixture.send([b"x"])
    served = fixture.broker.runtime("t").subscription("a")
    asked: list[int] = []

    def refused(number: int, _function: object) -> Any:
        asked.append(number)
        raise Unavailable("another broker has it", 50)

    monkeypatch.setattr(served, "change", refused)

    def was_asked_twice() -> bool:
        fixture.advance(500)
        return len(asked) > 1

    until(was_asked_twice)  # it is tried again, and changes nothing
    assert is_there(fixture)
    monkeypatch.undo()
    until(ends(fixture))
    fixture.stop()


def test_it_may_become_one_and_be_one_no_more(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path, subscriptions=ONE)
    fixture.broker.alter_topic("t", {"subscriptions": {"a": {"ephemeral_ms": 0}}})
    pass_by(fixture, 20_000)
    assert is_there(fixture)
    fixture.broker.alter_topic("t", {"subscriptions": {"a": {"ephemeral_ms": 2_000}}})
    until(ends(fixture))
    fixture.stop()


def test_whoever_comes_while_it_ends_keeps_it(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path, subscriptions=ONE)
    fixture.send([b"x"])
    served = fixture.broker.runtime("t").subscription("a")
    consumer = fixture.consumer(topic="t@a")
    served._end_unattended()
    assert is_there(fixture)
    [got] = consumer.take_all()
    assert consumer.settle(SettleOp.ACK, partition=0, lease_id=got.lease_id).error is None
    fixture.stop()
