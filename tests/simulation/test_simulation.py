"""A slice of the simulation, and proof that it finds what it is there to find.

`make sim N=2000` runs as many seeds as wanted, `make reliability` plants every bug of mutants.py
and mutants_kinds.py; here are few seeds, and the bugs that the first of them find.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from tests.simulation import mutants_kinds
from tests.simulation.mutants import MUTANTS
from tests.simulation.run import simulate

SEEDS_MAX = 120
"""A planted bug is found by one of these."""
FOUND_BY = json.loads(Path(__file__).with_name("found_by.json").read_text())
"""Which seed found each of them last: it is tried first. Written by `make mutants`."""
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
SLICE = sorted(FOUND_BY, key=lambda name: FOUND_BY[name])[::5]

assert mutants_kinds


KEPT = (1369, 1666, 1691, 1703, 10_207, 20_034)
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


def finds(seed: int) -> bool:
    """Whether a rule was seen broken, or the broker said itself that something is wrong."""
    try:
        return bool(simulate(seed).faults)
    except Exception:  # noqa: BLE001 - an invariant that noticed the bug is as good as the judge
        return True


def seed_that_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The seed that finds a planted bug, beginning with the one that did before."""
    logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
    MUTANTS[name](monkeypatch)
    first = FOUND_BY.get(name, 1)
    seeds = [first, *(seed for seed in range(1, SEEDS_MAX + 1) if seed != first)]
    try:
        return next((seed for seed in seeds if finds(seed)), None)
    finally:
        logging.getLogger("dejaqueue").setLevel(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(MUTANTS) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seed_that_finds(name, monkeypatch) is not None, f"nobody noticed: {name}"


def test_there_are_many_planted_bugs_and_each_was_found() -> None:
    assert len(MUTANTS) >= 40
    assert set(FOUND_BY) == set(MUTANTS)
