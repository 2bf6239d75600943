"""What the clocks of tests have in common: they trust their wall clock as the machine's does.

Room: testing.
See: clock.py, Discipline; virtual_clock.py and simulation/world.py, which say what time it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from dejaqueue.clock import Discipline


class DisciplinedClock(ABC):
    """The readings of a clock that follow from `now_us` and its discipline."""

    _discipline: Discipline

    @abstractmethod
    def now_us(self) -> int:
        """UTC microseconds, and `ahead_us`; never goes back."""

    def now_ms(self) -> int:
        """The same in milliseconds, rounded down."""
        return self.now_us() // 1_000

    def utc_us(self) -> int:
        """UTC microseconds, as far as the wall clock is believed."""
        return self.now_us() - self._discipline.ahead_us

    def utc_ms(self) -> int:
        """UTC milliseconds, as far as the wall clock is believed."""
        return self.utc_us() // 1_000

    @property
    def ahead_us(self) -> int:
        """How far `now_us` is ahead of UTC, microseconds."""
        return self._discipline.ahead_us

    @property
    def stepped_us(self) -> int:
        """By how much in all UTC was put right; ahead is positive."""
        return self._discipline.stepped_us

    @property
    def jump_us(self) -> int:
        """How far the wall clock is from what is believed, microseconds."""
        return self._discipline.jump_us

    @property
    def jump_count(self) -> int:
        """Jumps of the wall clock so far."""
        return self._discipline.jump_count
