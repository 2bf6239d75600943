"""What the chaos is made of, without a cluster: its plan, and its model of a broker's clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import clocks
from tests.chaos.clocks import HOUR_US, BrokerClock
from tests.chaos.faults import HEAVY, KINDS, plan

SECOND_US = 1_000_000


def test_a_seed_makes_a_plan_and_another_one_another() -> None:
    first = plan(1, 600, list(KINDS), 2)
    assert first == plan(1, 600, list(KINDS), 2)
    assert first != plan(2, 600, list(KINDS), 2)
    assert sum(step.gap_s + step.length_s for step in first) >= 600


@pytest.mark.parametrize("seed", range(20))
def test_each_kind_comes_before_any_comes_again(seed: int) -> None:
    steps = plan(seed, 600, list(KINDS), 2, together=0.8)
    kinds = [fault.kind for step in steps for fault in step.faults]
    assert set(kinds[: len(KINDS)]) == KINDS.keys()
    for step in steps:
        fields = [KINDS[fault.kind].field for fault in step.faults]
        assert len(fields) == len(set(fields))
        assert len(step.faults) == 1 or not HEAVY & {fault.kind for fault in step.faults}


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerClock:
    monkeypatch.setattr(clocks, "CLOCK", _Standing())
    return BrokerClock(tmp_path / "clock")


class _Standing:
    """The true clock, set by hand."""

    at_us = 1_000 * SECOND_US

    def now_us(self) -> int:
        return self.at_us


def true_us(seconds: int) -> int:
    """Set the true clock."""
    clocks.CLOCK.at_us = seconds * SECOND_US  # type: ignore[attr-defined]
    return seconds * SECOND_US


def test_a_jump_is_believed_by_a_new_process_or_when_it_lasts(clock: BrokerClock) -> None:
    true_us(1_000)
    clock.set(HOUR_US)
    assert clock.path.read_text() == "+3600.000000\n"
    assert clock.highest_us(true_us(1_010)) == 1_010 * SECOND_US
    assert clock.highest_us(true_us(1_031)) == 1_031 * SECOND_US + HOUR_US
    clock.set(0)
    assert clock.highest_us(true_us(1_040)) == 1_040 * SECOND_US + HOUR_US
    clock.restarted()
    assert clock.highest_us(true_us(1_050)) == 1_050 * SECOND_US
    clock.set(HOUR_US)
    true_us(1_060)
    clock.restarted()
    assert clock.highest_us(true_us(1_061)) == 1_061 * SECOND_US + HOUR_US
    assert clock.highest_us(1_055 * SECOND_US) == 1_055 * SECOND_US


def test_a_jump_that_is_over_before_it_is_believed_never_was(clock: BrokerClock) -> None:
    true_us(1_000)
    clock.set(HOUR_US)
    true_us(1_010)
    clock.set(0)
    assert clock.highest_ever_us(true_us(1_100)) == 1_100 * SECOND_US
    assert clock.first_us(1_050 * SECOND_US, 1_100 * SECOND_US) == 1_050 * SECOND_US


def test_small_steps_are_followed(clock: BrokerClock) -> None:
    true_us(1_000)
    for step in range(1, 11):
        clock.set(-step * 10_000)
        true_us(1_000 + step)
    # As long as it may have been stopped meanwhile.
    assert clock.highest_us(true_us(1_012)) == 1_012 * SECOND_US
    assert clock.highest_us(true_us(1_060)) == 1_060 * SECOND_US - 100_000


def test_when_a_clock_may_first_have_shown_a_time(clock: BrokerClock) -> None:
    def first(shown_s: int, until_s: int) -> float:
        return clock.first_us(shown_s * SECOND_US, until_s * SECOND_US) / SECOND_US

    assert first(900, 1_000) == 900
    true_us(1_000)
    clock.set(10 * SECOND_US)
    assert first(999, 1_001) == 999
    assert first(1_012, 1_020) == 1_012  # it is not believed yet
    assert first(1_036, 1_031) == 1_030  # it may be now
    assert first(1_043, 1_050) == 1_033
