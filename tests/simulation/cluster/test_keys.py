"""A slice of the simulated API keys of a cluster, and proof that it finds what it should."""

from __future__ import annotations

import os

import pytest

from tests.simulation.cluster.keys import simulate_keys
from tests.simulation.planted import KEYS

ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
FOUND_BY = KEYS.found_by()
SLICE = (
    "keys_are_read_changed_and_written",
    "keys_need_no_confirmation",
    "seals_are_not_looked_at",
)
KEPT = (1, 14, 22, 59)
"""Seeds that found something: a broker that had put back an old document was not corrected by who
knew better; what only one broker knew was lost with its process."""


@pytest.mark.parametrize("seed", [*range(2, 7), *KEPT])
def test_no_promise_about_keys_is_broken(seed: int) -> None:
    run = simulate_keys(seed)
    assert [str(fault) for fault in run.faults] == []
    assert run.history.deliveries


def test_a_seed_does_the_same_twice() -> None:
    assert simulate_keys(9).fingerprint == simulate_keys(9).fingerprint


@pytest.mark.parametrize("name", sorted(KEYS.mutants) if ALL else SLICE)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KEYS.seed_that_finds(name, monkeypatch) is not None, f"nobody noticed: {name}"


def test_each_planted_bug_was_found() -> None:
    assert set(FOUND_BY) == set(KEYS.mutants)
