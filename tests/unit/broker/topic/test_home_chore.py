"""When a shard asks its home, and what it does with the answer."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.broker.consumers.dispatch import Consumer, Dispatcher
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.home_chore import ANSWER_US, REPORT_US, SOON_US, HomeChore
from dejaqueue.errors import Unavailable
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import ConsumeStream

SHARD = "t=1-3"


class Shard:
    """One shard of partitions 1 and 4, whose home answers when it is told to."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.rings = 0
        self.dispatcher = Dispatcher(60_000_000, lambda _: True)
        self.core = PartitionCore(lambda: Topic("t", partitions=6), 1, self.clock, ring=self._ring)
        self.chore = HomeChore(SHARD, self.dispatcher, self, "s")  # type: ignore[arg-type]
        self.asked: list[dict[str, Any]] = []
        self.answers: list[Future[dict[str, Any]]] = []
        self.configure(exclusive=True)

    def _ring(self) -> None:
        self.rings += 1

    def configure(self, *, exclusive: bool) -> None:
        now_us = self.clock.now_us()
        self.dispatcher.configure(exclusive=exclusive, numbers=[1, 4], now_us=now_us, is_shard=True)

    def ask(self, shard: str, about: str, given: dict[str, Any]) -> Future[dict[str, Any]]:
        assert (shard, about) == (SHARD, "assignment")
        self.asked.append(given)
        self.answers.append(Future())
        return self.answers[-1]

    def come(self, name: str) -> Consumer:
        options = ConsumeStream(SHARD, consumer_id=name)
        return self.dispatcher.add(options, None, self.clock.now_us(), 0)  # type: ignore[arg-type]

    def answer(self, targets: dict[str, str] | None, *, is_settled: bool = True) -> None:
        self.answers[-1].set_result({"targets": targets, "is_settled": is_settled})

    def after(self, us: int) -> list[dict[str, Any]]:
        """What is asked so much later."""
        self.clock.advance(us=us)
        before = len(self.asked)
        self.chore.step(self.core)
        return self.asked[before:]


@pytest.fixture
def shard() -> Shard:
    return Shard()


def test_it_asks_when_consumers_come_and_keeps_to_the_answer(shard: Shard) -> None:
    assert shard.after(0) == []
    assert shard.chore.next_us(shard.core) is None
    one, two = shard.come("aa"), shard.come("bb")
    asked = {"subscription": "s", "partitions": 6, "consumers": ["aa", "bb"], "kept": {}}
    assert shard.after(0) == [asked]
    shard.answer({"1": "bb", "4": "aa"})
    assert shard.rings == 1
    taken = [shard.dispatcher._served(number, free=True) for number in (1, 4)]
    assert taken == [[two], [one]]
    assert shard.dispatcher.sharing() == (["aa", "bb"], {1: "bb", 4: "aa"})


def test_it_asks_again_now_and_then__and_soon_while_the_shards_differ(shard: Shard) -> None:
    shard.come("aa")
    shard.after(0)
    shard.answer(None, is_settled=False)
    assert shard.after(SOON_US - 1) == []
    assert len(shard.after(1)) == 1
    shard.answer({"1": "aa", "4": "aa"})
    assert shard.chore.next_us(shard.core) == shard.clock.now_us() + REPORT_US
    assert shard.after(REPORT_US - 1) == []
    [asked] = shard.after(1)
    assert asked["kept"] == {1: "aa", 4: "aa"}


def test_it_asks_at_once_when_somebody_comes_or_goes__one_question_at_a_time(shard: Shard) -> None:
    one = shard.come("aa")
    shard.after(0)
    shard.come("bb")
    assert shard.after(0) == []
    shard.answer({"1": "aa", "4": "aa"})
    assert [one["consumers"] for one in shard.after(0)] == [["aa", "bb"]]
    shard.answer({"1": "aa", "4": "bb"})
    shard.dispatcher.remove(one, shard.clock.now_us())
    assert [one["consumers"] for one in shard.after(0)] == [["bb"]]


def test_when_all_have_gone_it_says_so_once(shard: Shard) -> None:
    one = shard.come("aa")
    shard.after(0)
    shard.answer({"1": "aa", "4": "aa"})
    shard.dispatcher.remove(one, shard.clock.now_us())
    assert [one["consumers"] for one in shard.after(0)] == [[]]
    shard.answer({"1": "", "4": ""})
    assert shard.after(10 * REPORT_US) == []
    assert shard.chore.next_us(shard.core) is None


def test_a_home_that_fails_is_asked_again_soon(shard: Shard) -> None:
    shard.come("aa")
    shard.after(0)
    shard.answers[-1].set_exception(Unavailable("away", 50))
    assert shard.after(SOON_US - 1) == []
    assert len(shard.after(1)) == 1


def test_an_answer_that_comes_too_late_is_void(shard: Shard) -> None:
    shard.come("aa")
    shard.after(0)
    late = shard.answers[-1]
    assert shard.after(ANSWER_US - 1) == []
    assert len(shard.after(1)) == 1
    late.set_result({"targets": {"1": "aa", "4": "aa"}, "is_settled": True})
    assert shard.dispatcher.sharing() == (["aa"], {})
    shard.answer({"1": "aa", "4": ""})
    assert shard.dispatcher.sharing() == (["aa"], {1: "aa", 4: ""})


def test_a_topic_that_is_shared_asks_nobody(shard: Shard) -> None:
    shard.configure(exclusive=False)
    shard.come("aa")
    assert shard.after(REPORT_US) == []
    assert shard.chore.next_us(shard.core) is None
