"""The readings that the clocks of tests have in common."""

from __future__ import annotations

from dejaqueue.clock import Discipline
from dejaqueue.testing.disciplined import DisciplinedClock


class Stepped(DisciplinedClock):
    """Elapsed time and a wall clock, as a test sets them."""

    def __init__(self) -> None:
        self._discipline = Discipline(500_000, 30_000_000)
        self.wall_us = self.elapsed_us = 1_000_000

    def now_us(self) -> int:
        return self._discipline.at(self.wall_us, self.elapsed_us)


def test_a_clock_that_was_ahead_and_is_put_right_goes_on_and_its_utc_goes_back() -> None:
    clock = Stepped()
    clock.now_us()
    clock.wall_us += 3_600_000_000
    clock.now_us()
    clock.elapsed_us += 31_000_000
    clock.wall_us += 31_000_000
    ahead_us, before_us = clock.utc_us(), clock.now_us()
    assert (clock.jump_count, clock.stepped_us) == (1, 3_600_000_000)
    clock.wall_us -= 3_600_000_000
    clock.now_us()
    assert clock.jump_us == -3_600_000_000
    clock.elapsed_us += 31_000_000
    clock.wall_us += 31_000_000
    assert clock.now_us() >= before_us
    assert clock.utc_us() == clock.wall_us < ahead_us
    assert clock.ahead_us == clock.now_us() - clock.utc_us() > 0
    assert (clock.now_ms(), clock.utc_ms()) == (clock.now_us() // 1_000, clock.utc_us() // 1_000)
