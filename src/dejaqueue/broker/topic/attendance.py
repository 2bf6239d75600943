"""Attendance: whether anybody consumes an ephemeral subscription, which ends when nobody does.

Room: broker. Looks from the worker of the subscription's first partition; what it finds over is
ended by a thread that may wait.
Holds: only time in which it was looked counts, so that neither a clock that jumps nor a process
that stood still ends anything; a start, or another owner, begins to count anew. Who ends a
subscription has written an entry of the topic's journal before: who has lost the topic cannot. Of
a topic in shards the home ends it, and a shard that is not heard of may have consumers.
See: subscription.py; subscriptions.EPHEMERAL; ADR 0071.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore

LOOK_US_MIN, LOOK_US_MAX = 50_000, 2_500_000
LOOKS = 16
"""In the time that a subscription outlives its consumers, it is looked so often."""
REPORT_LOOKS, REPORT_US_MIN = 4, 1_000_000
"""What a shard said of its consumers holds for so many looks, for so long at least."""


def look_us(ephemeral_ms: int) -> int:
    """How often it is looked, µs."""
    return min(max(ephemeral_ms * 1_000 // LOOKS, LOOK_US_MIN), LOOK_US_MAX)


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


class ShardReports:
    """What the other shards of a topic say of the consumers that a subscription has there.

    Args:
        shards: their numbers.

    >>> reports = ShardReports([1])
    >>> reports.presence(0, 100)                        # nothing was heard of shard 1 yet
    Presence(is_used=True, event_count=0)
    >>> reports.report(1, is_used=True, now_us=10)
    >>> reports.report(1, is_used=False, now_us=20)
    >>> reports.presence(30, 100)
    Presence(is_used=False, event_count=1)
    >>> reports.presence(200, 100)
    Presence(is_used=True, event_count=1)
    """

    def __init__(self, shards: Iterable[int]) -> None:
        self._lock = threading.Lock()
        self._heard: dict[int, tuple[bool, int] | None] = dict.fromkeys(shards)
        self._event_count = 0

    def report(self, shard: int, *, is_used: bool, now_us: int) -> None:
        """Take in what a shard says."""
        with self._lock:
            self._heard[shard] = is_used, now_us
            self._event_count += is_used

    def presence(self, now_us: int, valid_us: int) -> Presence:
        """Who is there, as far as is known; a shard that said nothing for so long has somebody."""
        with self._lock:
            is_used = any(
                heard is None or heard[0] or now_us - heard[1] > valid_us
                for heard in self._heard.values()
            )
            return Presence(is_used, self._event_count)


class LookChore(Chore, ABC):
    """Looks now and then who consumes one subscription, if that is ephemeral.

    Args:
        ephemeral_ms: how long it outlives its consumers, as of now; 0 = it is not ephemeral.
        presence: who is there; does not wait.
    """

    def __init__(self, ephemeral_ms: Callable[[], int], presence: Callable[[], Presence]) -> None:
        self._ephemeral_ms = ephemeral_ms
        self._presence = presence
        self._next_us = 0

    def loaded(self, core: PartitionCore) -> None:
        """The partition was read: until now nobody could be there."""
        self._next_us = 0

    def next_us(self, core: PartitionCore) -> int | None:
        """When to look again, clock µs; None = it is not ephemeral."""
        return self._next_us if self._ephemeral_ms() else None

    def step(self, core: PartitionCore) -> None:
        """Look, if it is time."""
        ephemeral_ms, now_us = self._ephemeral_ms(), core.clock.now_us()
        wait_us = look_us(ephemeral_ms)
        if not ephemeral_ms or self._next_us - wait_us <= now_us < self._next_us:
            return
        self._next_us = now_us + wait_us
        self._look(now_us, ephemeral_ms)

    @abstractmethod
    def _look(self, now_us: int, ephemeral_ms: int) -> None:
        """It is time to look."""


class AttendanceChore(LookChore):
    """Watches over one ephemeral subscription, and has it ended.

    Args:
        ephemeral_ms, presence: as for LookChore.
        end: ends it if still nobody is there, later; must not wait. Asked again a time after that
            did not succeed.
    """

    def __init__(
        self,
        ephemeral_ms: Callable[[], int],
        presence: Callable[[], Presence],
        end: Callable[[], None],
    ) -> None:
        super().__init__(ephemeral_ms, presence)
        self._end = end
        self._attendance = Attendance()

    def loaded(self, core: PartitionCore) -> None:
        """As LookChore; begin to count anew."""
        super().loaded(core)
        self._attendance = Attendance()

    def _look(self, now_us: int, ephemeral_ms: int) -> None:
        absent_us = self._attendance.look(now_us, look_us(ephemeral_ms), self._presence())
        if absent_us >= ephemeral_ms * 1_000:
            self._attendance = Attendance()
            self._end()


class ReportChore(LookChore):
    """Tells the home of a topic in shards who consumes an ephemeral subscription at another shard.

    Args:
        ephemeral_ms, presence: as for LookChore.
        report: tells whether anybody was there since it was told last; must not wait.
    """

    def __init__(
        self,
        ephemeral_ms: Callable[[], int],
        presence: Callable[[], Presence],
        report: Callable[[bool], Future[Any]],
    ) -> None:
        super().__init__(ephemeral_ms, presence)
        self._report = report
        self._told: Future[Any] | None = None
        self._event_count = -1

    def _look(self, now_us: int, ephemeral_ms: int) -> None:
        if self._told is not None and not self._told.done():
            return  # a home that hangs is told by what it hears next
        presence = self._presence()
        self._told = self._report(presence.is_used or presence.event_count != self._event_count)
        self._event_count = presence.event_count
