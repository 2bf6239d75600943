"""A slice of the simulation, and proof that it finds what it is there to find.

`make sim N=2000` runs as many seeds as wanted, `make reliability` plants every bug of mutants.py
and mutants_kinds.py; here are few seeds, and the bugs that the first of them find.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.planted import BROKER
from tests.simulation.run import simulate

FOUND_BY = BROKER.found_by()
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
SLICE = sorted(FOUND_BY, key=lambda name: FOUND_BY[name])[::5]

KEPT = (396, 960, 1369, 1666, 1691, 1703, 10_207, 20_034)
"""Seeds that found something; docs/reliability.md says what."""


@pytest.mark.parametrize("seed", [*range(1, 13), *KEPT])
def test_no_rule_is_broken(seed: int) -> None:
    run = simulate(seed)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


def test_a_seed_does_the_same_twice() -> None:
    first, second = simulate(3), simulate(3)
    assert first.fingerprint == second.fingerprint
    assert simulate(4).fingerprint != first.fingerprint


@pytest.mark.parametrize("name", sorted(BROKER.mutants) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert BROKER.seed_that_finds(name, monkeypatch) is not None, f"nobody noticed: {name}"


def test_there_are_many_planted_bugs_and_each_was_found() -> None:
    assert len(BROKER.mutants) >= 40
    assert set(FOUND_BY) == set(BROKER.mutants)
