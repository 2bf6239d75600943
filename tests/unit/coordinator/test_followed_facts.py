"""Covers: what is read again of facts that somebody follows, and when all of them are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from dejaqueue.coordinator.followed_facts import CHANGED_SHARE, FollowedFacts
from dejaqueue.coordinator.in_process import ProcessCoordinator, ProcessFacts
from dejaqueue.coordinator.interface import Fact
from dejaqueue.errors import Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock

COUNT = 2 * CHANGED_SHARE


class Asked(ProcessCoordinator):
    """Counts what is asked."""

    def __init__(self, facts: ProcessFacts) -> None:
        super().__init__(facts)
        self.asked: Counter[str] = Counter()
        self.before_answer: Callable[[], None] = lambda: None

    def get(self, key: str) -> Fact | None:
        self.asked["get"] += 1
        found = super().get(key)
        self.before_answer()
        return found

    def list(self, prefix: str) -> list[Fact]:
        self.asked["list"] += 1
        found = super().list(prefix)
        self.before_answer()
        return found


class Site:
    """Facts, somebody who follows them, and somebody who changes them. Bells ring at once."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.facts = ProcessFacts(self.clock, at=lambda _, call: call())
        self.other = self.facts.open()
        for number in range(COUNT):
            self.other.put(f"a/{number}", b"0")
        self.coordinator = self.facts.adopt(Asked(self.facts))
        self.parsed = self.rung = 0
        self.followed = FollowedFacts(self.coordinator, "a/", self._parse, self.clock, COUNT // 2)
        self.followed.list_ms = 10_000
        self.followed.open(self._ring)

    def _parse(self, fact: Fact) -> int:
        self.parsed += 1
        return int(fact.value)

    def _ring(self) -> None:
        self.rung += 1

    def asked(self) -> dict[str, int]:
        """Since this was last asked."""
        found = dict(self.coordinator.asked)
        self.coordinator.asked.clear()
        return found

    def read(self) -> dict[str, int]:
        return self.followed.read()


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def read(site: Site) -> Site:
    site.read()
    site.asked()
    return site


def test_all_is_listed_at_first__then_nothing_while_nothing_changes(site: Site) -> None:
    assert site.read() == {f"a/{number}": 0 for number in range(COUNT)}
    assert site.asked() == {"list": 1}
    assert len(site.read()) == COUNT
    assert (site.asked(), site.parsed) == ({}, COUNT)


def test_a_fact_that_changed_is_read_alone(read: Site) -> None:
    read.other.put("a/3", b"7")
    read.other.delete("a/4")
    assert read.rung == 2
    known = read.read()
    assert (known["a/3"], "a/4" in known, known["a/5"]) == (7, False, 0)
    assert read.asked() == {"get": 2}
    read.other.put("b/3", b"7")  # another prefix
    read.read()
    assert read.asked() == {}


def test_all_is_listed__if_much_has_changed_and_if_nobody_knows_what(read: Site) -> None:
    for number in range(COUNT // CHANGED_SHARE + 1):
        read.other.put(f"a/{number}", b"7")
    assert list(read.read().values()).count(7) == COUNT // CHANGED_SHARE + 1
    assert read.asked() == {"list": 1}
    read.coordinator.bells.ring()
    read.read()
    assert read.asked() == {"list": 1}


def test_all_is_listed_now_and_then__bells_or_not(read: Site) -> None:
    read.coordinator.cut()
    read.other.put("a/3", b"7")
    read.coordinator.is_cut = False  # and nobody tells what was missed
    assert read.read()["a/3"] == 0
    read.clock.advance(ms=10_000)
    assert read.read()["a/3"] == 7
    assert read.asked() == {"list": 1}


def test_few_are_listed_each_time(site: Site) -> None:
    for number in range(COUNT // 2 - 1, COUNT):
        site.other.delete(f"a/{number}")
    for _ in range(3):
        assert len(site.read()) == COUNT // 2 - 1
    assert site.asked() == {"list": 3}


def test_what_was_not_read_is_read_the_next_time(read: Site) -> None:
    read.other.put("a/3", b"7")
    read.coordinator.is_cut = True
    with pytest.raises(Unavailable):
        read.read()
    read.coordinator.is_cut = False
    assert read.read()["a/3"] == 7


def test_who_put_a_fact_knows_it_without_a_bell__and_a_later_one_stays(read: Site) -> None:
    read.followed.note(Fact("a/3", b"7", 1_000))
    read.followed.note(Fact("a/3", b"6", 999))
    assert read.read()["a/3"] == 7
    assert read.asked() == {}
    read.followed.look_again("a/3")
    assert read.read()["a/3"] == 0
    assert read.asked() == {"get": 1}


@pytest.mark.parametrize("doubts", [False, True])
def test_what_is_put_while_it_is_read_is_not_taken_back(read: Site, doubts: bool) -> None:
    def put() -> None:
        read.coordinator.before_answer = lambda: None
        stored = read.other.put("a/3", b"7")
        read.followed.note(Fact("a/3", b"7", stored))

    read.coordinator.before_answer = put
    if doubts:
        read.followed.doubt()
    else:
        read.followed.look_again("a/3")
    assert read.read()["a/3"] == 7


def test_a_revision_that_a_restored_server_gives_again_is_not_taken_for_the_old_one(
    read: Site,
) -> None:
    copy = read.facts.copy()
    first = read.other.put("a/3", b"7")
    read.read()
    read.facts.restore(copy)
    assert read.other.put("a/3", b"8") == first
    assert read.read()["a/3"] == 8
