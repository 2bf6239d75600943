"""A slice of the simulated registers: answers about keys, topics and transactions in one order."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.checker.history import Outcome
from tests.simulation.cluster.plan import PLAIN
from tests.simulation.cluster.registers import simulate_registers
from tests.simulation.planted import REGISTERS

FOUND_BY = REGISTERS.found_by()
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
SLICE = sorted(FOUND_BY, key=lambda name: FOUND_BY[name])[:4]
KEPT = (28, 72)
"""Seeds in which a topic was described as it was no more; docs/reliability.md says why."""


@pytest.mark.parametrize("seed", range(1, 5))
def test_all_answers_are_one_order(seed: int) -> None:
    assert [str(fault) for fault in simulate_registers(seed).faults] == []


@pytest.mark.parametrize("seed", KEPT)
def test_all_answers_are_one_order__where_once_they_were_not(seed: int) -> None:
    assert [str(fault) for fault in simulate_registers(seed, plan=PLAIN).faults] == []


def test_what_is_judged_is_asked() -> None:
    done: Counter[str] = Counter()
    for seed in (2, 3):
        history = simulate_registers(seed).history
        looks = (one for one in history.looks if one.outcome is Outcome.OK)
        done += Counter(type(one).__name__ for one in looks)
        done += Counter(f"send {one.outcome.value}" for one in history.sends)
        done += Counter(f"cancel {one.outcome.value}" for one in history.cancels)
        done += Counter(f"decide {one.commit} {one.outcome.value}" for one in history.decisions)
    wanted = ("Look", "send ok", "send refused", "send unknown", "cancel ok", "cancel refused")
    decided = ("decide True ok", "decide False ok", "decide True refused")
    assert [what for what in (*wanted, *decided) if not done[what]] == [], done


def test_a_seed_does_the_same_twice() -> None:
    assert simulate_registers(4).fingerprint == simulate_registers(4).fingerprint


@pytest.mark.parametrize("name", sorted(REGISTERS.mutants) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert REGISTERS.seed_that_finds(name, monkeypatch) is not None, REGISTERS.missed(name)


def test_each_planted_bug_was_found() -> None:
    assert set(FOUND_BY) == set(REGISTERS.mutants)
