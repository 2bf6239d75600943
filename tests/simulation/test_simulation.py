"""A slice of the simulation, and proof that it finds what it is there to find.

`make sim N=2000` runs as many seeds as wanted; here are few, and every planted bug of mutants.py.
"""

from __future__ import annotations

import logging

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import simulate

SEEDS_MAX = 40
"""A planted bug is found by one of the first seeds; the most patient needs 19."""


@pytest.mark.parametrize("seed", range(1, 21))
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


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
    MUTANTS[name](monkeypatch)
    try:
        assert any(finds(seed) for seed in range(1, SEEDS_MAX + 1)), f"nobody noticed: {name}"
    finally:
        logging.getLogger("dejaqueue").setLevel(logging.NOTSET)
