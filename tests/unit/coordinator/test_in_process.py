"""Facts of one process: shared, on a clock that the test owns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.interface import Conflict
from dejaqueue.errors import Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def facts(clock: VirtualClock) -> Iterator[ProcessFacts]:
    shared = ProcessFacts(clock)
    yield shared
    shared.close()


def test_two_see_the_same_and_one_of_them_wins(facts: ProcessFacts) -> None:
    first, second = facts.open(), facts.open()
    revision = first.put("owner/a/0", b"one", 0)
    with pytest.raises(Conflict):
        second.put("owner/a/0", b"two", 0)
    found = second.get("owner/a/0")
    assert found is not None
    assert (found.value, found.revision) == (b"one", revision)


def test_a_fact_lives_to_the_last_microsecond_of_its_ttl(
    facts: ProcessFacts, clock: VirtualClock
) -> None:
    first, second = facts.open(), facts.open()
    first.put("member/a", b"", ttl_ms=1_000)
    clock.advance(us=999_999)
    assert first.renew("member/a")
    clock.advance(us=999_999)
    assert second.get("member/a") is not None
    clock.advance(us=1)
    assert second.get("member/a") is None
    assert not first.renew("member/a")


def test_vanishing_rings_without_anybody_asking(facts: ProcessFacts, clock: VirtualClock) -> None:
    first, second = facts.open(), facts.open()
    first.put("member/a", b"", ttl_ms=1_000)
    rung = threading.Event()
    second.watch("member/", rung.set)
    clock.advance(ms=600)
    first.renew("member/a")
    clock.advance(ms=600)
    assert second.get("member/a") is not None
    rung.clear()
    clock.advance(ms=400)
    assert rung.wait(10)


def test_who_did_not_put_it_does_not_renew_it(facts: ProcessFacts, clock: VirtualClock) -> None:
    first, second = facts.open(), facts.open()
    first.put("owner/a/0", b"one", ttl_ms=1_000)
    clock.advance(ms=1_000)
    second.put("owner/a/0", b"two", 0, ttl_ms=1_000)
    assert not first.renew("owner/a/0")
    assert second.renew("owner/a/0")


def test_the_simulator_decides_when_a_bell_rings(clock: VirtualClock) -> None:
    planned: list[tuple[int, Callable[[], None]]] = []
    facts = ProcessFacts(clock, lambda instant_us, call: planned.append((instant_us, call)))
    coordinator = facts.open()
    rung: list[str] = []
    coordinator.watch("member/", lambda: rung.append("rung"))
    coordinator.put("member/a", b"", ttl_ms=1_000)
    assert rung == []
    for instant_us, call in sorted(planned, key=lambda plan: plan[0]):
        clock.advance(us=instant_us - clock.now_us())
        call()
    assert rung == ["rung"]
    assert planned[-1][0] == clock.now_us()
    planned.pop()[1]()
    assert rung == ["rung", "rung"]
    assert coordinator.get("member/a") is None


def test_cut_off_it_hears_nothing_and_then_of_everything(facts: ProcessFacts) -> None:
    first, second = facts.open(), facts.open()
    rung = threading.Event()
    second.watch("", rung.set)
    second.cut()
    first.put("a", b"1")
    with pytest.raises(Unavailable):
        second.get("a")
    assert not rung.is_set()
    second.mend()
    assert rung.wait(10)
    assert second.get("a") is not None


def test_a_lost_answer_hides_what_was_done(facts: ProcessFacts) -> None:
    coordinator = facts.open()
    coordinator.answers_lost = 1
    with pytest.raises(Unavailable):
        coordinator.put("a", b"1", 0)
    found = coordinator.get("a")
    assert found is not None
    assert found.value == b"1"
