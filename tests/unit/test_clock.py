"""Covers: the system clock never goes back, jumps are not believed at once, waits end by bell or by
instant, no ring is lost.

Not covered: the virtual clock (tests/unit/testing/).
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading

import pytest

from dejaqueue.clock import Discipline, Jump, SystemClock, Wake, is_kept


def test_the_clock_never_goes_back__when_the_wall_does(monkeypatch: pytest.MonkeyPatch) -> None:
    walls = [5_000_000]
    monkeypatch.setattr("dejaqueue.clock.time.time_ns", lambda: walls[-1])
    system = SystemClock()
    seen = [system.now_us()]
    for wall in (4_000_000, 6_000_000):
        walls.append(wall)
        seen.append(system.now_us())
    assert seen == [5_000, 5_000, 6_000]


@pytest.mark.parametrize(
    ("answer", "kept"), [(0, True), (1, True), (4, True), (5, False), (-1, None)]
)
def test_the_kernel_says_whether_the_clock_is_kept__a_refusal_says_nothing(
    answer: int, kept: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 to 4 are about leap seconds (man adjtimex)."""
    asked: list[bytes] = []

    def adjtimex(timex: ctypes.Array[ctypes.c_char]) -> int:
        asked.append(timex.raw)
        return answer

    monkeypatch.setattr("dejaqueue.operating_system._adjtimex", adjtimex)
    assert is_kept() is kept
    assert set(b"".join(asked)) == {0}, "nothing is set"


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux alone")
@pytest.mark.may_skip
def test_the_kernel_of_this_machine_can_be_asked() -> None:
    code = "from dejaqueue import clock, operating_system as system; "
    code += "assert system._adjtimex is not None; print(clock.is_kept())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() in {"True", "False", "None"}


def test_milliseconds_are_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejaqueue.clock.time.time_ns", lambda: 1_999_999)
    assert SystemClock().now_ms() == 1


def test_a_past_instant_ends_the_wait_at_once() -> None:
    assert SystemClock().wait_until(0, Wake()) is False


def test_a_ring_before_the_wait_ends_it_and_is_used_up() -> None:
    system, wake = SystemClock(), Wake()
    wake.ring()
    wake.ring()
    assert system.wait_until(None, wake) is True
    assert system.wait_until(0, wake) is False


def test_a_cleared_bell_is_not_heard() -> None:
    wake = Wake()
    wake.ring()
    wake.clear()
    assert SystemClock().wait_until(0, wake) is False


def test_a_ring_from_another_thread_ends_an_endless_wait() -> None:
    wake = Wake()
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(SystemClock().wait_until(None, wake)))
    waiter.start()
    wake.ring()
    waiter.join(timeout=30)
    assert answers == [True]


def test_a_wait_does_not_end_before_its_instant() -> None:
    system, wake = SystemClock(), Wake()
    until_us = system.now_us() + 3_000
    assert system.wait_until(until_us, wake) is False
    assert system.now_us() >= until_us


# --- jumps of the wall clock ----------------------------------------------------------------------

HOUR_US = 3_600_000_000


def a_discipline() -> tuple[Discipline, list[Jump]]:
    told: list[Jump] = []
    return Discipline(jump_us=500_000, grace_us=30_000_000, tell=told.append), told


def test_small_differences_are_followed__ahead_at_once_and_back_by_standing_still() -> None:
    discipline, told = a_discipline()
    assert discipline.at(1_000_000, 0) == 1_000_000
    assert discipline.at(1_350_000, 100_000) == 1_350_000
    assert discipline.at(1_100_000, 150_000) == 1_350_000
    assert discipline.at(1_351_000, 401_000) == 1_351_000
    assert told == []
    assert discipline.ahead_us == 0


@pytest.mark.parametrize("by_us", [HOUR_US, -HOUR_US, 600_000, -600_000])
def test_a_jump_is_not_believed_at_once(by_us: int) -> None:
    discipline, told = a_discipline()
    discipline.at(HOUR_US * 9, 0)
    assert discipline.at(HOUR_US * 9 + by_us, 10) == HOUR_US * 9 + 10
    assert discipline.at(HOUR_US * 9 + by_us + 29_999_999, 29_999_999) == HOUR_US * 9 + 29_999_999
    assert discipline.jump_us == by_us
    assert discipline.at(HOUR_US * 9 + 30_000_000, 30_000_000) == HOUR_US * 9 + 30_000_000
    assert [jump.state for jump in told] == ["seen", "over"]
    assert (discipline.jump_us, discipline.jump_count, discipline.stepped_us) == (0, 1, 0)


def test_a_jump_ahead_that_lasts_is_believed() -> None:
    discipline, told = a_discipline()
    discipline.at(0, 0)
    discipline.at(HOUR_US, 0)
    assert discipline.at(HOUR_US + 30_000_000, 30_000_000) == HOUR_US + 30_000_000
    assert told[1] == Jump(HOUR_US, "believed")
    assert (discipline.ahead_us, discipline.stepped_us) == (0, HOUR_US)


def test_a_jump_back_that_lasts_is_believed__and_waits_go_on() -> None:
    discipline, _ = a_discipline()
    discipline.at(HOUR_US, 0)
    discipline.at(0, 0)
    assert discipline.at(30_000_000, 30_000_000) == HOUR_US + 30_000_000
    assert discipline.ahead_us == HOUR_US  # so that UTC is what the wall clock says
    assert discipline.stepped_us == -HOUR_US
    assert discipline.at(30_000_100, 30_000_100) == HOUR_US + 30_000_100


def test_a_wall_clock_that_jumps_about_is_not_believed() -> None:
    discipline, told = a_discipline()
    discipline.at(0, 0)
    for second in range(0, 100, 10):
        now_us = second * 1_000_000
        assert discipline.at(HOUR_US * (1 + second) + now_us, now_us) == now_us
    assert {jump.state for jump in told} == {"seen"}
