"""Whom a partition asks and tells, and when again. Whole transactions: tests/rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from dejaqueue.broker.transactions import staging
from dejaqueue.broker.transactions.coordinator import Coordinator
from dejaqueue.broker.transactions.home import RETRY_MS
from dejaqueue.broker.transactions.record import Record
from dejaqueue.broker.transactions.staging import StagedWatch
from dejaqueue.engine.commands import Decide, Remember, Stage
from tests.unit.broker.cores import Served

FAMILY = "0123456789abcdef" * 2
LONG_AGO = 1


class Asked:
    """A coordinator that notes what it is asked, and answers when the test says so."""

    def __init__(self) -> None:
        self.resolves: list[tuple[str, Callable[[bool], None]]] = []
        self.tells: list[tuple[str, Callable[[bool], None]]] = []
        self.untold: list[str] = []

    def resolve(self, name: str, topic: str, partition: int, then: Callable[[bool], None]) -> None:
        assert (topic, partition) == ("t", 0)
        self.resolves.append((name, then))

    def tell_again(self, name: str, then: Callable[[bool], None]) -> None:
        self.tells.append((name, then))

    def take_untold(self, topic: str, partition: int) -> list[str]:
        taken, self.untold = self.untold, []
        return taken


class Watched:
    """A partition, its watch, and who is asked."""

    def __init__(self) -> None:
        self.served = Served()
        self.core = self.served.core
        self.asked = Asked()
        self.watch = StagedWatch(cast(Coordinator, self.asked))
        self.watch.loaded(self.core)
        self.watch.step(self.core)

    def stage(self, name: str, for_ms: int = 1_000) -> None:
        self.served.send([b"a"], stage=Stage(name, self.core.now_ms() + for_ms))

    def pass_ms(self, delay_ms: int) -> None:
        self.served.clock.advance(ms=delay_ms)
        self.watch.step(self.core)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def name(number: int, began_ms: int = LONG_AGO) -> str:
    return f"t/{number}/{began_ms}-1000-{FAMILY}"


def test_a_home_is_asked_when_the_time_is_over__not_before(watched: Watched) -> None:
    watched.stage(name(0))
    watched.pass_ms(999)
    assert watched.asked.resolves == []
    watched.pass_ms(1)
    assert [asked for asked, _ in watched.asked.resolves] == [name(0)]


def test_a_home_is_asked_after_a_while__as_what_came_late_may_be_decided(watched: Watched) -> None:
    began_ms = watched.core.now_ms()
    watched.stage(name(0, began_ms), for_ms=100_000)
    watched.pass_ms(0)
    asked_ms: list[int] = []
    for _ in range(100):
        watched.pass_ms(1_000)
        for _, then in watched.asked.resolves[len(asked_ms) :]:
            asked_ms.append(watched.core.now_ms() - began_ms)
            then(False)
    assert asked_ms == [5_000, 10_000, 20_000, 40_000, 80_000, 100_000]
    assert watched.watch.next_us(watched.core) == (watched.core.now_ms() + RETRY_MS) * 1_000


def test_whom_nobody_asks_about_any_more_is_forgotten(watched: Watched) -> None:
    for number in range(3):
        watched.stage(name(number), for_ms=60_000)
    watched.pass_ms(0)
    assert len(watched.watch._ask_ms) == 3
    for number in range(3):
        watched.core.apply(Decide(watched.core.now_ms(), name(number), commit=True))
    watched.pass_ms(0)
    assert watched.watch._ask_ms == {}


def test_nobody_is_asked_twice_before_the_answer(watched: Watched) -> None:
    watched.stage(name(0))
    watched.pass_ms(1_000)
    watched.pass_ms(100 * RETRY_MS)
    assert len(watched.asked.resolves) == 1
    assert watched.watch.next_us(watched.core) is None


def test_who_got_no_decision_asks_again_after_a_while(watched: Watched) -> None:
    watched.stage(name(0))
    watched.pass_ms(1_000)
    rings = len(watched.served.rings)
    watched.asked.resolves[0][1](False)
    assert len(watched.served.rings) == rings + 1
    watched.pass_ms(RETRY_MS - 1)
    assert len(watched.asked.resolves) == 1
    watched.pass_ms(1)
    assert len(watched.asked.resolves) == 2


def test_what_is_decided_is_not_asked_for(watched: Watched) -> None:
    watched.stage(name(0))
    watched.core.apply(Decide(watched.core.now_ms(), name(0), commit=True))
    watched.pass_ms(5_000)
    assert watched.asked.resolves == []


def test_a_partition_that_was_read_again_asks_and_tells_at_once(watched: Watched) -> None:
    watched.stage(name(0), for_ms=60_000)
    record = Record((("other", 3),)).to_text()
    now_ms = watched.core.now_ms()
    watched.core.apply(Remember(now_ms, name(1), commit=True, participants=record))
    watched.core.apply(Remember(now_ms, name(2, now_ms), commit=True))
    watched.pass_ms(1)
    assert (watched.asked.resolves, watched.asked.tells) == ([], [])
    watched.watch.loaded(watched.core)
    watched.watch.step(watched.core)
    assert [asked for asked, _ in watched.asked.resolves] == [name(0)]
    assert [told for told, _ in watched.asked.tells] == [name(1)]


def test_a_decision_is_told_until_everybody_heard(watched: Watched) -> None:
    watched.asked.untold = [name(0)]
    watched.pass_ms(0)
    assert watched.asked.tells == []
    watched.pass_ms(RETRY_MS)
    watched.asked.tells[0][1](False)
    watched.pass_ms(RETRY_MS)
    assert len(watched.asked.tells) == 2
    watched.asked.tells[1][1](True)
    assert watched.watch.next_us(watched.core) is None
    watched.pass_ms(100 * RETRY_MS)
    assert len(watched.asked.tells) == 2


def test_old_decisions_that_everybody_knows_are_forgotten__a_step_at_a_time(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "FORGET_MAX", 2)
    now_ms = watched.core.now_ms()
    for number in range(3):
        watched.core.apply(Remember(now_ms, name(number), commit=True))
    watched.core.apply(Remember(now_ms, name(9, now_ms), commit=False))
    watched.pass_ms(0)
    assert list(watched.core.engine.decisions) == [name(2), name(9, now_ms)]
    watched.pass_ms(0)
    assert list(watched.core.engine.decisions) == [name(9, now_ms)]


def test_a_decision_that_somebody_has_to_hear_stays(watched: Watched) -> None:
    record = Record((("other", 3),)).to_text()
    watched.core.apply(Remember(watched.core.now_ms(), name(0), commit=True, participants=record))
    watched.pass_ms(0)
    assert list(watched.core.engine.decisions) == [name(0)]
