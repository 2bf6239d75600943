from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.cluster.members import PREFIX, Member, Membership, members_of
from dejaqueue.coordinator.in_process import ProcessCoordinator, ProcessFacts
from dejaqueue.coordinator.interface import Fact
from dejaqueue.errors import Locked, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock

LEASE_MS = 5_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def facts(clock: VirtualClock) -> Iterator[ProcessFacts]:
    made = ProcessFacts(clock, at=lambda instant_us, call: None)
    yield made
    made.close()


@pytest.fixture
def coordinator(facts: ProcessFacts) -> ProcessCoordinator:
    return facts.open()


def member(session: str = "s1") -> Member:
    return Member("a", session, "dejaq://a:1", "http://a:2", "0")


def test_a_member_is_seen_as_it_is(coordinator: ProcessCoordinator, clock: VirtualClock) -> None:
    Membership(coordinator, member(), LEASE_MS, clock).join()
    assert members_of(coordinator.list(PREFIX)) == {"a": member()}


def test_it_is_valid_for_four_fifths_of_the_lease(
    coordinator: ProcessCoordinator, clock: VirtualClock
) -> None:
    membership = Membership(coordinator, member(), LEASE_MS, clock)
    assert not membership.is_valid()
    membership.join()
    clock.advance(ms=LEASE_MS * 4 // 5 - 1)
    assert membership.is_valid()
    clock.advance(ms=1)
    assert not membership.is_valid()
    assert members_of(coordinator.list(PREFIX)) == {"a": member()}  # others wait a little more


def test_a_renewal_makes_it_valid_again(
    coordinator: ProcessCoordinator, clock: VirtualClock
) -> None:
    membership = Membership(coordinator, member(), LEASE_MS, clock)
    membership.join()
    clock.advance(ms=3_000)
    assert membership.renew()
    clock.advance(ms=3_000)
    assert membership.is_valid()


def test_who_was_forgotten_is_told(coordinator: ProcessCoordinator, clock: VirtualClock) -> None:
    membership = Membership(coordinator, member(), LEASE_MS, clock)
    membership.join()
    clock.advance(ms=LEASE_MS + 1)
    assert not membership.renew()
    assert not membership.is_valid()


def test_a_name_is_taken_until_it_is_forgotten(
    coordinator: ProcessCoordinator, clock: VirtualClock
) -> None:
    Membership(coordinator, member(), LEASE_MS, clock).join()
    second = Membership(coordinator, member("s2"), LEASE_MS, clock)
    with pytest.raises(Locked, match="node a is in the cluster already"):
        second.join()
    clock.advance(ms=LEASE_MS + 1)
    second.join()
    assert members_of(coordinator.list(PREFIX))["a"].session == "s2"


def test_joining_twice_is_joining(coordinator: ProcessCoordinator, clock: VirtualClock) -> None:
    membership = Membership(coordinator, member(), LEASE_MS, clock)
    membership.join()
    membership.join()
    assert membership.is_valid()


def test_who_finds_its_own_fact_and_then_does_not_joins_again(
    coordinator: ProcessCoordinator, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its first call was lost, and its fact vanished while it looked."""
    Membership(coordinator, member(), LEASE_MS, clock).join()
    again = Membership(coordinator, member(), LEASE_MS, clock)
    get = coordinator.get

    def slow(key: str) -> Fact | None:
        found = get(key)
        clock.advance(ms=LEASE_MS + 1)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(coordinator, "get", slow)
        with pytest.raises(Unavailable):
            again.join()
    again.join_within(LEASE_MS)
    assert again.is_valid()


def test_who_left_is_gone_at_once(coordinator: ProcessCoordinator, clock: VirtualClock) -> None:
    membership = Membership(coordinator, member(), LEASE_MS, clock)
    membership.join()
    membership.leave()
    assert not membership.is_valid()
    assert coordinator.list(PREFIX) == []
