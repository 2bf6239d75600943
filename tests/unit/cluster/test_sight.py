"""Covers: how often members and owners are listed, by how many there are, and when a round may
begin.

Not covered: what is read in between (tests/unit/coordinator/test_followed_facts.py).
"""

from __future__ import annotations

from dejaqueue.cluster.members import PREFIX as MEMBERS
from dejaqueue.cluster.members import Member
from dejaqueue.cluster.ownership import Owner, key_of
from dejaqueue.cluster.sight import OWNERS_LISTED_BELOW, REST_US_PER_SLOT, Sight
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.testing.virtual_clock import VirtualClock


class Waits(VirtualClock):
    """Time passes for whoever waits."""

    def wait_until(self, instant_us: int | None, wake: object) -> bool:
        assert instant_us is not None
        self.advance(us=max(0, instant_us - self.now_us()))
        return False


def seen(slots: int, members: int = 3) -> tuple[Sight, Waits]:
    clock = Waits()
    coordinator = ProcessFacts(clock, at=lambda _, call: call()).open()
    for number in range(members):
        member = Member(f"n{number}", "life", "u", "h", "v")
        coordinator.put(f"{MEMBERS}n{number}", member.to_bytes())
    for slot in range(slots):
        coordinator.put(key_of(slot), Owner("n0", "life", 1, 0).to_bytes())
    return Sight(coordinator, clock), clock


def test_members_are_told_by_key_and_owners_by_slot() -> None:
    sight, _ = seen(3)
    assert [fact.key for fact in sight.members()] == [f"{MEMBERS}n{number}" for number in range(3)]
    assert {slot: owner.node for slot, owner in sight.owners().items()} == dict.fromkeys(
        range(3), "n0"
    )


def test_owners_are_listed_the_more_seldom_the_more_is_listed() -> None:
    sight, _ = seen(300, members=50)
    sight.members()
    sight.owners()
    sight.members()
    assert sight.owners_facts.list_ms == 10_000
    assert sight._owners_list_ms(100 * 4_096 // 300) == 300 * (100 * 4_096 // 300) // 10


def test_rounds_are_apart__where_there_are_many_slots() -> None:
    sight, clock = seen(OWNERS_LISTED_BELOW - 1)
    sight.owners()
    began_us = clock.now_us()
    sight.rest(began_us)
    assert clock.now_us() == began_us
    sight, clock = seen(OWNERS_LISTED_BELOW)
    sight.owners()
    began_us = clock.now_us()
    sight.rest(began_us)
    assert clock.now_us() - began_us == OWNERS_LISTED_BELOW * REST_US_PER_SLOT
