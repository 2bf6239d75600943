"""Covers: what one broker can tell of the clocks of the others, and whom it takes for right.

Not covered: what a node does about it (tests/cluster/test_clocks.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from dejaqueue.cluster.clocks import (
    EXCHANGE_MS_MIN,
    PREFIX,
    UNSURE_MS_MAX,
    Bounds,
    ClockComparison,
)
from dejaqueue.cluster.members import PREFIX as MEMBERS
from dejaqueue.cluster.members import Member, Membership
from dejaqueue.coordinator.in_process import ProcessCoordinator, ProcessFacts
from dejaqueue.settings import ClockSettings
from dejaqueue.testing.virtual_clock import VirtualClock

LEASE_MS = 5_000
LIMIT_US = 500_000
HOUR_MS = 3_600_000


class Brokers:
    """Brokers that look at each other's clocks; their elapsed time is one."""

    def __init__(self) -> None:
        self.elapsed = VirtualClock()
        self.facts = ProcessFacts(self.elapsed, at=lambda instant_us, call: None)
        self.clocks: dict[str, VirtualClock] = {}
        self.comparisons: dict[str, ClockComparison] = {}

    def join(self, name: str, ahead_ms: int = 0) -> ClockComparison:
        start_ms = self.elapsed.now_ms() + ahead_ms
        self.clocks[name] = VirtualClock(start_ms)
        made = ClockComparison(name, self.facts.open(), self.elapsed, LEASE_MS)
        self.comparisons[name] = made
        made.look("s", self.clocks[name])
        return made

    def go_on(self, seconds: int) -> None:
        """Time passes; each goes its rounds, one after the other."""
        for _ in range(seconds * 10):
            self.elapsed.advance(ms=100)
            for name, clock in self.clocks.items():
                clock.advance(ms=100)
                self.comparisons[name].look("s", clock)
                self.apart_us(name)

    def apart_us(self, name: str) -> int:
        joined = {name: place for place, name in enumerate(self.comparisons)}
        return self.comparisons[name].apart_us(joined, LIMIT_US)


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    made = Brokers()
    yield made
    made.facts.close()


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS, 6_000, -6_000])
def test_who_comes_with_another_clock_knows_it_at_once(brokers: Brokers, ahead_ms: int) -> None:
    brokers.join("a")
    brokers.join("b")
    brokers.go_on(1)
    brokers.join("c", ahead_ms)
    assert 0 < brokers.apart_us("c") * (1 if ahead_ms > 0 else -1) <= abs(ahead_ms) * 1_000
    assert brokers.apart_us("a") == brokers.apart_us("b") == 0


def test_who_knows_nobody_that_agrees_looks_often_until_it_knows_them_well(
    brokers: Brokers,
) -> None:
    """So that it serves again at its next look when its clock was put right."""
    brokers.join("a")
    late = brokers.join("b", HOUR_MS)
    brokers.go_on(3)
    known = late.bounds()["a"]
    assert known.most_us - known.least_us <= UNSURE_MS_MAX * 1_000 + 100_000
    assert brokers.apart_us("b") > 0
    brokers.go_on(1)
    usual_us = EXCHANGE_MS_MIN * 1_000
    looks = set()
    for _ in range(100):
        brokers.go_on(1)
        looks.add(late.next_us)
    apart = [after - before for before, after in pairwise(sorted(looks))]
    assert min(apart) >= usual_us
    brokers.clocks["b"] = VirtualClock(brokers.elapsed.now_ms())
    brokers.go_on(2)
    assert brokers.apart_us("b") == 0


@pytest.mark.parametrize("ahead_ms", [900, -900])
def test_a_second_is_known_within_five_seconds(brokers: Brokers, ahead_ms: int) -> None:
    for name in ("a", "b"):
        brokers.join(name)
    brokers.join("c", ahead_ms)
    brokers.go_on(5)
    assert 500_000 < abs(brokers.apart_us("c")) <= 900_000
    assert brokers.apart_us("a") == brokers.apart_us("b") == 0
    seen = brokers.comparisons["a"].bounds()["c"]
    assert seen.least_us <= ahead_ms * 1_000 <= seen.most_us


def test_clocks_that_are_near_agree(brokers: Brokers) -> None:
    for name, ahead_ms in (("a", 0), ("b", 300), ("c", -150)):
        brokers.join(name, ahead_ms)
    brokers.go_on(30)
    assert [brokers.apart_us(name) for name in "abc"] == [0, 0, 0]


def test_of_two_the_first_is_right(brokers: Brokers) -> None:
    brokers.join("a", HOUR_MS)
    brokers.join("b")
    brokers.go_on(3)
    assert brokers.apart_us("a") == 0
    assert brokers.apart_us("b") < -3_000_000_000


def test_who_comes_back_with_another_clock_was_not_there_first(brokers: Brokers) -> None:
    """What its earlier life said of itself is still there for as long as its lease."""
    store = brokers.facts.open()
    lives = {name: Member(name, session, "", "", "") for name, session in (("a", "s"), ("b", "s"))}
    for name, member in lives.items():
        brokers.join(name)
        store.put(MEMBERS + name, member.to_bytes())
    brokers.go_on(3)
    again = replace(lives["a"], session="next")
    there = store.list(MEMBERS)
    comparison = ClockComparison("a", store, brokers.elapsed, LEASE_MS)
    comparison.look("next", VirtualClock(brokers.elapsed.now_ms() + 24 * HOUR_MS))
    assert comparison.apart_us(comparison.joined(there, again), LIMIT_US) > 0
    del brokers.clocks["a"], brokers.comparisons["a"]
    brokers.go_on(3)
    other = brokers.comparisons["b"]
    assert other.apart_us(other.joined(there, lives["b"]), LIMIT_US) == 0


@pytest.mark.parametrize("ahead_ms", [0, 3_000, -3_000])
def test_who_comes_knows_its_clock_within_two_seconds__or_compares_until_then(
    brokers: Brokers, ahead_ms: int
) -> None:
    store = brokers.facts.open()
    members: dict[str, Membership] = {}

    def judged(name: str, member: Member) -> Member:
        comparison, clock = brokers.comparisons[name], brokers.clocks[name]
        return comparison.judged(member, store.list(MEMBERS), clock, ClockSettings())

    def join(name: str, ahead_ms: int) -> None:
        brokers.clocks[name] = VirtualClock(brokers.elapsed.now_ms() + ahead_ms)
        made = ClockComparison(name, brokers.facts.open(), brokers.elapsed, LEASE_MS)
        brokers.comparisons[name] = made
        made.begin()
        member = judged(name, Member(name, f"s-{name}", "", "", "", comparing=True))
        members[name] = Membership(store, member, LEASE_MS, brokers.elapsed)
        members[name].join()

    def go_on() -> None:
        brokers.elapsed.advance(ms=100)
        for name, membership in members.items():
            brokers.clocks[name].advance(ms=100)
            membership.change(judged(name, membership.member))

    join("a", 0)
    go_on()
    assert not members["a"].member.comparing, "nobody else is there"
    join("b", ahead_ms)
    looks = 0
    while (comes := members["b"].member).comparing:
        assert (comes.apart, comes.leaving) == (False, False)
        go_on()
        looks += 1
    assert looks <= 20
    assert looks >= 2 or ahead_ms < 0, "a stamp older than this one tells at once who is behind"
    assert comes.apart is comes.leaving is (ahead_ms != 0)
    assert comes.takes is (ahead_ms == 0)
    assert members["a"].member.takes


class Joining:
    """Brokers that are members, and go their rounds."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._store = brokers.facts.open()
        self.members: dict[str, Membership] = {}

    def join(self, name: str, ahead_ms: int = 0, place: int = 0) -> None:
        brokers = self._brokers
        if name not in brokers.comparisons:
            brokers.clocks[name] = VirtualClock(brokers.elapsed.now_ms() + ahead_ms)
            made = ClockComparison(name, brokers.facts.open(), brokers.elapsed, LEASE_MS)
            brokers.comparisons[name] = made
        brokers.comparisons[name].begin()
        session = f"{name}-{brokers.elapsed.now_ms()}"
        member = Member(name, session, "", "", "", comparing=True, place=place)
        self.members[name] = Membership(
            self._store, self._judged(member), LEASE_MS, brokers.elapsed
        )
        self.members[name].join()

    def _judged(self, member: Member) -> Member:
        comparison, clock = (
            self._brokers.comparisons[member.node],
            self._brokers.clocks[member.node],
        )
        return comparison.judged(member, self._store.list(MEMBERS), clock, ClockSettings())

    def go_on(self, ms: int) -> None:
        for _ in range(ms // 100):
            self._brokers.elapsed.advance(ms=100)
            for name, membership in self.members.items():
                self._brokers.clocks[name].advance(ms=100)
                membership.renew()
                membership.change(self._judged(membership.member))

    def end(self, name: str) -> int:
        """Its lease is over; the process lives, if it comes back."""
        membership = self.members.pop(name)
        self._store.delete(membership.key)
        return membership.place

    def die(self, name: str) -> None:
        self.end(name)
        del self._brokers.comparisons[name], self._brokers.clocks[name]

    def take(self) -> set[str]:
        return {name for name, one in self.members.items() if one.member.takes}


@pytest.mark.parametrize("back", ["a", "ab"])
@pytest.mark.parametrize("has_died", [False, True], ids=["lease-over", "died"])
def test_the_first_one_that_is_back_after_all_were_away_is_not_believed_alone(
    brokers: Brokers, back: str, has_died: bool
) -> None:
    joining = Joining(brokers)
    for name in "abc":
        joining.join(name)
        joining.go_on(3_000)
    assert joining.take() == {"a", "b", "c"}
    places = {name: joining.end(name) for name in "ab"}
    joining.die("c")
    if has_died:
        for name in "ab":
            del brokers.comparisons[name], brokers.clocks[name]
            places[name] = 0
    joining.join("c", 24 * HOUR_MS)
    joining.go_on(500)
    for name in back:
        assert joining.take() <= {"a"}
        joining.join(name, place=places[name])
        joining.go_on(500)
    joining.go_on(5_000)
    if has_died and back == "a":
        assert joining.take() == {"c"}, "of two that are new the first one is believed"
    else:
        assert joining.take() == set(back)


def test_who_is_alone_where_others_were_takes_after_five_seconds(brokers: Brokers) -> None:
    joining = Joining(brokers)
    joining.join("a")
    joining.join("b")
    joining.go_on(3_000)
    for name in "ab":
        joining.die(name)
    joining.join("a")
    joining.go_on(LEASE_MS - 500)
    assert joining.take() == set()
    joining.go_on(1_000)
    assert joining.take() == {"a"}


def test_who_was_there_first_stays_so__whatever_it_says_of_itself_later(brokers: Brokers) -> None:
    store = brokers.facts.open()
    memberships = [
        Membership(store, Member(name, "s", "", "", ""), LEASE_MS, brokers.elapsed) for name in "ab"
    ]
    for one in memberships:
        one.join()
    memberships[0].change(replace(memberships[0].member, short=True))
    joined = brokers.join("a").joined(store.list(MEMBERS), memberships[0].member)
    assert joined["a"] < joined["b"]


def test_most_are_right__though_the_first_is_not(brokers: Brokers) -> None:
    for name, ahead_ms in (("a", HOUR_MS), ("b", 0), ("c", 0)):
        brokers.join(name, ahead_ms)
    brokers.go_on(3)
    assert brokers.apart_us("a") > 3_000_000_000
    assert brokers.apart_us("b") == brokers.apart_us("c") == 0


def test_who_was_wrong_stays_so_when_the_others_are_gone__and_is_right_once_put_right(
    brokers: Brokers,
) -> None:
    brokers.join("a")
    late = brokers.join("b", HOUR_MS)
    assert brokers.apart_us("b") > 0
    assert late.apart_us({"b": 2}, LIMIT_US) > 0
    brokers.clocks["b"].jump(ms=-HOUR_MS)
    brokers.go_on(33)
    assert brokers.clocks["b"].stepped_us == -HOUR_MS * 1_000
    assert brokers.apart_us("b") == 0


def test_what_comes_late_through_the_coordinator_is_no_clock_that_is_behind(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.join("a")
    brokers.join("b")
    brokers.go_on(20)
    slow = brokers.comparisons["a"]
    put = ProcessCoordinator.put

    def put_late(self: ProcessCoordinator, key: str, value: bytes, *rest: Any, **more: Any) -> int:
        if key == f"{PREFIX}a":  # the others look meanwhile, and see nothing of it yet
            for _ in range(30):
                brokers.elapsed.advance(ms=100)
                for clock in brokers.clocks.values():
                    clock.advance(ms=100)
                brokers.comparisons["b"].look("s", brokers.clocks["b"])
        return put(self, key, value, *rest, **more)

    monkeypatch.setattr(ProcessCoordinator, "put", put_late)
    for _ in range(5):
        brokers.elapsed.advance(ms=2_000)
        for clock in brokers.clocks.values():
            clock.advance(ms=2_000)
        slow.look("s", brokers.clocks["a"])
        brokers.comparisons["b"].look("s", brokers.clocks["b"])
        assert brokers.apart_us("a") == brokers.apart_us("b") == 0


def test_bounds_that_contradict_each_other_are_replaced() -> None:
    old = Bounds(900_000, 1_000_000, at_us=0)
    assert old.narrowed(Bounds(-50_000, 800_000, 0)) == Bounds(-50_000, 800_000, 0)
    assert old.narrowed(Bounds(0, 950_000, 1_000_000)) == Bounds(898_000, 950_000, 1_000_000)


def test_what_an_operator_sees(brokers: Brokers) -> None:
    first = brokers.join("a")
    brokers.join("b", HOUR_MS)
    brokers.go_on(3)
    member = Member("b", "s", "", "", "", apart=True)
    shown = first.described(member)
    assert int(str(shown["ahead_ms_min"])) <= HOUR_MS <= int(str(shown["ahead_ms_max"]))
    assert shown["apart"] is True
    assert first.described(Member("z", "s", "", "", ""))["ahead_ms_min"] is None
    first.forget()
    assert [fact.key for fact in brokers.facts.find(PREFIX)] == [f"{PREFIX}b"]
