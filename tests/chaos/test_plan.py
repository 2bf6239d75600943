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


def test_a_clock_that_was_ahead_stands_still_until_a_new_process_begins(clock: BrokerClock) -> None:
    true_us(1_000)
    clock.set(HOUR_US)
    assert clock.path.read_text() == "+3600.000000\n"
    assert clock.highest_us(true_us(1_010)) == 1_010 * SECOND_US + HOUR_US
    clock.set(0)
    stands_us = clock.highest_us(true_us(1_020))
    assert 0 <= stands_us - 1_010 * SECOND_US - HOUR_US <= 100_000
    clock.restarted()
    assert clock.highest_us(true_us(1_030)) == 1_030 * SECOND_US
    assert clock.highest_ever_us(1_030 * SECOND_US) == stands_us
    assert clock.highest_us(1_030 * SECOND_US, since_us=1_025 * SECOND_US) == 1_030 * SECOND_US
    assert clock.highest_us(1_030 * SECOND_US, since_us=1_015 * SECOND_US) == stands_us


def test_when_a_clock_may_first_have_shown_a_time(clock: BrokerClock) -> None:
    def first(shown_s: int, until_s: int) -> float:
        return clock.first_us(shown_s * SECOND_US, until_s * SECOND_US) / SECOND_US

    assert first(900, 1_000) == 900
    true_us(1_000)
    clock.set(10 * SECOND_US)
    assert first(999, 1_001) == 999
    assert first(1_005, 1_001) == 1_000  # in the jump
    assert first(1_012, 1_010) == 1_002
    true_us(1_020)
    clock.set(0)
    # It stands still at 1030, which it has shown since the clock was set back.
    assert first(1_030, 1_029) == 1_020
    assert first(1_031, 1_040) == 1_031
