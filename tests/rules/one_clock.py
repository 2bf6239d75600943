"""What a node makes of the others' clocks where a test moves them all, by hours."""

from __future__ import annotations

from dataclasses import replace

from dejaqueue.clock import Clock
from dejaqueue.cluster.clocks import ClockComparison
from dejaqueue.cluster.members import Member
from dejaqueue.coordinator.interface import Fact
from dejaqueue.limits import INSTANT_MS_MAX
from dejaqueue.settings import ClockSettings


class OneClock(ClockComparison):
    """Finds that all agree, at once."""

    def judged(
        self, member: Member, facts: list[Fact], clock: Clock, settings: ClockSettings
    ) -> Member:
        return replace(member, comparing=False, apart=False, leaving=False, apart_us=0)

    @property
    def next_us(self) -> int:
        return INSTANT_MS_MAX * 1_000
