"""What one broker sees of members and owners: read again in each round, as far as it has changed.

Room: cluster. One thread reads, that of the rounds.
Holds: a broker whose own fact or claim has just changed sees it so without a bell; a claim that was
refused, and a fence, have what is known looked at again.
See: coordinator/followed_facts.py; node.py, whose rounds go by this; docs/adr/0082.
"""

from __future__ import annotations

from collections.abc import Callable

from dejaqueue.clock import Clock, Wake
from dejaqueue.cluster import members, ownership
from dejaqueue.cluster.ownership import Owner
from dejaqueue.coordinator.followed_facts import FollowedFacts
from dejaqueue.coordinator.interface import Coordinator, Fact, Watch

MEMBERS_LIST_MS = 1_000
OWNERS_LIST_MS_MIN = 10_000
"""Owners are listed again at least so often, bells or not, while they are few …"""
LISTED_PER_SECOND = 10_000
"""… and so that all brokers together list no more facts than this a second. Both, and members,
more seldom where requests are paid for (`Coordinator.request_weight`)."""
REST_US_PER_SLOT = 25
"""So long for each slot are rounds apart at least, where owners are not listed in each: 100 ms of
4,096. While slots change hands bells never cease, and each round goes over all slots."""
MEMBERS_LISTED_BELOW, OWNERS_LISTED_BELOW = 32, 256
"""Where there are fewer facts all are listed in each round: that is one small call. Not where
requests are paid for: a round in which no bell rang asks nothing there."""


class Sight:
    """Members and owners, as they are known here.

    Args:
        clock: elapsed time.

    Attributes:
        owners_facts: for who claims and releases.
    """

    def __init__(self, coordinator: Coordinator, clock: Clock) -> None:
        self._clock, self._weight = clock, coordinator.request_weight
        is_free = self._weight == 1
        members_below = MEMBERS_LISTED_BELOW if is_free else 0
        owners_below = OWNERS_LISTED_BELOW if is_free else 0
        self._members: FollowedFacts[Fact] = FollowedFacts(
            coordinator, members.PREFIX, lambda fact: fact, clock, members_below
        )
        self._members.list_ms = MEMBERS_LIST_MS * self._weight
        self.owners_facts: FollowedFacts[tuple[int, Owner]] = FollowedFacts(
            coordinator, ownership.PREFIX, ownership.owner_of, clock, owners_below
        )

    def open(self, on_change: Callable[[], None]) -> list[Watch]:
        """Hear of changes from now on. Raises Unavailable."""
        return [self._members.open(on_change), self.owners_facts.open(on_change)]

    def members(self) -> list[Fact]:
        """Their facts, by key. Raises Unavailable."""
        facts = self._members.read()
        self.owners_facts.list_ms = self._owners_list_ms(len(facts))
        return [facts[key] for key in sorted(facts)]

    def owners(self) -> dict[int, Owner]:
        """By slot; a copy. Raises Unavailable."""
        return dict(self.owners_facts.read().values())

    def rest(self, began_us: int) -> None:
        """Return when the next round may begin after one that began then."""
        count = self.owners_facts.count
        if count >= OWNERS_LISTED_BELOW:
            self._clock.wait_until(began_us + count * REST_US_PER_SLOT, Wake())

    def doubt(self) -> None:
        """Something that is known here was wrong: read all of it."""
        self._members.doubt()
        self.owners_facts.doubt()

    def _owners_list_ms(self, member_count: int) -> int:
        listed = self.owners_facts.count * member_count
        return max(OWNERS_LIST_MS_MIN, listed * 1_000 // LISTED_PER_SECOND) * self._weight
