"""Attendance: whether anybody consumes an ephemeral subscription, which ends when nobody does.

Room: broker. Looks from the worker of the subscription's first partition; what it finds over is
ended by a thread that may wait.
Holds: only time in which it was looked counts, so that neither a clock that jumps nor a process
that stood still ends anything; a start, or another owner, begins to count anew. Who ends a
subscription has written an entry of the topic's journal before: who has lost the topic cannot.
See: subscription.py; subscriptions.EPHEMERAL; ADR 0071.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore

LOOK_US_MIN, LOOK_US_MAX = 50_000, 2_500_000
LOOKS = 16
"""In the time that a subscription outlives its consumers, it is looked so often."""


class Presence(NamedTuple):
    """Who is there.

    Attributes:
        is_used: somebody consumes, or has messages that are not settled.
        event_count: rises with each consumer that comes and each delivery.
    """

    is_used: bool
    event_count: int


class Attendance:
    """For how long nobody was there, from the first look on that found nobody.

    >>> attendance = Attendance()
    >>> attendance.look(0, 100, Presence(is_used=False, event_count=1))      # it begins
    0
    >>> attendance.look(100, 100, Presence(is_used=False, event_count=1))
    100
    >>> attendance.look(9_000, 100, Presence(is_used=False, event_count=1))  # it stood still
    300
    >>> attendance.look(9_100, 100, Presence(is_used=False, event_count=2))  # somebody was there
    0
    """

    def __init__(self) -> None:
        self._looked_us = 0
        self._event_count = -1
        self._absent_us: int | None = None

    def look(self, now_us: int, look_us: int, presence: Presence) -> int:
        """For how long nobody was there, µs.

        Args:
            look_us: how often it is meant to be looked; twice that counts at most.
        """
        passed_us = max(0, now_us - self._looked_us)
        if presence.is_used:
            self._absent_us = None
        elif self._absent_us is None or presence.event_count != self._event_count:
            self._absent_us = 0
        else:
            self._absent_us += min(passed_us, 2 * look_us)
        self._looked_us, self._event_count = now_us, presence.event_count
        return self._absent_us or 0


class AttendanceChore(Chore):
    """Watches over one ephemeral subscription.

    Args:
        ephemeral_ms: how long it outlives its consumers, as of now; 0 = it is not ephemeral.
        presence: who is there; does not wait.
        end: ends it if still nobody is there, later; must not wait. Asked again a time after that
            did not succeed.
    """

    def __init__(
        self,
        ephemeral_ms: Callable[[], int],
        presence: Callable[[], Presence],
        end: Callable[[], None],
    ) -> None:
        self._ephemeral_ms = ephemeral_ms
        self._presence = presence
        self._end = end
        self._attendance = Attendance()
        self._next_us = 0

    def loaded(self, core: PartitionCore) -> None:
        """The partition was read: until now nobody could be there."""
        self._attendance, self._next_us = Attendance(), 0

    def next_us(self, core: PartitionCore) -> int | None:
        """When to look again, clock µs; None = it is not ephemeral."""
        return self._next_us if self._ephemeral_ms() else None

    def step(self, core: PartitionCore) -> None:
        """Look, if it is time."""
        ephemeral_us, now_us = self._ephemeral_ms() * 1_000, core.clock.now_us()
        look_us = min(max(ephemeral_us // LOOKS, LOOK_US_MIN), LOOK_US_MAX)
        if not ephemeral_us or self._next_us - look_us <= now_us < self._next_us:
            return
        self._next_us = now_us + look_us
        if self._attendance.look(now_us, look_us, self._presence()) >= ephemeral_us:
            self._attendance = Attendance()
            self._end()
